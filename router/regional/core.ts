// The regional router's state machine: `handle(event, nowMs) → effects`. It owns replicas, leases,
// queues, prefix index and breakers, calls policy, and never awaits.
//
// Invariants after every event: one lease per attempt under way; every request that arrived and has
// not ended is queued or has a lease; nothing is answered twice. What comes from outside never
// makes it throw.

import type { Decision } from '../../shared/model/decision.ts';
import type { RegionalCoreConfig, RouterEffect, RouterEvent } from './events.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import { decide, bare, isLight } from './core-decide.ts';
import { probed, sweep, sweepWakeMs } from './core-freshness.ts';
import { noteFirstToken } from './core-leases.ts';
import { heard, linkDown, linkUp } from './core-links.ts';
import { attemptEnded, firstTokenLate } from './core-outcomes.ts';
import { tellQueued, tellWakeMs } from './core-queued.ts';
import {
  globalDown,
  globalHeard,
  globalUp,
  noteArrived,
  tellGlobal,
  tellGlobalWakeMs,
} from './core-region.ts';
import { moveQueue, queueWakeMs } from './core-release.ts';
import { announceQueued, isBehindOthers, shedVerdict } from './core-admission.ts';
import { finish, forget } from './core-ends.ts';
import { arrive, enter } from './core-requests.ts';
import {
  siblingDeaf,
  siblingDown,
  siblingListens,
  siblingSaid,
  siblingUp,
  tellSiblings,
  tellSiblingsWakeMs,
} from './core-siblings.ts';
import { newPool, RegionalState, type RegionalCoreDeps } from './core-state.ts';
import { statusOf, type RegionalStatus } from './core-status.ts';

export type { RegionalCoreDeps } from './core-state.ts';
export type {
  GlobalSight,
  PoolStatus,
  RegionalStatus,
  ReplicaStatus,
  SiblingSight,
  TargetStatus,
} from './core-status.ts';

export class RegionalCore {
  readonly #state: RegionalState;

  constructor(deps: RegionalCoreDeps) {
    this.#state = new RegionalState(deps);
  }

  handle(event: RouterEvent, nowMs: number): RouterEffect[] {
    const state = this.#state;
    state.nowMs = Math.max(nowMs, state.nowMs);
    if (state.nowMs >= (sweepWakeMs(state) ?? Number.POSITIVE_INFINITY)) {
      state.sweptMs = state.nowMs;
      sweep(state);
    }
    this.#apply(event);
    for (const pool of state.pools.values()) {
      if (pool.dirty || event.kind === 'tick') {
        pool.dirty = false;
        moveQueue(state, pool);
      }
      tellQueued(state, pool);
    }
    announceQueued(state);
    tellSiblings(state);
    tellGlobal(state);
    this.#countEvictions();
    const { effects } = state;
    state.effects = [];
    return effects;
  }

  /** When a `tick` is due next; null when only events change anything. */
  nextWakeMs(): number | null {
    const state = this.#state;
    const never = Number.POSITIVE_INFINITY;
    let wake = Math.min(
      sweepWakeMs(state) ?? never,
      tellGlobalWakeMs(state) ?? never,
      tellSiblingsWakeMs(state) ?? never,
    );
    for (const pool of state.pools.values()) {
      wake = Math.min(wake, queueWakeMs(state, pool) ?? wake, tellWakeMs(state, pool) ?? wake);
    }
    return Number.isFinite(wake) ? wake : null;
  }

  /** What would be decided for this request now. Changes nothing and draws nothing. */
  explain(request: RouteRequest, nowMs: number): Decision {
    const state = this.#state;
    state.nowMs = Math.max(nowMs, state.nowMs);
    if (state.draining) return bare('refuse', 'draining');
    const entered = enter(state, request);
    if ('decision' in entered) return entered.decision;
    const verdict = decide(state, entered, { draw: false });
    const { decision } = verdict;
    const waits = decision.kind === 'queue' || isBehindOthers(state, entered, verdict);
    if (decision.kind === 'refuse' || !waits || isLight(entered)) return decision;
    const shed = shedVerdict(state, entered, verdict);
    if (shed !== null) return { ...decision, kind: 'shed', reason: shed.reason, target: null };
    if (decision.kind === 'queue') return decision;
    return { ...decision, kind: 'queue', reason: 'order', target: null };
  }

