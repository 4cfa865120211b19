// The requests that somebody waits for, from the front end to the last token: what they are told and what is counted.
//
// Invariants: a request is told of its end once; nothing is told of one that left.

import { answerToken } from './answers.ts';
import type { EngineEvent } from './events.ts';
import type { OpenRequest } from './request.ts';
import type { EngineStats, FinishReason } from './stats.ts';
import { END_TOKEN } from './tokenizer.ts';

export class OpenRequests {
  readonly #stats: EngineStats;
  readonly #byId = new Map<string, OpenRequest>();

  constructor(stats: EngineStats) {
    this.#stats = stats;
  }

  get size(): number {
    return this.#byId.size;
  }

  /** Of requests without a first token. */
  get promptTokens(): number {
    let tokens = 0;
    for (const request of this.#byId.values()) {
      if (request.firstTokenMs === null) tokens += request.promptTokens;
    }
    return tokens;
  }

  get(id: string): OpenRequest | undefined {
    return this.#byId.get(id);
  }

  has(request: OpenRequest): boolean {
    return this.#byId.get(request.id) === request;
  }

  add(request: OpenRequest): void {
    this.#byId.set(request.id, request);
  }

  /** The same requests by their copies. */
  copy(from: OpenRequests, copyOf: (request: OpenRequest) => OpenRequest): void {
    for (const [id, request] of from.#byId) this.#byId.set(id, copyOf(request));
  }

  /** The request is nobody's concern any more. */
  leave(request: OpenRequest): void {
    this.#byId.delete(request.id);
    if (request.firstTokenMs !== null) this.#stats.countAdapter(request.sequence.lora, -1);
  }

  /** Gives out the request's next token. True when it was the last. */
  generate(request: OpenRequest, atMs: number, events: EngineEvent[]): boolean {
    const { id, generated: index, finishReason } = request;
    const ends = index + 1 >= request.maxTokens;
    const tokenId = this.#appendToken(request, ends);
    this.#stats.countToken(request, atMs);
    const cachedTokens = request.cachedTokens ?? 0;
    const finish = ends ? finishReason : null;
    events.push({ kind: 'token', id, atMs, tokenId, index, finish, cachedTokens });
    if (!ends) return false;
    this.#stats.countFinished(request, { reason: finishReason, endedMs: atMs });
    this.#tellFinished(request, { reason: finishReason, atMs }, events);
    return true;
  }

  /** The same where nobody listens or counts. */
  generateSilently(request: OpenRequest): boolean {
    const ends = request.generated + 1 >= request.maxTokens;
    this.#appendToken(request, ends);
    if (ends) this.#byId.delete(request.id);
    return ends;
  }

  /** The core ends them with reason `abort`: each has its answer as far as it went, and is counted. */
  endEarly(requests: readonly OpenRequest[], atMs: number, events: EngineEvent[]): void {
    for (const request of requests) {
      this.#stats.countEndedEarly(request, atMs);
      this.#tellFinished(request, { reason: 'abort', atMs }, events);
    }
    if (requests.length > 0) this.#stats.iterationTokens.observe(0);
  }

  failAll(atMs: number): EngineEvent[] {
    const events = [...this.#byId.keys()].map((id): EngineEvent => ({ kind: 'failed', id, atMs }));
    this.#byId.clear();
    return events;
  }

  #appendToken(request: OpenRequest, ends: boolean): number {
    const { sequence, generated, finishReason } = request;
    const isEndToken = ends && finishReason === 'stop';
    const tokenId = isEndToken ? END_TOKEN : answerToken(sequence.promptKey, generated);
    request.generated += 1;
    sequence.append(tokenId);
    return tokenId;
  }

  #tellFinished(
    request: OpenRequest,
    end: { readonly reason: FinishReason; readonly atMs: number },
    events: EngineEvent[],
  ): void {
    this.leave(request);
    const { id, promptTokens, cachedTokens, generated } = request;
    events.push({
      ...{ kind: 'finished', id, ...end, promptTokens },
      ...{ cachedTokens: cachedTokens ?? 0, answerTokens: generated },
    });
  }
}
