// Decides what one engine step computes, as vLLM's scheduler does: one token budget for everything.
//
// First every running request in order of admission: a decode takes one token, a prefill as much as the budget leaves.
// A request that finds no KV block preempts the one admitted last (its blocks are given up, it waits at the
// head and is computed again, less what the cache still has); a step that preempted admits nobody. Then
// waiting requests, first come first served, while budget and batch slots last: each needs room for its
// whole present length beyond what prefills under way still have to take. The head is never passed over.
//
// Invariants: Σ tokens of a step ≤ budget; running ≤ maxNumSeqs; a request is running or waiting, never both.

import type { KvCache } from './kv-cache.ts';
import type { EngineProfile } from './profiles.ts';
import type { TokenSequence } from './sequence.ts';
import type { EngineStats, FinishReason } from './stats.ts';

/** A request inside the engine. Times in ms of the engine's clock. */
export interface OpenRequest {
  readonly id: string;
  readonly sequence: TokenSequence;
  readonly promptTokens: number;
  readonly maxTokens: number;
  readonly finishReason: FinishReason;
  readonly arrivedMs: number;
  /** When the front end hands it to the scheduler. */
  readonly queuedMs: number;
  scheduledMs: number | null;
  firstTokenMs: number | null;
  lastTokenMs: number | null;
  /** Tokens whose KV is computed, found ones included. */
  computed: number;
  generated: number;
  /** Prompt tokens found at the first admission. */
  cachedTokens: number | null;
  readonly blocks: number[];
  published: number;
  preemptions: number;
  /** Not counted yet: that comes with its next token. */
  uncountedPreemptions: number;
}

