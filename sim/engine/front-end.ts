// The API server's part before the core: what it refuses, and how long a request takes to get through it.
//
// It tokenises one request at a time: frontMs + frontMsPerToken · prompt tokens each. Its limits count what is inside
// the whole engine: requests (running ones too), and prompt tokens of those without a first token.

import type { OpenRequests } from './open-requests.ts';
import type { EngineProfile } from './profiles.ts';
import { openRequest, type EngineRequest, type OpenRequest } from './request.ts';
import type { EngineStats } from './stats.ts';

export class FrontEnd {
  /** Tokens of prompt and answer together: never more than the KV cache holds. */
  readonly maxModelLen: number;
  readonly #profile: EngineProfile;
  /** When it is free for the next request. */
  #freeMs: number;

  constructor(profile: EngineProfile, startMs: number) {
    this.#profile = profile;
    this.#freeMs = startMs;
    this.maxModelLen = Math.min(profile.maxModelLen, (profile.kvBlocks - 1) * profile.blockTokens);
  }

  /** Why the request is refused, which is counted; null when it is not. */
  refuses(
    request: EngineRequest,
    inside: { readonly open: OpenRequests; readonly stats: EngineStats },
  ): 'too_long' | 'queue_full' | null {
    const { promptTokens } = request.sequence;
    const { maxQueuedRequests, maxQueuedTokens } = this.#profile;
    const { open, stats } = inside;
    if (promptTokens >= this.maxModelLen || promptTokens < 1) return 'too_long';
    if (maxQueuedRequests !== null && open.size >= maxQueuedRequests) {
      stats.queueRejections += 1;
      return 'queue_full';
    }
    if (maxQueuedTokens !== null && open.promptTokens >= maxQueuedTokens) {
      stats.queueTokenRejections += 1;
      return 'queue_full';
    }
    return null;
  }

  /** The request as the core will see it, its answer cut where the longest sequence ends. */
  take(request: EngineRequest, nowMs: number, slowFactor: number): OpenRequest {
    const { promptTokens } = request.sequence;
    const { frontMs, frontMsPerToken } = this.#profile;
    this.#freeMs =
      Math.max(this.#freeMs, nowMs) + (frontMs + frontMsPerToken * promptTokens) * slowFactor;
    const wanted = Math.max(1, request.answerTokens);
    const answerTokens = Math.min(wanted, this.maxModelLen - promptTokens);
    const finishReason = answerTokens < request.answerTokens ? 'length' : request.finishReason;
    const maxTokensParam = request.maxTokensParam ?? request.answerTokens;
    return openRequest(
      { ...request, answerTokens, finishReason, maxTokensParam },
      { arrivedMs: nowMs, queuedMs: this.#freeMs },
    );
  }
}
