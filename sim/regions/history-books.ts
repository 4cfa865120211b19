// What the shell of a random history keeps of what the core has asked for, and the rules that it holds it to.

import type { GlobalDecision } from '../../shared/model/global-decision.ts';
import type { LeaseId, LinkId, PoolId, RegionId, RequestId } from '../../shared/model/ids.ts';
import type { GlobalStatus } from '../../router/global/core.ts';
import type { GlobalAttempt, GlobalCoreConfig, GlobalEffect } from '../../router/global/events.ts';
import type { AttemptResult } from '../../router/policy/attempt-result.ts';
import { mayReside } from '../../router/policy/region-filter.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import { decodeRegionParent, encodeRegionParent } from '../../shared/protocol/region-codec.ts';

/** A region refuses the context of a conversation that has been away for longer: a hundred years. */
const AWAY_FOR_MAX_MS = 3.2e12;

export class Breach extends Error {}

export interface Open {
  readonly request: RouteRequest;
  attempt: GlobalAttempt | null;
  queued: boolean;
  gone: boolean;
  streams: boolean;
  aborted: boolean;
}

interface Direction {
  share: number;
  movedMs: number;
  way: 'up' | 'down' | null;
}

export class HistoryBooks {
  config: GlobalCoreConfig;
  readonly open = new Map<RequestId, Open>();
  readonly links = new Map<LinkId, { region: RegionId; seq: number }>();
  /** The last sends. */
  readonly sent: { region: RegionId; seq: number }[] = [];
  /** By region and pool, ms. */
  readonly #credit = new Map<string, { granted: number; spilled: number; largest: number }>();
  readonly #shares = new Map<string, Direction>();

  constructor(config: GlobalCoreConfig) {
    this.config = config;
  }

  granted(region: RegionId, pool: PoolId, prefillMs: number): void {
    this.#creditOf(region, pool).granted += prefillMs;
  }

  /** A region that is taken out and put in again owes nothing. */
  configured(config: GlobalCoreConfig): void {
    this.config = config;
    for (const key of this.#credit.keys()) {
      if (!config.regions.some(({ id }) => key.startsWith(`${id}/`))) this.#credit.delete(key);
    }
  }

