// A vLLM engine without a GPU: scheduler, paged KV memory with prefix reuse, front end, counters, and the ways it fails.
//
// Deterministic and without I/O. The owner calls `advance` at `nextEventMs()` or later and gets what
// happened, each event with its exact time; calls that change something are made after an `advance` to the
// same time. One model serves the virtual-time world and the HTTP server.
//
// Life: loading → serving (→ frozen → serving) → dead core or down → restart → loading. A restart is a new
// incarnation: nothing of the old one is left.

import type { Random } from '../../shared/lib/random.ts';
import { answerToken } from './answers.ts';
import { KvCache } from './kv-cache.ts';
import type { KvEvent } from './kv-events.ts';
import type { EngineProfile } from './profiles.ts';
import {
  cachedPrefix,
  knownTokens,
  openRequest,
  Scheduler,
  stepMs,
  type OpenRequest,
} from './scheduler.ts';
import type { TokenSequence } from './sequence.ts';
import { EngineStats, type FinishReason } from './stats.ts';
import { stepFacts, type StepFacts } from './step-facts.ts';
import { END_TOKEN } from './tokenizer.ts';
import { prefillLeft, type StepUnderWay } from './truth.ts';

export interface EngineRequest {
  /** Unique among open requests. */
  readonly id: string;
  readonly sequence: TokenSequence;
  /** Tokens of the answer, at least 1. Cut where prompt and answer reach `maxModelLen`. */
  readonly answerTokens: number;
  /** Why it ends there. */
  readonly finishReason: FinishReason;
}

export type SubmitResult =
  | { readonly ok: true }
  | {
      readonly ok: false;
      readonly reason: 'not_serving' | 'core_dead' | 'too_long' | 'queue_full';
    };

export type EngineEvent =
  | {
      readonly kind: 'token';
      readonly id: string;
      readonly atMs: number;
      readonly tokenId: number;
      /** 0 for the first. */
      readonly index: number;
      /** Set on the last, which a `finished` follows. */
      readonly finish: FinishReason | null;
      /** Prompt tokens found in the cache when it was admitted. */
      readonly cachedTokens: number;
    }
  | {
      readonly kind: 'finished';
      readonly id: string;
      readonly atMs: number;
      readonly reason: FinishReason;
      readonly promptTokens: number;
      readonly cachedTokens: number;
      readonly answerTokens: number;
    }
  /** The engine failed under it. */
  | { readonly kind: 'failed'; readonly id: string; readonly atMs: number }
  | { readonly kind: 'preempted'; readonly id: string; readonly atMs: number }
  /** What an engine that publishes KV events sends at the end of a step: one batch, which may be empty. */
  | { readonly kind: 'blocks'; readonly atMs: number; readonly events: readonly KvEvent[] }
  | { readonly kind: 'serving'; readonly atMs: number };

export type EnginePhase = 'loading' | 'serving' | 'frozen' | 'dead' | 'down';

/** What no engine tells and a test may know. */
export interface EngineTruth {
  readonly phase: EnginePhase;
  readonly incarnation: number;
  /** Uncached tokens that requests without a first token still need, of all that are inside. */
  readonly waitingPrefillTokens: number;
  /** ms until those are computed if nothing else came: the sum of the remaining steps. */
  readonly waitingPrefillMs: number;
  readonly openRequests: number;
  readonly running: number;
  readonly waiting: number;
  readonly freeBlocks: number;
  readonly heldBlocks: number;
  readonly cachedBlocks: number;
}

export class EngineModel {
  readonly profile: EngineProfile;
  /** Tokens of prompt and answer together: never more than the KV cache holds. */
  readonly maxModelLen: number;
  /** Called at the end of each step, before its events; costs nothing while nobody asks. */
  onStep: ((facts: StepFacts) => void) | null = null;
  readonly #random: Random;
  #phase: EnginePhase = 'down';
  #incarnation = 0;
  #startedMs = 0;
  #readyMs = 0;
  #slowFactor = 1;
  #stats: EngineStats;
  #cache: KvCache;
  #scheduler: Scheduler;
  readonly #open = new Map<string, OpenRequest>();
  /** In the front end, in order of arrival. */
  readonly #front: OpenRequest[] = [];
  #frontFreeMs = 0;
  #step: StepUnderWay | null = null;
  /** End of the last step: the earliest start of the next. */
  #cursorMs = 0;
  #frozenMs = 0;