  status(nowMs: number): RegionalStatus {
    this.#state.nowMs = Math.max(nowMs, this.#state.nowMs);
    return statusOf(this.#state, nowMs);
  }

  /** Attempts under way. */
  leaseCount(): number {
    return this.#state.leases.size;
  }

  #apply(event: RouterEvent): void {
    const state = this.#state;
    switch (event.kind) {
      case 'tick':
        break;
      case 'arrived':
        if (event.request.tier !== undefined) noteArrived(state, event.request.tier);
        arrive(state, event.request);
        break;
      case 'clientGone':
        this.#clientGone(event.request);
        break;
      case 'firstToken': {
        const lease = state.leases.get(event.lease);
        if (lease === undefined) break;
        noteFirstToken(state, lease);
        lease.request.pool.dirty = true;
        break;
      }
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
      case 'linkUp':
        linkUp(state, event.link, event.hello, event.siblings);
        break;
      case 'linkDown':
        linkDown(state, event.link, event.reason ?? null);
        break;
      case 'message':
        heard(state, event.link, event.message);
        break;
      case 'globalUp':
        globalUp(state, event.link);
        break;
      case 'globalDown':
        globalDown(state, event.link, event.reason ?? null);
        break;
      case 'globalMessage':
        globalHeard(state, event.link, event.message);
        break;
      case 'siblingUp':
        siblingUp(state, event.link, event.router);
        break;
      case 'siblingDown':
        siblingDown(state, event.link);
        break;
      case 'siblingMessage':
        siblingSaid(state, event.link, event.message);
        break;
      case 'siblingListens':
        siblingListens(state, event.link);
        break;
      case 'siblingDeaf':
        siblingDeaf(state, event.link);
        break;
      case 'probed': {
        const replica = state.replicas.get(event.replica);
        if (replica !== undefined) probed(state, replica, event.ok);
        break;
      }
      case 'configured':
        this.#configure(event.config);
        break;
      case 'drain':
        state.draining = true;
        break;
    }
  }

  #countEvictions(): void {
    const state = this.#state;
    const { evictions } = state.index;
    if (evictions > state.countedEvictions) state.limit('prefix_index_bytes');
    state.countedEvictions = evictions;
  }

  #clientGone(id: RouteRequest['id']): void {
    const state = this.#state;
    const request = state.requests.get(id);
    if (request === undefined || request.gone) return;
    request.gone = true;
    const { lease } = request;
    if (lease === null) {
      forget(state, request);
      request.pool.dirty = true;
    } else if (!lease.aborting) {
      lease.aborting = true;
      state.emit({ kind: 'abort', lease: lease.id, reason: 'client_gone' });
    }
  }

  #configure(config: RegionalCoreConfig): void {
    const state = this.#state;
    state.config = config;
    state.index.setBudget(config.settings.prefixIndexBytes);
    const wanted = new Map(config.pools.map((pool) => [pool.id, pool]));
    for (const pool of state.pools.values()) {
      const next = wanted.get(pool.id);
      if (next === undefined) this.#removePool(pool.id);
      else pool.config = next;
      pool.dirty = true;
    }
    for (const pool of config.pools) {
      if (!state.pools.has(pool.id)) state.pools.set(pool.id, newPool(pool));
    }
  }

  /** Its queue is refused, its agents are sent away; attempts under way end by themselves. */
  #removePool(id: RegionalCoreConfig['pools'][number]['id']): void {
    const state = this.#state;
    const pool = state.pools.get(id);
    if (pool === undefined) return;
    state.pools.delete(id);
    state.tier.forget(id);
    pool.removed = true;
    for (const link of state.links.values()) {
      if (link.pool === pool) state.emit({ kind: 'close', link: link.id, reason: 'unknown_pool' });
    }
    for (const queued of [...pool.queue.ids()]) {
      const request = state.requests.get(queued as RouteRequest['id']);
      if (request === undefined) continue;
      const message = 'This model is no longer served here.';
      const failure = { code: 'no_replica', message, retryAfterMs: 1_000 } as const;
      finish(state, request, { decision: bare('refuse', 'no_replica'), failure });
    }
  }
}
