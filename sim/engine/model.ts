// A vLLM engine without a GPU: front end, core, counters, and the ways it fails.
//
// Deterministic and without I/O. The owner calls `advance` at `nextEventMs()` or later and gets what
// happened, each event with its exact time; calls that change something are made after an `advance` to the
// same time. One model serves the virtual-time world and the HTTP server.
//
// Life: loading → serving (→ frozen → serving) → draining, dead core or down → restart → loading. A restart is a new
// incarnation: nothing of the old one is left, and nothing tells of its end but that it is gone. An engine that is
// paused or asleep still serves: it takes requests, which wait.

import type { Random } from '../../shared/lib/random.ts';
import type { CoreCommand, PauseMode, SleepLevel } from './commands.ts';
import { EngineCore } from './core.ts';
import type { EngineEvent } from './events.ts';
import { FrontEnd } from './front-end.ts';
import type { EngineProfile } from './profiles.ts';
import type { EngineRequest } from './request.ts';
import { cachedPrefix } from './scheduler.ts';
import type { TokenSequence } from './sequence.ts';
import { EngineStats } from './stats.ts';
import type { StepFacts } from './step-facts.ts';
import { prefillLeft } from './truth.ts';

export type SubmitResult =
  | { readonly ok: true }
  | {
      readonly ok: false;
      readonly reason: 'not_serving' | 'core_dead' | 'too_long' | 'queue_full';
    };

export type EnginePhase = 'loading' | 'serving' | 'frozen' | 'draining' | 'dead' | 'down';

export interface EngineStart {
  readonly nowMs: number;
  /** The profile's unless given. */
  readonly loadingMs?: number;
  /** Whether `blocks` events are told; costs nothing where not. */
  readonly kvEvents?: boolean;
}

/** What no engine tells and a test may know. */
export interface EngineTruth {
  readonly phase: EnginePhase;
  readonly incarnation: number;
  /** Null while awake. */
  readonly sleepLevel: SleepLevel | null;
  /** True until the first prefill steps of the incarnation, which take longer, are through. */
  readonly kernelsCold: boolean;
  /** Uncached tokens that the requests inside still need computed, preempted ones again (`truth.ts`). */
  readonly waitingPrefillTokens: number;
  /** ms of the steps that compute them if nothing else came and the engine went on now. */
  readonly waitingPrefillMs: number;
  readonly openRequests: number;
  /** In the batch, those included that were aborted during the step under way. */
  readonly running: number;
  /** In the core's queue or the front end. */
  readonly waiting: number;
  readonly freeBlocks: number;
  readonly heldBlocks: number;
  readonly cachedBlocks: number;
}

export class EngineModel {
  readonly profile: EngineProfile;
  readonly #random: Random;
  readonly #kvEvents: boolean;
  #phase: Exclude<EnginePhase, 'frozen'> = 'down';
  #incarnation = 0;
  #startedMs = 0;
  #readyMs = 0;
  #core: EngineCore;
  #front: FrontEnd;
  #onStep: ((facts: StepFacts) => void) | null = null;
  #frozenMs: number | null = null;
  #shutdownMs = Infinity;

  /** Starts loading at `start.nowMs`. */
  constructor(profile: EngineProfile, random: Random, start: EngineStart = { nowMs: 0 }) {
    this.profile = profile;
    this.#random = random;
    this.#kvEvents = start.kvEvents ?? false;
    this.#front = new FrontEnd(profile, start.nowMs);
    this.#core = this.#newCore(start.nowMs);
    this.restart(start.nowMs, start.loadingMs ?? profile.loadingMs);
  }

  /** Tokens of prompt and answer together: never more than the KV cache holds. */
  get maxModelLen(): number {
    return this.#front.maxModelLen;
  }

  /** Called at the end of each step, when its counters have moved; costs nothing while nobody asks. */
  set onStep(listener: ((facts: StepFacts) => void) | null) {
    this.#onStep = listener;
    this.#core.onStep = listener;
  }

  get phase(): EnginePhase {
    return this.#frozenMs === null ? this.#phase : 'frozen';
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
    return this.#core.stats;
  }

  /** In the batch, those included that were aborted during the step under way. */
  get running(): number {
    return this.#core.scheduler.running.length;
  }

  /** In the core's queue or the front end. */
  get waiting(): number {
    return this.#core.waiting;
  }

  get openRequests(): number {
    return this.#core.open.size;
  }

  /** Nothing new is scheduled: paused, asleep, or on the way to it since the last step. */
  get paused(): boolean {
    return this.#core.scheduler.pause !== 'none';
  }

