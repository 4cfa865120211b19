// The global router's state machine: `handle(event, nowMs) → effects`. It owns what is known of regions, conversations
// and open requests, calls policy, and never awaits.
//
// Invariants after every event: every request that arrived and has not ended is queued or has one attempt; no attempt is
// under way in a region that its tenant's list does not name, but those of which something was already seen; nothing is
// answered twice. What comes from outside never makes it throw.

import type { GlobalDecision } from '../../shared/model/global-decision.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import { firstTokenLate, noteServed } from './core-attempts.ts';
import { bare, decide } from './core-decide.ts';
import { attemptEnded } from './core-outcomes.ts';
import {
  awayTold,
  granted,
  greet,
  probed,
  regionDown,
  regionUp,
  reported,
  sweepSends,
} from './core-regions.ts';
import { arrive, enter, forget, lookAtQueue, withdraw } from './core-requests.ts';
import { spillMoves, STEP_MS, stepGates, tellDemand } from './core-spill.ts';
import { lookForSilence } from './core-call-back.ts';
import { forgiveOwnStall, heard } from './core-silence.ts';
import {
  GlobalState,
  newRegion,
  type GlobalCoreDeps,
  type LeaseState,
  type RegionState,
} from './core-state.ts';
import { statusOf, type GlobalStatus } from './core-status.ts';
import type { GlobalCoreConfig, GlobalEffect, GlobalEvent } from './events.ts';

export type { GlobalCoreDeps } from './core-state.ts';
export type { GlobalStatus, RegionPoolStatus, RegionStatus } from './core-status.ts';

/** Between two looks at controllers while they move, ms. */
const WAKE_MS = 250;

export class GlobalCore {
  readonly #state: GlobalState;

  constructor(deps: GlobalCoreDeps) {
    this.#state = new GlobalState(deps);
  }

  handle(event: GlobalEvent, nowMs: number): GlobalEffect[] {
    const state = this.#state;
    forgiveOwnStall(state, nowMs);
    state.nowMs = Math.max(nowMs, state.nowMs);
    if (state.nowMs - state.sweptMs >= STEP_MS) this.#sweep();
    this.#apply(event);
    lookAtQueue(state, event.kind === 'configured');
    this.#announce();
    const { effects } = state;
    state.effects = [];
    return effects;
  }

  /** When a `tick` is due next; null when only events change anything. */
  nextWakeMs(): number | null {
    const state = this.#state;
    const waits = state.queue.size > 0 || spillMoves(state);
    if (waits) return state.sweptMs + WAKE_MS;
    // A send that no report includes has its attempt under way; what is under way may be held by a region that is silent.
    return state.leases.size > 0 ? state.sweptMs + 2 * WAKE_MS : null;
  }

  /** What would be decided for this request now. Changes nothing and draws nothing. */
  explain(request: RouteRequest, nowMs: number): GlobalDecision {
    const state = this.#state;
    state.nowMs = Math.max(nowMs, state.nowMs);
    if (state.draining) return bare('refuse', 'draining');
    return decide(state, enter(state, request), { random: null }).decision;
  }

  status(nowMs: number): GlobalStatus {
    this.#state.nowMs = Math.max(nowMs, this.#state.nowMs);
    return statusOf(this.#state);
  }

  /** Attempts under way. */
  leaseCount(): number {
    return this.#state.leases.size;
  }

  #sweep(): void {
    const state = this.#state;
    state.sweptMs = state.nowMs;
    sweepSends(state);
    lookForSilence(state);
    stepGates(state);
    tellDemand(state);
  }

