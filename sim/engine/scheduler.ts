// Decides what one engine step computes, as vLLM's scheduler does: one token budget for everything.
//
// First every running request in order of admission: a decode takes one token, a prefill as much as the budget leaves.
// A request that finds no KV block preempts the one admitted last (by priority: the least urgent, latest): its blocks
// are given up, it waits at the head and is computed again, less what the cache still has; a step that preempted
// admits nobody. Then waiting requests, first come first served (or by priority), while budget and batch slots
// last: each needs room for its whole present length. The head is never passed over, except where its adapter would
// be one too many in the batch: such a request is deferred and keeps its place.
//
// Invariants: Σ tokens of a step ≤ budget; running ≤ maxNumSeqs; a request is running or waiting, never both.

import type { KvCache } from './kv-cache.ts';
import type { KvEventLog } from './kv-events.ts';
import type { EngineProfile } from './profiles.ts';
import { comesBefore, forkRequest, knownTokens, type OpenRequest } from './request.ts';
import type { TokenSequence } from './sequence.ts';
import type { StepChunk } from './step-time.ts';

export interface StepPlan {
  readonly chunks: readonly StepChunk[];
  /** Requests admitted for the first time. */
  readonly admitted: readonly OpenRequest[];
  readonly preempted: readonly OpenRequest[];
}

/** What may be scheduled: everything, what runs already, nothing. */
export type SchedulingPause = 'none' | 'new' | 'all';

/** Blocks of the prompt that need no computing; the last token always does. */
export function cachedPrefix(
  cache: KvCache,
  sequence: TokenSequence,
  tokens: { readonly known: number; readonly block: number },
): number[] {
  const found: number[] = [];
  const findable = Math.floor((tokens.known - 1) / tokens.block);
  for (let index = 0; index < findable; index += 1) {
    const block = cache.find(sequence.blockKey(index));
    if (block < 0) break;
    found.push(block);
  }
  return found;
}

interface Draft {
  readonly chunks: StepChunk[];
  readonly preempted: OpenRequest[];
  budget: number;
}

export class Scheduler {
  readonly running: OpenRequest[] = [];
  readonly waiting: OpenRequest[] = [];
  pause: SchedulingPause = 'none';
  readonly #profile: EngineProfile;
  readonly #cache: KvCache;
  readonly #events: KvEventLog | null;
  readonly #deferred = new Set<OpenRequest>();

  constructor(profile: EngineProfile, cache: KvCache, events: KvEventLog | null = null) {
    this.#profile = profile;
    this.#cache = cache;
    this.#events = events;
  }

  /** Of those waiting, the ones that wait for an adapter's turn and not for room. */
  get deferred(): number {
    return this.#deferred.size;
  }

  /** True when a step would have something to do, or to wait for room for. */
  get hasWork(): boolean {
    if (this.pause === 'all') return false;
    return this.running.length > 0 || (this.pause === 'none' && this.waiting.length > 0);
  }

  enqueue(request: OpenRequest): void {
    if (this.#profile.schedulingPolicy === 'fcfs') this.waiting.push(request);
    else this.#insertByPriority(request);
  }

  plan(nowMs: number): StepPlan {
    const draft: Draft = { chunks: [], preempted: [], budget: this.#profile.maxNumBatchedTokens };
    if (this.pause === 'all') return { ...draft, admitted: [] };
    this.#scheduleRunning(draft);
    const admits = draft.preempted.length === 0 && this.pause === 'none';
    const admitted = admits ? this.#admit(draft, nowMs) : [];
    return { chunks: draft.chunks, admitted, preempted: draft.preempted };
  }

  /** Gives up whatever the request holds and takes it out. */
  drop(request: OpenRequest): void {
    removeFrom(this.running, request);
    removeFrom(this.waiting, request);
    this.#deferred.delete(request);
    this.#cache.release(request.blocks);
    request.blocks.length = 0;
  }

  /** All running ones wait again, in their order, and hold nothing. */
  preemptAll(): void {
    for (let last = this.running.at(-1); last !== undefined; last = this.running.at(-1)) {
      this.#preempt(last);
    }
  }

  /** The same state on a copy of the cache; nobody listens to its events. */
  fork(cache: KvCache, copies: Map<OpenRequest, OpenRequest>): Scheduler {
    const fork = new Scheduler(this.#profile, cache);
    const copy = (request: OpenRequest): OpenRequest => {
      const forked = forkRequest(request);
      copies.set(request, forked);
      return forked;
    };
    fork.running.push(...this.running.map(copy));
    fork.waiting.push(...this.waiting.map(copy));
    return fork;
  }

  #scheduleRunning(draft: Draft): void {
    for (let at = 0; at < this.running.length && draft.budget > 0; at += 1) {
      const request = this.running[at];
      if (request === undefined) break;
      const tokens = Math.min(knownTokens(request) - request.computed, draft.budget);
      const gone = draft.preempted.length;
      if (!this.#makeRoom(request, tokens, draft)) break;
      // A victim before it in the batch moves it forward.
      if (draft.preempted.length > gone) at = this.running.indexOf(request);
      draft.chunks.push({ request, tokens });
      draft.budget -= tokens;
    }
  }

  /** False when the request itself had to give way. */
  #makeRoom(request: OpenRequest, tokens: number, draft: Draft): boolean {
    while (!this.#take(request, tokens)) {
      const victim = this.#victim();
      if (victim === undefined) return false;
      this.#unplan(victim, draft);
      this.#preempt(victim);
      draft.preempted.push(victim);
      if (victim === request) return false;
    }
    return true;
  }

  #victim(): OpenRequest | undefined {
    if (this.#profile.schedulingPolicy === 'fcfs') return this.running.at(-1);
    return this.running.reduce((last, each) => (comesBefore(each, last) ? last : each));
  }

  /** By priority a victim may have its tokens in this step already. */
  #unplan(victim: OpenRequest, draft: Draft): void {
    const at = draft.chunks.findIndex(({ request }) => request === victim);
    if (at < 0) return;
    draft.budget += draft.chunks[at]?.tokens ?? 0;
    draft.chunks.splice(at, 1);
  }

  #preempt(victim: OpenRequest): void {
    this.drop(victim);
    victim.computed = 0;
    victim.published = 0;
    victim.preemptions += 1;
    victim.uncountedPreemptions += 1;
    if (this.#profile.schedulingPolicy === 'fcfs') this.waiting.unshift(victim);
    else this.#insertByPriority(victim);
  }

  #insertByPriority(request: OpenRequest): void {
    const at = this.waiting.findIndex((each) => comesBefore(request, each));
    this.waiting.splice(at < 0 ? this.waiting.length : at, 0, request);
  }

