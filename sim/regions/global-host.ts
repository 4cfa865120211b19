// A global router in virtual time: the real core, its effects carried out over modelled regions and links.

import type { LeaseId, LinkId, RegionId, RequestId, RouterId } from '../../shared/model/ids.ts';
import type { RegionChildMessage } from '../../shared/protocol/region-messages.ts';
import type { AttemptResult } from '../../router/policy/attempt-result.ts';
import type { AbortReason, RouteRequest } from '../../router/policy/request-events.ts';
import { GlobalCore, type GlobalCoreDeps } from '../../router/global/core.ts';
import type {
  GlobalAttempt,
  GlobalCoreConfig,
  GlobalEffect,
  GlobalEvent,
} from '../../router/global/events.ts';
import type { Planned, Timeline } from '../world/timeline.ts';
import type { RequestWork } from '../world/attempts.ts';
import type { RequestListener } from '../world/router-host.ts';
import type { RegionWire } from './wire.ts';

/** A region as a global router reaches it over the network. */
export interface ReachedRegion {
  readonly id: RegionId;
  readonly rttMs: number;
  /** Takes an attempt that has arrived; returns how to give it up. */
  take(ask: RegionAsk): () => void;
}

export interface RegionAsk {
  readonly attempt: GlobalAttempt;
  readonly asked: AskedRequest;
  readonly from: RouterId;
  firstToken(): void;
  ended(result: AttemptResult, committed: boolean): void;
}

/** A request of the virtual clients. */
export interface AskedRequest {
  readonly route: RouteRequest;
  readonly conversation: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  /** What engines are to compute, where a region has some. */
  readonly work?: RequestWork;
  /** Sees what becomes of it in a region. */
  readonly listener?: RequestListener;
  ended(end: RequestEnd): void;
}

export interface RequestEnd {
  readonly kind: 'answered' | 'refused';
  /** Where; null where it was refused. */
  readonly region: RegionId | null;
  readonly attempts: number;
  readonly code: string | null;
  /** Of the last attempt; null where there was none, or the core refused. */
  readonly result: AttemptResult | null;
  readonly retryAfterMs: number | null;
}

export interface GlobalHostParts {
  readonly deps: GlobalCoreDeps;
  readonly regions: readonly ReachedRegion[];
  /** This machine's clock is so far from the timeline's. */
  readonly clockMs: number;
  /** Sees every attempt. */
  readonly onAttempt: (
    attempt: GlobalAttempt,
    effect: Extract<GlobalEffect, { kind: 'attempt' }>,
  ) => void;
}

interface Running {
  readonly attempt: GlobalAttempt;
  readonly asked: AskedRequest;
  /** Null before it has arrived. */
  giveUp: (() => void) | null;
  late: Planned | null;
}

export class GlobalHost {
  readonly core: GlobalCore;
  readonly #timeline: Timeline;
  readonly #parts: GlobalHostParts;
  readonly #wires = new Map<LinkId, RegionWire>();
  readonly #asked = new Map<RequestId, AskedRequest>();
  readonly #running = new Map<LeaseId, Running>();
  #wake: Planned | null = null;

  constructor(timeline: Timeline, parts: GlobalHostParts) {
    this.#timeline = timeline;
    this.#parts = parts;
    this.core = new GlobalCore(parts.deps);
    for (const { id, rttMs } of parts.regions) {
      this.post({ kind: 'rtt', region: id, rttMs });
      this.post({ kind: 'warmth', region: id, warm: true });
    }
  }

  /** By its own clock. */
  get nowMs(): number {
    return this.#timeline.nowMs + this.#parts.clockMs;
  }

  ask(asked: AskedRequest): void {
    this.#asked.set(asked.route.id, asked);
    this.post({ kind: 'arrived', request: asked.route });
  }

  joined(wire: RegionWire): void {
    this.#wires.set(wire.id, wire);
  }

  heard(link: LinkId, region: RegionId, message: RegionChildMessage): void {
    if (message.kind === 'hello') this.post({ kind: 'regionUp', link, region, hello: message });
    else this.post({ kind: 'regionMessage', link, message });
  }