/** A request that the scheduler has not seen yet. */
export function openRequest(
  request: Pick<
    OpenRequest,
    'id' | 'sequence' | 'maxTokens' | 'finishReason' | 'arrivedMs' | 'queuedMs'
  >,
): OpenRequest {
  return {
    ...request,
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

export interface StepChunk {
  readonly request: OpenRequest;
  readonly tokens: number;
}

export interface StepPlan {
  readonly chunks: readonly StepChunk[];
  /** Requests admitted for the first time. */
  readonly admitted: readonly OpenRequest[];
  readonly preempted: readonly OpenRequest[];
}

/** Tokens that the engine knows of the request: prompt and answer so far. */
export function knownTokens(request: OpenRequest): number {
  return request.promptTokens + request.generated;
}

/** True while only the newest token has no KV yet. */
export function isDecoding(request: OpenRequest): boolean {
  return request.generated > 0 && knownTokens(request) - request.computed === 1;
}

/** ms that a step with these chunks takes, without jitter. */
export function stepMs(profile: EngineProfile, chunks: readonly StepChunk[]): number {
  let prefill = 0;
  let context = 0;
  let decoding = 0;
  let decodeContext = 0;
  for (const { request, tokens } of chunks) {
    if (isDecoding(request)) {
      decoding += 1;
      decodeContext += request.computed;
    } else {
      prefill += tokens;
      context += tokens * (request.computed + tokens / 2);
    }
  }
  return (
    (prefill > 0 ? profile.prefillStepMs : profile.decodeStepMs) +
    profile.linearMsPerToken * prefill +
    profile.contextMsPerToken2 * context +
    profile.decodeMsPerSequence * decoding +
    profile.decodeContextMsPerToken * decodeContext
  );
}

/** Prompt tokens of `sequence` that need no computing; the last token always does. */
export function cachedPrefix(
  cache: KvCache,
  sequence: TokenSequence,
  known: number,
  blockTokens: number,
): number[] {
  const found: number[] = [];
  const findable = Math.floor((known - 1) / blockTokens);
  for (let index = 0; index < findable; index += 1) {
    const block = cache.find(sequence.blockKey(index));
    if (block < 0) break;
    found.push(block);
  }
  return found;
}

export class Scheduler {
  readonly running: OpenRequest[] = [];
  readonly waiting: OpenRequest[] = [];
  readonly #profile: EngineProfile;
  readonly #cache: KvCache;
  readonly #stats: EngineStats;

  constructor(profile: EngineProfile, cache: KvCache, stats: EngineStats) {
    this.#profile = profile;
    this.#cache = cache;
    this.#stats = stats;
  }

  plan(nowMs: number): StepPlan {
    const chunks: StepChunk[] = [];
    const preempted: OpenRequest[] = [];
    let budget = this.#profile.maxNumBatchedTokens;
    for (let at = 0; at < this.running.length && budget > 0; at += 1) {
      const request = this.running[at];
      if (request === undefined) break;
      const tokens = Math.min(knownTokens(request) - request.computed, budget);
      if (!this.#makeRoom(request, tokens, preempted)) break;
      chunks.push({ request, tokens });
      budget -= tokens;
    }
    const admitted = preempted.length > 0 ? [] : this.#admit(chunks, budget, nowMs);
    return { chunks, admitted, preempted };
  }

  /** Gives up whatever the request holds and takes it out. */
  drop(request: OpenRequest): void {
    removeFrom(this.running, request);
    removeFrom(this.waiting, request);
    this.#cache.release(request.blocks);
    request.blocks.length = 0;
  }

  /** False when the request itself had to give way. */
  #makeRoom(request: OpenRequest, tokens: number, preempted: OpenRequest[]): boolean {
    while (!this.#take(request, tokens)) {
      const victim = this.running.at(-1);
      if (victim === undefined) return false;
      this.#preempt(victim);
      preempted.push(victim);
      if (victim === request) return false;
    }
    return true;
  }

  #preempt(victim: OpenRequest): void {
    this.drop(victim);
    victim.computed = 0;
    victim.published = 0;
    victim.preemptions += 1;
    victim.uncountedPreemptions += 1;
    this.waiting.unshift(victim);
  }

  #admit(chunks: StepChunk[], budgetTokens: number, nowMs: number): OpenRequest[] {
    const admitted: OpenRequest[] = [];
    let budget = budgetTokens;
    while (budget > 0 && this.running.length < this.#profile.maxNumSeqs) {
      const request = this.waiting[0];
      if (request === undefined) break;
      const known = knownTokens(request);
      const { blockTokens } = this.#profile;
      const found = cachedPrefix(this.#cache, request.sequence, known, blockTokens);
      if (!this.#fits(found, known)) break;
      for (const block of found) this.#cache.hold(block);
      request.blocks.push(...found);
      request.published = found.length;
      request.computed = found.length * blockTokens;
      const tokens = Math.min(known - request.computed, budget);
      this.#take(request, tokens);
      this.waiting.shift();
      this.running.push(request);
      if (request.scheduledMs === null) {
        request.scheduledMs = nowMs;
        request.cachedTokens = request.computed;
        admitted.push(request);
      }
      chunks.push({ request, tokens });
      budget -= tokens;
    }
    return admitted;
  }

  /** Room for the whole of it, beyond what running prefills still need. */
  #fits(found: readonly number[], known: number): boolean {
    const { blockTokens } = this.#profile;
    let reserved = 0;
    for (const request of this.running) {
      reserved += Math.max(
        0,
        Math.ceil(knownTokens(request) / blockTokens) - request.blocks.length,
      );
    }
    const foundFree = found.reduce((sum, block) => sum + (this.#cache.isHeld(block) ? 0 : 1), 0);
    const needed = Math.ceil(known / blockTokens) - found.length;
    return needed + foundFree + reserved <= this.#cache.freeBlocks;
  }

  /** Blocks for `tokens` more; full ones can be found from now on. All or nothing. */
  #take(request: OpenRequest, tokens: number): boolean {
    const { blockTokens } = this.#profile;
    const needed = Math.ceil((request.computed + tokens) / blockTokens) - request.blocks.length;
    if (needed > this.#cache.freeBlocks) return false;
    for (let taken = 0; taken < needed; taken += 1) request.blocks.push(this.#cache.allocate());
    const full = Math.floor((request.computed + tokens) / blockTokens);
    for (; request.published < full; request.published += 1) {
      const block = request.blocks[request.published];
      if (block !== undefined) {
        this.#cache.publish(block, request.sequence.blockKey(request.published));
      }
    }
    return true;
  }

  /** Gauges as they are now. */
  gauge(): void {
    this.#stats.running = this.running.length;
    this.#stats.waiting = this.waiting.length;
    this.#stats.kvUsageRatio = this.#cache.usageRatio;
  }
}

function removeFrom(list: OpenRequest[], request: OpenRequest): void {
  const at = list.indexOf(request);
  if (at >= 0) list.splice(at, 1);
}