  #apply(event: GlobalEvent): void {
    const state = this.#state;
    switch (event.kind) {
      case 'tick':
        break;
      case 'arrived':
        arrive(state, event.request);
        break;
      case 'clientGone':
        this.#clientGone(event.request);
        break;
      case 'firstToken':
        this.#firstToken(state.leases.get(event.lease));
        break;
      case 'firstTokenLate': {
        const lease = state.leases.get(event.lease);
        if (lease !== undefined) firstTokenLate(state, lease);
        break;
      }
      case 'attemptEnded': {
        const lease = state.leases.get(event.lease);
        if (lease !== undefined) attemptEnded(state, lease, event);
        break;
      }
      case 'drain':
        state.draining = true;
        break;
      case 'configured':
        this.#configure(event.config);
        break;
      default:
        this.#ofRegion(event);
    }
  }

  #ofRegion(
    event: Extract<
      GlobalEvent,
      { kind: 'regionUp' | 'regionDown' | 'regionMessage' | 'rtt' | 'warmth' | 'probed' }
    >,
  ): void {
    const state = this.#state;
    if (event.kind === 'regionUp') regionUp(state, event);
    else if (event.kind === 'regionDown') regionDown(state, event.link, event.reason ?? null);
    else if (event.kind === 'regionMessage') {
      const link = state.links.get(event.link);
      const { message } = event;
      if (link === undefined) return;
      if (message.kind === 'report') reported(state, link, message);
      else if (message.kind === 'grant') granted(state, link, message);
      else awayTold(state, link, message);
    } else {
      const region = state.regions.get(event.region);
      if (region === undefined) return;
      if (event.kind === 'rtt') measured(state, region, event);
      else if (event.kind === 'warmth') region.warm = event.warm;
      else probed(state, region, event.result);
    }
  }

  #firstToken(lease: LeaseState | undefined): void {
    if (lease === undefined || lease.firstTokenMs !== null) return;
    lease.firstTokenMs = this.#state.nowMs;
    lease.region.firstTokenMs = this.#state.nowMs;
    heard(this.#state, lease.region);
    // A stream may take minutes: others need not wait for its end.
    lease.region.breaker.showedLife(lease.id, this.#state.settings);
    noteServed(this.#state, lease, 0);
  }

  #clientGone(id: RequestId): void {
    const state = this.#state;
    const request = state.requests.get(id);
    if (request === undefined || request.gone) return;
    request.gone = true;
    const { lease } = request;
    if (lease === null) forget(state, request);
    else if (!lease.aborting) {
      lease.aborting = true;
      state.emit({ kind: 'abort', lease: lease.id, reason: 'client_gone' });
    }
  }

  /** A region that stays keeps what is known of it; one that goes takes its links along. */
  #configure(config: GlobalCoreConfig): void {
    const state = this.#state;
    const { reportIntervalMs } = state.settings;
    state.config = config;
    const before = new Map(state.regions);
    state.regions.clear();
    for (const region of config.regions) {
      const known = before.get(region.id);
      if (known !== undefined) known.config = region;
      state.regions.set(region.id, known ?? newRegion(region));
      before.delete(region.id);
    }
    for (const gone of before.values()) {
      for (const link of [...gone.links.keys()]) {
        state.emit({ kind: 'close', link, reason: 'unauthorized' });
        regionDown(state, link, 'no longer configured');
      }
    }
    if (reportIntervalMs !== state.settings.reportIntervalMs) {
      for (const link of state.links.values()) greet(state, link.region, link.id);
    }
    withdraw(state);
  }

  /** Says which requests entered the queue in this event and have not left it again. */
  #announce(): void {
    const state = this.#state;
    for (const { request, decision } of state.announced) {
      if (state.queue.has(request)) state.emit({ kind: 'queued', request, decision });
    }
    state.announced.length = 0;
  }
}

/** Only what runs answers a ping; a connection is accepted by whatever stands before it. */
function measured(
  state: GlobalState,
  region: RegionState,
  { rttMs, over = 'link' }: Extract<GlobalEvent, { kind: 'rtt' }>,
): void {
  region.rtt.note(rttMs, over, state.nowMs);
  if (over === 'link') heard(state, region);
}