  left(link: LinkId): void {
    this.#wires.delete(link);
    this.post({ kind: 'regionDown', link });
  }

  clientGone(request: RequestId): void {
    this.post({ kind: 'clientGone', request });
  }

  configure(config: GlobalCoreConfig): void {
    this.post({ kind: 'configured', config });
  }

  post(event: GlobalEvent): void {
    for (const effect of this.core.handle(event, this.nowMs)) this.#carryOut(effect);
    this.#plan();
  }

  #carryOut(effect: GlobalEffect): void {
    switch (effect.kind) {
      case 'attempt':
        this.#parts.onAttempt(effect.attempt, effect);
        this.#send(effect.attempt);
        break;
      case 'refuse':
        this.#end(effect.request, {
          ...{ kind: 'refused', region: null, attempts: 0, result: null },
          ...{ code: effect.code, retryAfterMs: effect.retryAfterMs },
        });
        break;
      case 'abort':
        this.#abort(effect.lease, effect.reason);
        break;
      case 'extend':
        this.#watch(effect.lease, effect.timeoutMs);
        break;
      case 'send':
        this.#wires.get(effect.link)?.down(effect.message);
        break;
      case 'close':
        this.#wires.get(effect.link)?.cut();
        break;
      default:
    }
  }

  #send(attempt: GlobalAttempt): void {
    const asked = this.#asked.get(attempt.request);
    const region = this.#parts.regions.find(({ id }) => id === attempt.region);
    if (asked === undefined || region === undefined) throw new Error(`nowhere: ${attempt.region}`);
    const { lease } = attempt;
    const running: Running = { attempt, asked, giveUp: null, late: null };
    this.#running.set(lease, running);
    this.#watch(lease, attempt.firstTokenTimeoutMs);
    const travel = (arrive: () => void): void =>
      void this.#timeline.after(region.rttMs / 2, () => {
        if (this.#running.has(lease)) arrive();
      });
    travel(() => {
      running.giveUp = region.take({
        ...{ attempt, asked, from: this.#parts.deps.routerId },
        firstToken: () => travel(() => this.post({ kind: 'firstToken', lease })),
        ended: (result, committed) => travel(() => this.#over(lease, result, committed)),
      });
    });
  }

  #abort(lease: LeaseId, reason: AbortReason): void {
    const running = this.#running.get(lease);
    if (running === undefined) return;
    running.giveUp?.();
    const result: AttemptResult =
      reason === 'client_gone'
        ? { kind: 'clientGone' }
        : { kind: 'serverFault', cause: reason, detail: '' };
    this.#timeline.after(0, () => this.#over(lease, result, false));
  }

  #over(lease: LeaseId, result: AttemptResult, committed: boolean): void {
    const running = this.#running.get(lease);
    if (running === undefined) return;
    this.#running.delete(lease);
    this.#timeline.cancel(running.late);
    const { request, region, number } = running.attempt;
    const end = { region, attempts: number, result, retryAfterMs: null };
    if (committed) this.#end(request, { ...end, kind: 'answered', code: null });
    else if (result.kind === 'clientGone' || result.kind === 'clientError') {
      this.#end(request, { ...end, kind: 'refused', code: result.kind });
    }
    this.post({ kind: 'attemptEnded', lease, result, committed });
  }

  #watch(lease: LeaseId, timeoutMs: number): void {
    const running = this.#running.get(lease);
    if (running === undefined) return;
    this.#timeline.cancel(running.late);
    running.late = this.#timeline.after(timeoutMs, () => {
      if (this.#running.has(lease)) this.post({ kind: 'firstTokenLate', lease });
    });
  }

  #end(request: RequestId, end: RequestEnd): void {
    const asked = this.#asked.get(request);
    if (asked === undefined) throw new Error(`${request}: answered twice, or never asked`);
    this.#asked.delete(request);
    asked.ended(end);
  }

  #plan(): void {
    const wakeMs = this.core.nextWakeMs();
    if (wakeMs === null || (this.#wake !== null && this.#wake.task !== null)) return;
    this.#wake = this.#timeline.at(wakeMs - this.#parts.clockMs, () => {
      this.#wake = null;
      this.post({ kind: 'tick' });
    });
  }
}