  /** Starts loading at `start.nowMs`. */
  constructor(
    profile: EngineProfile,
    random: Random,
    start: { readonly nowMs: number; readonly loadingMs?: number } = { nowMs: 0 },
  ) {
    this.profile = profile;
    this.#random = random;
    const usableBlocks = profile.kvBlocks - 1;
    this.maxModelLen = Math.min(profile.maxModelLen, usableBlocks * profile.blockTokens);
    this.#stats = new EngineStats(this.maxModelLen);
    this.#cache = new KvCache(usableBlocks);
    this.#scheduler = new Scheduler(profile, this.#cache, this.#stats);
    this.restart(start.nowMs, start.loadingMs ?? profile.loadingMs);
  }

  get phase(): EnginePhase {
    return this.#phase;
  }

  /** Grows by one with every start. */
  get incarnation(): number {
    return this.#incarnation;
  }

  /** Engine clock, ms: when this incarnation was started. */
  get startedMs(): number {
    return this.#startedMs;
  }

  get stats(): EngineStats {
    return this.#stats;
  }

  get openRequests(): number {
    return this.#open.size;
  }

  /** Hands a request to the front end. */
  submit(request: EngineRequest, nowMs: number): SubmitResult {
    if (this.#phase === 'dead') return { ok: false, reason: 'core_dead' };
    if (this.#phase !== 'serving' && this.#phase !== 'frozen') {
      return { ok: false, reason: 'not_serving' };
    }
    const { promptTokens } = request.sequence;
    if (promptTokens >= this.maxModelLen || promptTokens < 1) {
      return { ok: false, reason: 'too_long' };
    }
    const { maxQueuedRequests, frontMs, frontMsPerToken } = this.profile;
    const queued = this.#front.length + this.#scheduler.waiting.length;
    if (maxQueuedRequests !== null && queued >= maxQueuedRequests) {
      this.#stats.queueRejections += 1;
      return { ok: false, reason: 'queue_full' };
    }
    if (this.#open.has(request.id)) throw new Error(`request ${request.id} is open already`);
    const frontCostMs = (frontMs + frontMsPerToken * promptTokens) * this.#slowFactor;
    this.#frontFreeMs = Math.max(this.#frontFreeMs, nowMs) + frontCostMs;
    const maxTokens = Math.min(Math.max(1, request.answerTokens), this.maxModelLen - promptTokens);
    const open = openRequest({
      id: request.id,
      sequence: request.sequence,
      maxTokens,
      finishReason: maxTokens < request.answerTokens ? 'length' : request.finishReason,
      arrivedMs: nowMs,
      queuedMs: this.#frontFreeMs,
    });
    this.#open.set(open.id, open);
    this.#front.push(open);
    return { ok: true };
  }

  /** The client went away. False when the request is not open. */
  abort(id: string): boolean {
    const request = this.#open.get(id);
    if (request === undefined) return false;
    this.#open.delete(id);
    const inFront = this.#front.indexOf(request);
    if (inFront >= 0) this.#front.splice(inFront, 1);
    else this.#scheduler.drop(request);
    if (this.#phase === 'serving') this.#scheduler.gauge();
    return true;
  }

  /** When something happens next by itself; null when nothing will. */
  nextEventMs(): number | null {
    if (this.#phase === 'loading') return this.#readyMs;
    if (this.#phase !== 'serving') return null;
    if (this.#step !== null) return this.#step.endMs;
    if (this.#hasWork()) return this.#cursorMs;
    const first = this.#front[0];
    return first === undefined ? null : Math.max(first.queuedMs, this.#cursorMs);
  }

  /** Everything that happened up to `nowMs`, in order. */
  advance(nowMs: number): EngineEvent[] {
    const events: EngineEvent[] = [];
    if (this.#phase === 'loading' && this.#readyMs <= nowMs) {
      this.#phase = 'serving';
      this.#cursorMs = this.#readyMs;
      events.push({ kind: 'serving', atMs: this.#readyMs });
    }
    while (this.#phase === 'serving') {
      if (this.#step === null && !this.#beginStep(nowMs, events)) break;
      if (this.#step === null || this.#step.endMs > nowMs) break;
      this.#endStep(this.#step, events);
    }
    return events;
  }

  /** The core stops making progress; HTTP does not notice. */
  freeze(nowMs: number): void {
    if (this.#phase !== 'serving') return;
    this.#phase = 'frozen';
    this.#frozenMs = nowMs;
  }

  thaw(nowMs: number): void {
    if (this.#phase !== 'frozen') return;
    this.#phase = 'serving';
    if (this.#step !== null) this.#step.endMs += nowMs - this.#frozenMs;
    this.#cursorMs = Math.max(this.#cursorMs, nowMs);
  }

  /** Everything takes `factor` times as long from the next step on. */
  slow(factor: number): void {
    this.#slowFactor = factor;
  }

  /** The engine core dies, the API server lives on. Every open request fails. */
  killCore(nowMs: number): EngineEvent[] {
    return this.#fail('dead', nowMs);
  }

  /** The whole process is gone. Every open request fails. */
  crash(nowMs: number): EngineEvent[] {
    return this.#fail('down', nowMs);
  }

  /** A new process, which loads for `loadingMs`. Open requests of the old one are gone without an event. */
  restart(nowMs: number, loadingMs: number = this.profile.loadingMs): void {
    this.#incarnation += 1;
    this.#phase = 'loading';
    this.#startedMs = nowMs;
    this.#readyMs = nowMs + loadingMs;
    this.#slowFactor = 1;
    this.#stats = new EngineStats(this.maxModelLen);
    this.#cache = new KvCache(this.profile.kvBlocks - 1);
    this.#scheduler = new Scheduler(this.profile, this.#cache, this.#stats);
    this.#open.clear();
    this.#front.length = 0;
    this.#frontFreeMs = nowMs;
    this.#step = null;
    this.#cursorMs = nowMs;
  }

  /** Prompt tokens that would be found in the cache now. */
  cachedTokens(sequence: TokenSequence): number {
    const { blockTokens } = this.profile;
    const found = cachedPrefix(this.#cache, sequence, sequence.promptTokens, blockTokens);
    return found.length * blockTokens;
  }

  truth(nowMs: number): EngineTruth {
    const left = prefillLeft({
      open: this.#open.values(),
      step: this.#step,
      cache: this.#cache,
      profile: this.profile,
      slowFactor: this.#slowFactor,
      nowMs,
    });
    return {
      phase: this.#phase,
      incarnation: this.#incarnation,
      waitingPrefillTokens: left.tokens,
      waitingPrefillMs: left.ms,
      openRequests: this.#open.size,
      running: this.#scheduler.running.length,
      waiting: this.#scheduler.waiting.length + this.#front.length,
      freeBlocks: this.#cache.freeBlocks,
      heldBlocks: this.#cache.heldBlocks,
      cachedBlocks: this.#cache.cachedBlocks,
    };
  }

  #hasWork(): boolean {
    return this.#scheduler.running.length > 0 || this.#scheduler.waiting.length > 0;
  }

  #beginStep(nowMs: number, events: EngineEvent[]): boolean {
    if (!this.#hasWork()) {
      const first = this.#front[0];
      if (first === undefined || first.queuedMs > nowMs) return false;
      this.#cursorMs = Math.max(this.#cursorMs, first.queuedMs);
    }
    const startMs = this.#cursorMs;
    if (startMs > nowMs) return false;
    for (let next = this.#front[0]; next !== undefined && next.queuedMs <= startMs;) {
      this.#scheduler.waiting.push(next);
      this.#front.shift();
      next = this.#front[0];
    }
    const plan = this.#scheduler.plan(startMs);
    for (const { id } of plan.preempted) events.push({ kind: 'preempted', id, atMs: startMs });
    const jitter = 1 + this.profile.jitterRatio * (2 * this.#random.next() - 1);
    const durationMs = stepMs(this.profile, plan.chunks) * jitter * this.#slowFactor;
    this.#step = { ...plan, startMs, endMs: startMs + durationMs };
    return true;
  }

  #endStep(step: StepUnderWay, events: EngineEvent[]): void {
    const { endMs } = step;
    this.#step = null;
    this.#cursorMs = endMs;
    this.onStep?.(stepFacts(step));
    let outputs = 0;
    let promptTokens = 0;
    for (const request of step.admitted) {
      this.#stats.countAdmission(request.promptTokens, request.cachedTokens ?? 0);
    }
    for (const { request, tokens } of step.chunks) {
      if (!this.#open.has(request.id)) continue;
      request.computed += tokens;
      if (request.computed < knownTokens(request)) continue;
      if (request.firstTokenMs === null)
        promptTokens += request.promptTokens - (request.cachedTokens ?? 0);
      this.#generate(request, endMs, events);
      outputs += 1;
    }
    if (outputs > 0) this.#stats.iterationTokens.observe(promptTokens + outputs);
    this.#scheduler.gauge();
  }

  #generate(request: OpenRequest, atMs: number, events: EngineEvent[]): void {
    const cachedTokens = request.cachedTokens ?? 0;
    const index = request.generated;
    const ends = index + 1 >= request.maxTokens;
    const tokenId =
      ends && request.finishReason === 'stop'
        ? END_TOKEN
        : answerToken(request.sequence.promptKey, index);
    request.generated += 1;
    request.sequence.append(tokenId);
    this.#stats.generationTokens += 1;
    this.#stats.preemptions += request.uncountedPreemptions;
    request.uncountedPreemptions = 0;
    if (request.firstTokenMs === null || request.lastTokenMs === null) {
      request.firstTokenMs = atMs;
      this.#stats.countFirstToken(request.promptTokens, cachedTokens, atMs - request.arrivedMs);
    } else {
      this.#stats.interTokenLatency.observe((atMs - request.lastTokenMs) / 1000);
    }
    request.lastTokenMs = atMs;
    const finish = ends ? request.finishReason : null;
    events.push({ kind: 'token', id: request.id, atMs, tokenId, index, finish, cachedTokens });
    if (ends) this.#finish(request, atMs, events);
  }

  #finish(request: OpenRequest, atMs: number, events: EngineEvent[]): void {
    const cachedTokens = request.cachedTokens ?? 0;
    this.#open.delete(request.id);
    this.#scheduler.drop(request);
    this.#stats.countFinished({
      reason: request.finishReason,
      arrivedMs: request.arrivedMs,
      queuedMs: request.queuedMs,
      scheduledMs: request.scheduledMs ?? atMs,
      firstTokenMs: request.firstTokenMs ?? atMs,
      endedMs: atMs,
      promptTokens: request.promptTokens,
      cachedTokens,
      generatedTokens: request.generated,
      maxTokens: request.maxTokens,
      preemptions: request.preemptions,
    });
    events.push({
      kind: 'finished',
      id: request.id,
      atMs,
      reason: request.finishReason,
      promptTokens: request.promptTokens,
      cachedTokens,
      answerTokens: request.generated,
    });
  }

  #fail(phase: 'dead' | 'down', atMs: number): EngineEvent[] {
    const events = [...this.#open.keys()].map((id): EngineEvent => ({ kind: 'failed', id, atMs }));
    for (const request of this.#open.values()) this.#scheduler.drop(request);
    this.#open.clear();
    this.#front.length = 0;
    this.#step = null;
    this.#phase = phase;
    return events;
  }
}
