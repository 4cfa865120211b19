// The engine core: one loop of steps over scheduler and KV cache, and what it does between two of them.
//
// A step is planned when it starts and takes effect when it ends: tokens, counters, gauges, events. Whatever reaches the
// core meanwhile waits for that end: new requests, aborts (before the step's tokens are given out), pause, sleep,
// shutdown (after). Steps are taken one after the other, as vLLM does without asynchronous scheduling.
//
// Invariants: a request ends once; nobody hears of a request again that was aborted; no open request is lost.

import type { Random } from '../../shared/lib/random.ts';
import type { CoreCommand, PauseCommand } from './commands.ts';
import type { EngineEvent } from './events.ts';
import { KvCache } from './kv-cache.ts';
import { KvEventLog } from './kv-events.ts';
import { OpenRequests } from './open-requests.ts';
import type { EngineProfile } from './profiles.ts';
import { forkRequest, isDecoding, knownTokens, type OpenRequest } from './request.ts';
import { Scheduler, type StepPlan } from './scheduler.ts';
import { EngineStats } from './stats.ts';
import { stepFacts, type StepFacts } from './step-facts.ts';
import { ColdKernels, stepMs } from './step-time.ts';

/** Times in ms of the engine's clock. */
interface StepUnderWay extends StepPlan {
  readonly startMs: number;
  endMs: number;
}

interface CoreParts {
  readonly profile: EngineProfile;
  readonly random: Random;
  readonly stats: EngineStats;
  readonly kvEvents: boolean;
}

/** Jitter of a copy: none. */
const MEAN: Random = { next: () => 0.5 };

export class EngineCore {
  readonly stats: EngineStats;
  readonly cache: KvCache;
  readonly scheduler: Scheduler;
  /** Called at the end of each step, when its counters have moved. */
  onStep: ((facts: StepFacts) => void) | null = null;
  slowFactor = 1;
  /** True once a shutdown has left nothing to do. */
  stopped = false;
  readonly #profile: EngineProfile;
  readonly #random: Random;
  readonly #log: KvEventLog | null;
  readonly #kernels: ColdKernels;
  /** A copy that looks ahead: it neither counts nor tells of tokens. */
  readonly #silent: boolean;
  /** Every request inside that somebody still waits for, the front end's included. */
  readonly open: OpenRequests;
  /** In the front end, in order of arrival. */
  readonly #intake: OpenRequest[] = [];
  /** Aborted in the middle of a step: freed at its end. */
  readonly #aborted: OpenRequest[] = [];
  /** Each with the time up to which what the front end had handed on came before it. */
  readonly #commands: { readonly command: CoreCommand; readonly afterMs: number }[] = [];
  #pausing: PauseCommand | null = null;
  #stopping = false;
  #step: StepUnderWay | null = null;
  /** End of the last step: the earliest start of the next. */
  #cursorMs: number;