  /** Hands a request to the front end. One that comes while it drains is ended with reason `abort`, without a token. */
  submit(request: EngineRequest, nowMs: number): SubmitResult {
    if (this.#phase === 'dead') return { ok: false, reason: 'core_dead' };
    if (!this.#answers()) return { ok: false, reason: 'not_serving' };
    if (this.#core.open.get(request.id) !== undefined) {
      throw new Error(`request ${request.id} is open already`);
    }
    const reason = this.#front.refuses(request, this.#core);
    if (reason !== null) return { ok: false, reason };
    this.#core.add(this.#front.take(request, nowMs, this.#core.slowFactor));
    return { ok: true };
  }

  /**
   * The client went away: nothing more is told of the request, and no counter tells of its end. What it holds is
   * free at the end of the step under way. False when the request is not open.
   */
  abort(id: string): boolean {
    return this.#core.abort(id, this.#frozenMs !== null);
  }

  /** When something happens next by itself; null when nothing will. */
  nextEventMs(): number | null {
    if (this.#phase === 'loading') return this.#readyMs;
    if (!this.#steps()) return this.#shutdownMs === Infinity ? null : this.#shutdownMs;
    const nextMs = Math.min(this.#core.nextEventMs() ?? Infinity, this.#shutdownMs);
    return nextMs === Infinity ? null : nextMs;
  }

  /** Everything that happened up to `nowMs`, in order. */
  advance(nowMs: number): EngineEvent[] {
    const events: EngineEvent[] = [];
    if (this.#phase === 'loading' && this.#readyMs <= nowMs) {
      this.#phase = 'serving';
      events.push({ kind: 'serving', atMs: this.#readyMs });
    }
    if (this.#steps()) this.#core.advance(Math.min(nowMs, this.#shutdownMs), events);
    if (this.#core.stopped && this.#phase === 'draining') this.#phase = 'down';
    if (this.#shutdownMs <= nowMs && this.#phase === 'draining') {
      const atMs = this.#shutdownMs;
      events.push(...this.#fail('down', atMs), { kind: 'stopped', atMs });
    }
    if (this.#phase === 'down') this.#shutdownMs = Infinity;
    return events;
  }

  /** The core stops making progress; HTTP does not notice. */
  freeze(nowMs: number): void {
    if (this.#steps()) this.#frozenMs = nowMs;
  }

  thaw(nowMs: number): void {
    if (this.#frozenMs === null) return;
    this.#core.delay(this.#frozenMs, nowMs);
    this.#frozenMs = null;
  }

  /** Everything takes `factor` times as long from the next step on. */
  slow(factor: number): void {
    this.#core.slowFactor = factor;
  }

  /** Stops scheduling after the step under way; a `paused` event tells when all has come to rest. */
  pause(how: { readonly mode: PauseMode; readonly clearCache: boolean }, nowMs: number): void {
    this.#command({ kind: 'pause', ...how, sleepLevel: null }, nowMs);
  }

  /** Level 1 gives up the KV cache, 2 the weights as well; 0 is a pause by another name. */
  sleep(how: { readonly level: SleepLevel; readonly mode: PauseMode }, nowMs: number): void {
    const { level, mode } = how;
    this.#command({ kind: 'pause', mode, clearCache: level > 0, sleepLevel: level }, nowMs);
  }

  /** Ends a pause and a sleep: what came meanwhile is served. */
  resume(nowMs: number): void {
    this.#command({ kind: 'resume' }, nowMs);
  }

  /** Forgets every prefix; false, and nothing happens, while any request holds KV. */
  resetPrefixCache(): boolean {
    return this.#steps() && this.#core.resetPrefixCache();
  }

  /**
   * What SIGTERM does to the core: `abort` ends every request with reason `abort`, `drain` lets those inside finish,
   * `timeoutMs` at most; what is left then fails. A `stopped` event tells that the process is gone.
   */
  beginShutdown(
    how: { readonly mode: 'abort' | 'drain'; readonly timeoutMs?: number },
    nowMs: number,
  ): void {
    if (this.#phase !== 'serving') return;
    this.#phase = 'draining';
    this.#shutdownMs = nowMs + (how.timeoutMs ?? Infinity);
    this.#core.command({ kind: 'shutdown', mode: how.mode }, nowMs);
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
    this.#core = this.#newCore(this.#readyMs);
    this.#front = new FrontEnd(this.profile, this.#readyMs);
    this.#frozenMs = null;
    this.#shutdownMs = Infinity;
  }

  /** Prompt tokens that would be found in the cache now. */
  cachedTokens(sequence: TokenSequence): number {
    const { blockTokens } = this.profile;
    const tokens = { known: sequence.promptTokens, block: blockTokens };
    return cachedPrefix(this.#core.cache, sequence, tokens).length * blockTokens;
  }

  /** Keys of all blocks that can be found, with how many blocks carry each. */
  cachedKeys(): Map<number, number> {
    return this.#core.cache.copies();
  }

  truth(nowMs: number): EngineTruth {
    const core = this.#core;
    const left = prefillLeft(core, this.#frozenMs ?? nowMs);
    return {
      phase: this.phase,
      incarnation: this.#incarnation,
      sleepLevel: core.stats.sleepLevel,
      kernelsCold: core.kernelsCold,
      waitingPrefillTokens: left.tokens,
      waitingPrefillMs: left.ms,
      openRequests: core.open.size,
      running: this.running,
      waiting: this.waiting,
      freeBlocks: core.cache.freeBlocks,
      heldBlocks: core.cache.heldBlocks,
      cachedBlocks: core.cache.cachedBlocks,
    };
  }

  #newCore(startMs: number): EngineCore {
    const parts = { profile: this.profile, random: this.#random, kvEvents: this.#kvEvents };
    const core = new EngineCore({ ...parts, stats: new EngineStats(this.maxModelLen) }, startMs);
    core.onStep = this.#onStep;
    return core;
  }

  /** The API server is there. */
  #answers(): boolean {
    return this.#phase === 'serving' || this.#phase === 'draining';
  }

  #steps(): boolean {
    return this.#answers() && this.#frozenMs === null;
  }

  #command(command: CoreCommand, nowMs: number): void {
    if (this.#phase === 'serving') this.#core.command(command, nowMs);
  }

  #fail(phase: 'dead' | 'down', atMs: number): EngineEvent[] {
    this.#phase = phase;
    this.#frozenMs = null;
    this.#shutdownMs = Infinity;
    return this.#core.failAll(atMs);
  }
}