  #admit(draft: Draft, nowMs: number): OpenRequest[] {
    const admitted: OpenRequest[] = [];
    const adapters = this.#adaptersOf(draft.chunks);
    let at = 0;
    while (draft.budget > 0 && this.running.length < this.#profile.maxNumSeqs) {
      const request = this.waiting[at];
      if (request === undefined) break;
      const { lora } = request.sequence;
      if (lora !== null && !adapters.has(lora) && adapters.size >= this.#profile.maxLoras) {
        this.#deferred.add(request);
        at += 1;
        continue;
      }
      const cachedTokens = this.#start(request, draft);
      if (cachedTokens === null) break;
      this.waiting.splice(at, 1);
      this.#deferred.delete(request);
      this.running.push(request);
      if (lora !== null) adapters.add(lora);
      if (request.scheduledMs !== null) continue;
      request.scheduledMs = nowMs;
      request.cachedTokens = cachedTokens;
      admitted.push(request);
    }
    return admitted;
  }

  #adaptersOf(chunks: readonly StepChunk[]): Set<string> {
    const adapters = new Set<string>();
    for (const { request } of chunks) {
      if (request.sequence.lora !== null) adapters.add(request.sequence.lora);
    }
    return adapters;
  }

  /** Tokens that were found in the cache; null when there is no room for the whole of it. */
  #start(request: OpenRequest, draft: Draft): number | null {
    const known = knownTokens(request);
    const { blockTokens } = this.#profile;
    const found = cachedPrefix(this.#cache, request.sequence, { known, block: blockTokens });
    const foundFree = found.reduce((sum, block) => sum + (this.#cache.isHeld(block) ? 0 : 1), 0);
    const needed = Math.ceil(known / blockTokens) - found.length;
    if (needed + foundFree > this.#cache.freeBlocks) return null;
    for (const block of found) this.#cache.hold(block);
    request.blocks = found;
    request.published = found.length;
    const cachedTokens = found.length * blockTokens;
    request.computed = cachedTokens;
    const tokens = Math.min(known - cachedTokens, draft.budget);
    this.#take(request, tokens);
    draft.chunks.push({ request, tokens });
    draft.budget -= tokens;
    return cachedTokens;
  }

  /** Blocks for `tokens` more; full ones can be found from now on. All or nothing. */
  #take(request: OpenRequest, tokens: number): boolean {
    const { blockTokens } = this.#profile;
    const needed = Math.ceil((request.computed + tokens) / blockTokens) - request.blocks.length;
    if (needed > this.#cache.freeBlocks) return false;
    for (let taken = 0; taken < needed; taken += 1) request.blocks.push(this.#cache.allocate());
    const from = request.published;
    const to = Math.floor((request.computed + tokens) / blockTokens);
    for (; request.published < to; request.published += 1) {
      const block = request.blocks[request.published];
      if (block !== undefined) {
        this.#cache.publish(block, request.sequence.blockKey(request.published));
      }
    }
    if (to > from) this.#events?.stored(request.sequence, { from, to, blockTokens });
    return true;
  }
}

function removeFrom(list: OpenRequest[], request: OpenRequest): void {
  const at = list.indexOf(request);
  if (at >= 0) list.splice(at, 1);
}