  constructor(parts: CoreParts, startMs: number, from?: EngineCore) {
    const { profile, random, stats, kvEvents } = parts;
    this.#profile = profile;
    this.#random = random;
    this.stats = stats;
    this.open = new OpenRequests(stats);
    this.#cursorMs = startMs;
    this.#log = kvEvents ? new KvEventLog() : null;
    this.#silent = from !== undefined;
    if (from === undefined) {
      this.#kernels = new ColdKernels(profile);
      this.cache = new KvCache(profile.kvBlocks - 1, this.#log);
      this.scheduler = new Scheduler(profile, this.cache, this.#log);
      return;
    }
    this.#kernels = from.#kernels.fork();
    this.cache = from.cache.fork();
    const copies = new Map<OpenRequest, OpenRequest>();
    this.scheduler = from.scheduler.fork(this.cache, copies);
    this.slowFactor = from.slowFactor;
    this.#copyRequests(from, copies);
  }

  /** Requests that wait for a place in the batch, in the front end or here. */
  get waiting(): number {
    return this.scheduler.waiting.length + this.#intake.length;
  }

  get kernelsCold(): boolean {
    return this.#kernels.cold;
  }

  /** True while a request inside has prefill before it, a first or another one. */
  get hasPrefill(): boolean {
    if (this.waiting > 0) return true;
    return this.scheduler.running.some((request) => !isDecoding(request) && this.open.has(request));
  }

  /** A request on its way from the front end, where it is until `queuedMs`. */
  add(request: OpenRequest): void {
    this.open.add(request);
    this.#intake.push(request);
  }

  /** False when nobody waits for that request. `halted`: the core handles nothing now. */
  abort(id: string, halted: boolean): boolean {
    const request = this.open.get(id);
    if (request === undefined) return false;
    this.open.leave(request);
    const inFront = this.#intake.indexOf(request);
    if (inFront >= 0) this.#intake.splice(inFront, 1);
    else if (this.#step !== null || halted) this.#aborted.push(request);
    else {
      this.scheduler.drop(request);
      this.#gauge();
    }
    return true;
  }

  /**
   * Handled between two steps, at once where none is under way. Requests wait in the same queue, so those before
   * a pause are taken in first; a shutdown is a signal, which overtakes them in the middle of a step.
   */
  command(command: CoreCommand, nowMs: number): void {
    const overtakes = this.#step !== null && command.kind === 'shutdown';
    if (this.#step === null) this.#cursorMs = Math.max(this.#cursorMs, nowMs);
    this.#commands.push({ command, afterMs: overtakes ? -Infinity : nowMs });
  }

  /** Forgets what nobody holds; false where somebody holds anything. */
  resetPrefixCache(): boolean {
    if (!this.cache.clear()) return false;
    this.#log?.cleared();
    return true;
  }

  /** It stood still from `sinceMs` to `nowMs`. */
  delay(sinceMs: number, nowMs: number): void {
    if (this.#step !== null) this.#step.endMs += nowMs - sinceMs;
    else this.#cursorMs = Math.max(this.#cursorMs, nowMs);
  }

  nextEventMs(): number | null {
    if (this.stopped) return null;
    if (this.#step !== null) return this.#step.endMs;
    const pending = this.#commands.length + this.#aborted.length > 0;
    if (pending || this.scheduler.hasWork) return this.#cursorMs;
    const first = this.#intake[0];
    return first === undefined ? null : Math.max(first.queuedMs, this.#cursorMs);
  }

  /** Everything that happens up to `nowMs`, in order. */
  advance(nowMs: number, events: EngineEvent[]): void {
    while (!this.stopped) {
      if (this.#step === null) {
        this.#betweenSteps(events);
        if (this.stopped || !this.#begin(nowMs, events)) return;
      }
      if (this.#step === null || this.#step.endMs > nowMs) return;
      this.#end(this.#step, events);
    }
  }

  /** It ends here, whatever was under way. Counters and gauges stay as they are. */
  failAll(atMs: number): EngineEvent[] {
    for (const request of [...this.scheduler.running, ...this.scheduler.waiting]) {
      this.scheduler.drop(request);
    }
    this.#intake.length = 0;
    this.#step = null;
    this.stopped = true;
    return this.open.failAll(atMs);
  }

  /** A copy that goes on from `nowMs` without jitter, events, pause or new requests. */
  fork(nowMs: number): EngineCore {
    const parts = { profile: this.#profile, random: MEAN, kvEvents: false };
    const cursorMs = Math.max(this.#cursorMs, nowMs);
    return new EngineCore({ ...parts, stats: new EngineStats(1) }, cursorMs, this);
  }

  #copyRequests(from: EngineCore, copies: Map<OpenRequest, OpenRequest>): void {
    for (const request of from.#intake) {
      const copy = forkRequest(request);
      copies.set(request, copy);
      this.#intake.push(copy);
    }
    const copyOf = (request: OpenRequest): OpenRequest => copies.get(request) ?? request;
    this.open.copy(from.open, copyOf);
    this.#aborted.push(...from.#aborted.map(copyOf));
    if (from.#step === null) return;
    const { chunks, admitted, preempted, startMs, endMs } = from.#step;
    this.#step = {
      chunks: chunks.map(({ request, tokens }) => ({ request: copyOf(request), tokens })),
      admitted: admitted.map(copyOf),
      preempted,
      startMs,
      endMs,
    };
  }

  #begin(nowMs: number, events: EngineEvent[]): boolean {
    while (!this.scheduler.hasWork) {
      const first = this.#intake[0];
      if (first === undefined || first.queuedMs > nowMs) return false;
      this.#cursorMs = Math.max(this.#cursorMs, first.queuedMs);
      this.#takeIn(this.#cursorMs, events);
    }
    const startMs = this.#cursorMs;
    if (startMs > nowMs) return false;
    this.#takeIn(startMs, events);
    const plan = this.scheduler.plan(startMs);
    for (const { id } of plan.preempted) events.push({ kind: 'preempted', id, atMs: startMs });
    const jitter = 1 + this.#profile.jitterRatio * (2 * this.#random.next() - 1);
    const warmMs = stepMs(this.#profile, plan.chunks) * jitter;
    const durationMs = (warmMs + this.#kernels.run(plan.chunks)) * this.slowFactor;
    this.#step = { ...plan, startMs, endMs: startMs + durationMs };
    return true;
  }

  /** Takes over what the front end is done with; a core that stops takes no more. */
  #takeIn(untilMs: number, events: EngineEvent[]): void {
    for (let next = this.#intake[0]; next !== undefined && next.queuedMs <= untilMs;) {
      this.#intake.shift();
      next.queuedMs = this.#cursorMs;
      if (this.#stopping) this.open.endEarly([next], this.#cursorMs, events);
      else this.scheduler.enqueue(next);
      next = this.#intake[0];
    }
  }

  #end(step: StepUnderWay, events: EngineEvent[]): void {
    this.#step = null;
    this.#cursorMs = step.endMs;
    const facts = this.onStep === null ? null : stepFacts(step);
    this.#dropAborted();
    for (const request of step.admitted) {
      this.stats.countAdmission(request.promptTokens, request.cachedTokens ?? 0);
    }
    this.#publish(events);
    let outputs = 0;
    let promptTokens = 0;
    for (const { request, tokens } of step.chunks) {
      if (!this.open.has(request)) continue;
      request.computed += tokens;
      if (request.computed < knownTokens(request)) continue;
      if (request.firstTokenMs === null) {
        promptTokens += request.promptTokens - (request.cachedTokens ?? 0);
      }
      const ended = this.#silent
        ? this.open.generateSilently(request)
        : this.open.generate(request, step.endMs, events);
      if (ended) this.scheduler.drop(request);
      outputs += 1;
    }
    if (outputs > 0) this.stats.iterationTokens.observe(promptTokens + outputs);
    this.#gauge();
    if (facts !== null) this.onStep?.(facts);
  }

  #dropAborted(): void {
    for (const request of this.#aborted) this.scheduler.drop(request);
    this.#aborted.length = 0;
  }

  #publish(events: EngineEvent[]): void {
    const batch = this.#log?.take() ?? [];
    if (batch.length > 0) events.push({ kind: 'blocks', atMs: this.#cursorMs, events: batch });
  }

  #betweenSteps(events: EngineEvent[]): void {
    if (this.#aborted.length > 0) {
      this.#dropAborted();
      this.#gauge();
    }
    for (let next = this.#commands.shift(); next !== undefined; next = this.#commands.shift()) {
      const { command, afterMs } = next;
      this.#takeIn(afterMs, events);
      this.#obey(command, events);
    }
    if (this.#pausing !== null && !this.scheduler.hasWork) {
      this.#completePause(this.#pausing, events);
    }
    if (this.#stopping && !this.scheduler.hasWork) this.#stop(events);
  }

  #obey(command: CoreCommand, events: EngineEvent[]): void {
    if (command.kind === 'resume') {
      if (this.#pausing !== null) events.push({ kind: 'paused', atMs: this.#cursorMs });
      this.#pausing = null;
      this.scheduler.pause = 'none';
      this.stats.sleepLevel = null;
      return;
    }
    if (command.mode === 'abort') this.#endAll(events);
    if (command.kind === 'shutdown') this.#stopping = true;
    else {
      this.scheduler.pause = command.mode === 'keep' ? 'all' : 'new';
      this.#pausing = command;
    }
  }

  #completePause({ clearCache, sleepLevel }: PauseCommand, events: EngineEvent[]): void {
    this.#pausing = null;
    if (clearCache) {
      this.scheduler.preemptAll();
      this.resetPrefixCache();
    }
    this.stats.sleepLevel = sleepLevel;
    events.push({ kind: 'paused', atMs: this.#cursorMs });
  }

  #stop(events: EngineEvent[]): void {
    events.push(...this.failAll(this.#cursorMs), { kind: 'stopped', atMs: this.#cursorMs });
  }

  #endAll(events: EngineEvent[]): void {
    const inside = [...this.scheduler.running, ...this.scheduler.waiting];
    for (const request of inside) this.scheduler.drop(request);
    this.open.endEarly(inside, this.#cursorMs, events);
    this.#gauge();
  }

  /** Gauges as they are now. */
  #gauge(): void {
    const { stats, scheduler } = this;
    stats.running = scheduler.running.length;
    stats.waiting = scheduler.waiting.length;
    stats.waitingDeferred = scheduler.deferred;
    stats.kvUsageRatio = this.cache.usageRatio;
    stats.adapters = stats.adaptersInUse();
  }
}
