// A global router in virtual time: the real core, its effects carried out over modelled regions and links.

import type { LeaseId, LinkId, RegionId, RequestId } from '../../shared/model/ids.ts';
import type { RegionChildMessage } from '../../shared/protocol/region-messages.ts';
import type { AttemptResult } from '../../router/policy/attempt-result.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import { GlobalCore, type GlobalCoreDeps } from '../../router/global/core.ts';
import type {
  GlobalAttempt,
  GlobalCoreConfig,
  GlobalEffect,
  GlobalEvent,
} from '../../router/global/events.ts';
import type { Planned, Timeline } from '../world/timeline.ts';
import type { RegionModel, RegionWork } from './region-model.ts';
import type { RegionRouter } from './region-router.ts';
import type { RegionWire } from './wire.ts';

export interface ReachedRegion {
  readonly id: RegionId;
  readonly model: RegionModel;
  readonly routers: readonly RegionRouter[];
  readonly rttMs: number;
}

/** A request of the virtual clients. */
export interface AskedRequest {
  readonly route: RouteRequest;
  readonly conversation: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  ended(end: RequestEnd): void;
}

export interface RequestEnd {
  readonly kind: 'answered' | 'refused';
  /** Where; null where it was refused. */
  readonly region: RegionId | null;
  readonly attempts: number;
  readonly code: string | null;
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
  readonly model: RegionModel;
  readonly work: RegionWork;
  late: Planned | null;
}

export class GlobalHost {
  readonly core: GlobalCore;
  readonly #timeline: Timeline;
  readonly #parts: GlobalHostParts;
  readonly #wires = new Map<LinkId, RegionWire>();
  readonly #asked = new Map<RequestId, AskedRequest>();
  readonly #running = new Map<LeaseId, Running>();
  #turn = 0;
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
          kind: 'refused',
          region: null,
          attempts: 0,
          code: effect.code,
        });
        break;
      case 'abort':
        this.#abort(effect.lease);
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
    const { model, routers, rttMs } = region;
    this.#turn += 1;
    const router = this.#turn % routers.length;
    const from = this.#parts.deps.routerId;
    const back = (told: () => void): void => void this.#timeline.after(rttMs / 2, told);
    const cameMs = this.#timeline.nowMs;
    const work: RegionWork = {
      ...{ conversation: asked.conversation, promptTokens: asked.promptTokens },
      answerTokens: asked.answerTokens,
      firstToken: (cachedTokens) => {
        if (attempt.away && attempt.conversation !== null) {
          const tokens = asked.promptTokens + asked.answerTokens;
          const sinceMs = cameMs - attempt.awayForMs;
          routers[router]?.servedAway(attempt.conversation, tokens, sinceMs);
        }
        back(() => this.#answered(attempt, cachedTokens));
      },
      failed: () => back(() => this.#over(attempt.lease, FAILED, false)),
    };
    this.#running.set(attempt.lease, { attempt, asked, model, work, late: null });
    this.#watch(attempt.lease, attempt.firstTokenTimeoutMs);
    this.#timeline.after(rttMs / 2, () => {
      if (!this.#running.has(attempt.lease)) return;
      routers[router]?.arrived(from, attempt.seq);
      model.take(router, work);
    });
  }

  /** The rest of the answer is of no weight here: it ends with its first token. */
  #answered(attempt: GlobalAttempt, cachedTokens: number): void {
    const running = this.#running.get(attempt.lease);
    if (running === undefined) return;
    this.post({ kind: 'firstToken', lease: attempt.lease });
    const { promptTokens, answerTokens: completionTokens } = running.asked;
    const usage = { promptTokens, cachedTokens, completionTokens };
    this.#over(attempt.lease, { kind: 'complete', usage }, true);
  }

  #abort(lease: LeaseId): void {
    const running = this.#running.get(lease);
    if (running === undefined) return;
    running.model.abandon(running.work);
    this.#timeline.after(0, () => this.#over(lease, GIVEN_UP, false));
  }

  #over(lease: LeaseId, result: AttemptResult, committed: boolean): void {
    const running = this.#running.get(lease);
    if (running === undefined) return;
    this.#running.delete(lease);
    this.#timeline.cancel(running.late);
    const { request, region, number } = running.attempt;
    if (committed) this.#end(request, { kind: 'answered', region, attempts: number, code: null });
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

const FAILED: AttemptResult = { kind: 'connectFailed', detail: 'the region is dead' };
const GIVEN_UP: AttemptResult = { kind: 'serverFault', cause: 'first_token_timeout', detail: '' };
