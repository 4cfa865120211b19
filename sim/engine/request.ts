// One request inside the engine: what it asked for, how far it is, and which KV blocks it holds.

import type { TokenSequence } from './sequence.ts';
import type { FinishReason } from './stats.ts';

export interface EngineRequest {
  /** Unique among open requests. */
  readonly id: string;
  readonly sequence: TokenSequence;
  /** Tokens of the answer, at least 1. Cut where prompt and answer reach `maxModelLen`. */
  readonly answerTokens: number;
  /** Why it ends there. */
  readonly finishReason: FinishReason;
  /** Counts where the profile schedules by priority: lower is earlier. 0 unless given. */
  readonly priority?: number;
  /** The client's own limit in tokens, for the histogram of limits; `answerTokens` unless given. */
  readonly maxTokensParam?: number;
}

/** Times in ms of the engine's clock. */
export interface OpenRequest {
  readonly id: string;
  readonly sequence: TokenSequence;
  readonly promptTokens: number;
  readonly maxTokens: number;
  readonly maxTokensParam: number;
  readonly finishReason: FinishReason;
  readonly priority: number;
  readonly arrivedMs: number;
  /** When the front end hands it on; once the core has taken it in, when that was. */
  queuedMs: number;
  scheduledMs: number | null;
  firstTokenMs: number | null;
  lastTokenMs: number | null;
  /** Tokens whose KV is computed, found ones included. */
  computed: number;
  generated: number;
  /** Prompt tokens found at the first admission. */
  cachedTokens: number | null;
  blocks: number[];
  /** Blocks, from the first, that were made findable. */
  published: number;
  preemptions: number;
  /** Not counted yet: that comes with its next token. */
  uncountedPreemptions: number;
}

/** A request that the scheduler has not seen yet. */
export function openRequest(
  request: EngineRequest,
  times: { readonly arrivedMs: number; readonly queuedMs: number },
): OpenRequest {
  return {
    ...times,
    id: request.id,
    sequence: request.sequence,
    maxTokens: request.answerTokens,
    maxTokensParam: request.maxTokensParam ?? request.answerTokens,
    finishReason: request.finishReason,
    priority: request.priority ?? 0,
    promptTokens: request.sequence.promptTokens,
    scheduledMs: null,
    firstTokenMs: null,
    lastTokenMs: null,
    computed: 0,
    generated: 0,
    cachedTokens: null,
    blocks: [],
    published: 0,
    preemptions: 0,
    uncountedPreemptions: 0,
  };
}

/** The same request in a copy of its engine. */
export function forkRequest(request: OpenRequest): OpenRequest {
  return { ...request, sequence: request.sequence.fork(), blocks: request.blocks.slice() };
}

/** Tokens that the engine knows of the request: prompt and answer so far. */
export function knownTokens(request: OpenRequest): number {
  return request.promptTokens + request.generated;
}

/** True while only the newest token has no KV yet. */
export function isDecoding(request: OpenRequest): boolean {
  return request.generated > 0 && knownTokens(request) - request.computed === 1;
}

/** What comes first where priorities count: the lower priority, then the earlier arrival. */
export function comesBefore(a: OpenRequest, b: OpenRequest): boolean {
  return a.priority === b.priority ? a.arrivedMs < b.arrivedMs : a.priority < b.priority;
}