  #creditOf(region: RegionId, pool: PoolId) {
    const key = `${region}/${pool}`;
    const credit = this.#credit.get(key) ?? { granted: 0, spilled: 0, largest: 0 };
    this.#credit.set(key, credit);
    return credit;
  }

  take(effect: GlobalEffect): void {
    if (effect.kind === 'attempt') this.#began(effect.attempt, effect.decision);
    else if (effect.kind === 'refuse') {
      const open = this.open.get(effect.request);
      if (open === undefined) throw new Breach(`${effect.request}: refused after its end`);
      if (open.attempt !== null) throw new Breach(`${effect.request}: refused beside an attempt`);
      this.open.delete(effect.request);
    } else if (effect.kind === 'queued') {
      const open = this.open.get(effect.request);
      if (open === undefined || open.attempt !== null)
        throw new Breach(`${effect.request}: queued`);
      open.queued = true;
    } else if (effect.kind === 'abort') {
      const open = [...this.open.values()].find(({ attempt }) => attempt?.lease === effect.lease);
      if (open === undefined || open.aborted)
        throw new Breach(`${effect.lease}: aborted for nothing`);
      open.aborted = true;
    } else if (effect.kind === 'send') {
      if (!this.links.has(effect.link)) {
        throw new Breach(`a message to ${effect.link}, which is down`);
      }
      const read = decodeRegionParent(encodeRegionParent(effect.message));
      if (!read.ok) throw new Breach(`${effect.message.kind} to ${effect.link}: ${read.detail}`);
    }
  }

  #began(attempt: GlobalAttempt, decision: GlobalDecision): void {
    const open = this.open.get(attempt.request);
    if (open === undefined) throw new Breach(`${attempt.lease}: after the end of its request`);
    if (open.attempt !== null) throw new Breach(`${attempt.lease}: beside ${open.attempt.lease}`);
    if (open.streams) throw new Breach(`${attempt.lease}: after its request has streamed`);
    if (open.gone) throw new Breach(`${attempt.lease}: for a client that is gone`);
    const why = this.forbids(attempt.region, open.request);
    if (why !== null) throw new Breach(`${attempt.lease} goes to ${attempt.region}: ${why}`);
    if (decision.region !== attempt.region) throw new Breach(`${attempt.lease}: decided otherwise`);
    this.#checkTold(attempt);
    open.attempt = attempt;
    open.aborted = false;
    open.queued = false;
    this.sent.push({ region: attempt.region, seq: attempt.seq });
    if (this.sent.length > 50) this.sent.shift();
    if (decision.kind === 'spill') this.#noteSpill(attempt);
  }

  /** What the signed context says, and by when there has to be an answer. */
  #checkTold(attempt: GlobalAttempt): void {
    const { lease, residency, zones, firstTokenTimeoutMs, stallTimeoutMs } = attempt;
    const own = this.config.tenants.get(attempt.tenant)?.residency ?? null;
    if (JSON.stringify(residency) !== JSON.stringify(own)) {
      throw new Breach(`${lease}: a list that is not its tenant's`);
    }
    const named = own === null ? null : [...own.allow, ...own.fallback];
    const abroad = (zones ?? []).filter((zone) => named?.includes(zone as RegionId) !== true);
    if ((zones === null) !== (own === null) || abroad.length > 0) {
      throw new Breach(`${lease}: told of ${zones?.join(' ')}`);
    }
    if (!(Math.max(firstTokenTimeoutMs, stallTimeoutMs) < 600_000)) {
      throw new Breach(`${lease}: ${firstTokenTimeoutMs} ms for a first token`);
    }
    const none = Object.entries(attempt).find(
      ([, value]) => typeof value === 'number' && !Number.isFinite(value),
    );
    if (none !== undefined) throw new Breach(`${lease}: ${none[0]} is ${none[1]}`);
    if (attempt.awayForMs > AWAY_FOR_MAX_MS) throw new Breach(`${lease}: away for an age`);
  }

  #noteSpill({ region, pool, prefillMs, lease }: GlobalAttempt): void {
    const work = prefillMs ?? 0;
    const credit = this.#creditOf(region, pool);
    credit.spilled += work;
    credit.largest = Math.max(credit.largest, work);
    const { granted, spilled, largest } = credit;
    if (spilled > (granted + largest) * (1 + 1e-9)) {
      throw new Breach(
        `${lease}: ${spilled} ms spilled into ${region}/${pool}, ${granted} granted`,
      );
    }
  }

  /** The attempt of a request has ended; `tell` lets the core know. */
  ended(
    open: Open,
    { result, committed }: { readonly result: AttemptResult; readonly committed: boolean },
    tell: (lease: LeaseId) => void,
  ): void {
    const { attempt } = open;
    if (attempt === null) return;
    open.attempt = null;
    const isOver =
      committed || open.gone || ['complete', 'clientError', 'clientGone'].includes(result.kind);
    // What was called back is placed anew, whatever became of it.
    const isBack = open.aborted && !open.gone && !committed;
    if (isOver && !isBack) this.open.delete(open.request.id);
    tell(attempt.lease);
    if (!this.open.has(open.request.id) || open.attempt !== null || open.queued) return;
    if (isBack) {
      this.open.delete(open.request.id);
      return;
    }
    throw new Breach(`${attempt.lease}: its request is forgotten`);
  }

  /** Why its tenant may not be served there; null where it may. */
  forbids(region: RegionId, request: RouteRequest): string | null {
    const configured = this.config.regions.find(({ id }) => id === region);
    if (configured === undefined) return 'it is not configured';
    if (configured.rollout === 'off') return 'it is off';
    const tenant = this.config.tenants.get(request.tenant);
    if (tenant === undefined) return 'its tenant is none of ours';
    if (!mayReside(region, tenant.residency)) return 'its tenant may not be there';
    const certified = tenant.certifications.every((each) =>
      configured.certifications.includes(each),
    );
    return certified ? null : 'it is not certified';
  }

  /** A region that was taken out of the configuration has new controllers when it is put in again. */
  checkShares({ regions }: GlobalStatus, nowMs: number): void {
    const names = new Set<string>(
      regions.flatMap(({ region, pools }) => pools.map(({ pool }) => `${region}/${pool}`)),
    );
    for (const key of this.#shares.keys()) if (!names.has(key)) this.#shares.delete(key);
    for (const { region, pools } of regions) {
      for (const { pool, spill } of pools) {
        if (spill.share > this.config.settings.spillCeilingRatio + 1e-9)
          throw new Breach(`share ${spill.share}`);
        const key = `${region}/${pool}`;
        const before = this.#shares.get(key) ?? { share: 0, movedMs: 0, way: null };
        const way = spill.share > before.share ? 'up' : spill.share < before.share ? 'down' : null;
        if (way === null) continue;
        const isSoon = nowMs - before.movedMs < this.config.settings.spillDwellMs;
        if (before.way !== null && before.way !== way && isSoon) {
          throw new Breach(`${key} turns round after ${nowMs - before.movedMs} ms`);
        }
        this.#shares.set(key, { share: spill.share, movedMs: nowMs, way });
      }
    }
  }

  checkForetold(
    foretold: GlobalDecision,
    effects: readonly GlobalEffect[],
    asked: RouteRequest,
  ): void {
    for (const effect of effects) {
      if (effect.kind !== 'attempt' && effect.kind !== 'queued' && effect.kind !== 'refuse')
        continue;
      const request = effect.kind === 'attempt' ? effect.attempt.request : effect.request;
      if (request !== asked.id || effect.decision === null) continue;
      const { kind, reason, region } = effect.decision;
      const candidate = foretold.candidates.find((each) => each.region === region);
      const isDrawn = foretold.candidates.filter((each) => each.drawProbability > 0).length > 1;
      const same = isDrawn || (kind === foretold.kind && reason === foretold.reason);
      // A full queue sheds what it would have taken.
      if (!same && !(foretold.kind === 'queue' && kind === 'shed')) {
        throw new Breach(
          `${asked.id}: ${foretold.kind} ${foretold.reason} foretold, ${kind} ${reason} done`,
        );
      }
      if (region !== null && !((candidate?.drawProbability ?? 0) > 0)) {
        throw new Breach(`${asked.id}: ${region} was not foretold`);
      }
    }
  }
}
