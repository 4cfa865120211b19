// A random history against one global core, with a shell that keeps its own books: generated fleets, tenants, faults and
// changes of policy. A breach is said in words, with the seed that shows it.
//
//   residency   no attempt is made in a region that its tenant's list, as it is now, does not name, or that is off
//   credit      all that was spilled into a region ≤ all that it granted + one request
//   dwell       no share turns round sooner than the dwell, and none is above its ceiling
//   once        every request ends exactly once, has one attempt at a time, and streams from one place
//   explain     what is foretold of a request is what is done

import { GLOBAL_DEFAULTS } from '../../shared/model/global-settings.ts';
import type { GlobalDecision } from '../../shared/model/global-decision.ts';
import type {
  LeaseId,
  LinkId,
  PoolId,
  RegionId,
  RequestId,
  RouterId,
} from '../../shared/model/ids.ts';
import type { PromptChain, TurnEnd } from '../../shared/model/prompt.ts';
import type { RegionPoolReport } from '../../shared/protocol/region-messages.ts';
import { seededRandom, type Random } from '../../shared/lib/random.ts';
import { GlobalCore } from '../../router/global/core.ts';
import type {
  GlobalAttempt,
  GlobalCoreConfig,
  GlobalEffect,
  GlobalEvent,
  TenantFacts,
} from '../../router/global/events.ts';
import type { AttemptResult } from '../../router/policy/attempt-result.ts';
import { mayReside } from '../../router/policy/region-filter.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';

const REGIONS = ['a', 'b', 'c', 'd'] as const;
const TENANTS = ['t', 'u', 'v'] as const;
const MODELS = ['m', 'n'] as const;
const ROLLOUTS = ['off', 'failover', 'active', 'active', 'active'] as const;
/** Wall clocks are up to ten minutes apart. */
const CLOCK_MS = 600_000;
const SETTINGS = {
  ...GLOBAL_DEFAULTS,
  // Short, so that shares move within a history.
  ...{ spillIntervalMs: 2_000, spillRampRatio: 0.4, spillDwellMs: 1_500, moveDwellMs: 5_000 },
  queueMaxWaitMs: 4_000,
  queueMaxRequests: 6,
};

/** Null: nothing was breached. */
export function breachOf(seed: number, events: number): string | null {
  const history = new History(seed);
  try {
    for (let n = 0; n < events; n += 1) history.step();
    history.close();
  } catch (error) {
    if (error instanceof Breach) return `seed ${seed}: ${error.message}`;
    throw error;
  }
  return null;
}

class Breach extends Error {}

interface Open {
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

class History {
  readonly #random: Random;
  readonly #core: GlobalCore;
  #config: GlobalCoreConfig;
  #nowMs: number;
  readonly #open = new Map<RequestId, Open>();
  readonly #links = new Map<LinkId, { region: RegionId; seq: number }>();
  readonly #granted = new Map<RegionId, number>();
  readonly #spilled = new Map<RegionId, { sum: number; largest: number }>();
  readonly #shares = new Map<string, Direction>();
  readonly #sent: { region: RegionId; seq: number }[] = [];
  /** Regions whose queues are long for now. */
  readonly #hot = new Set<string>();
  #names = 0;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
    this.#nowMs = Math.floor(this.#random.next() * 1e7);
    this.#config = this.#someConfig();
    this.#core = new GlobalCore({
      ...{ routerId: 'g' as RouterId, software: 'sim', config: this.#config },
      random: seededRandom(seed ^ 0x5bd1e995),
      wallMs: () => 1_000_000_000,
      keys: { keyOf: (tenant, { hashLow, offset }) => `${tenant}/${hashLow}@${offset}` },
    });
    for (const id of REGIONS) {
      const region = id as RegionId;
      if (this.#chance(0.9)) this.#join(region);
      this.#handle({ kind: 'rtt', region, rttMs: Math.floor(this.#random.next() * 300) });
      if (this.#chance(0.5)) this.#hot.add(region);
    }
  }

  step(): void {
    const roll = this.#random.next();
    if (roll < 0.28) this.#arrive();
    else if (roll < 0.36) this.#firstToken();
    else if (roll < 0.54) this.#end();
    else if (roll < 0.56) this.#late();
    else if (roll < 0.59) this.#leave();
    else if (roll < 0.74) this.#report();
    else if (roll < 0.8) this.#grant();
    else if (roll < 0.83) this.#away();
    else if (roll < 0.85) this.#linkOrCut();
    else if (roll < 0.87) this.#measure();
    else if (roll < 0.875) this.#configure();
    else this.#pass();
    this.#check();
  }

  /** Nothing is left behind. */
  close(): void {
    this.#handle({ kind: 'drain' });
    for (let n = 0; n < 10_000 && this.#open.size > 0; n += 1) {
      this.#nowMs += 500;
      this.#handle({ kind: 'tick' });
      for (const open of this.#open.values()) {
        if (open.attempt !== null) this.#ended(open, COMPLETE, true);
      }
    }
    const { openRequests, attempts, queued } = this.#core.status(this.#nowMs);
    if (this.#open.size > 0 || openRequests + attempts + queued.requests + queued.bytes > 0) {
      throw new Breach(`left behind: ${openRequests} requests, ${attempts} attempts`);
    }
  }

  // ── what happens ─────────────────────────────────────────────────────────────────────────────────────

  #arrive(): void {
    this.#names += 1;
    const request: RouteRequest = {
      ...{
        id: `r${this.#names}` as RequestId,
        tenant: this.#any(TENANTS),
        model: this.#any(MODELS),
      },
      ...{
        stream: this.#chance(0.7),
        priority: Math.floor(this.#random.next() * 3),
        maxTokens: 20,
      },
      work: this.#any(['generation', 'generation', 'generation', 'prefill', 'light'] as const),
      clientDeadlineMs: this.#chance(0.2) ? Math.floor(this.#random.next() * 5_000) : null,
      bodyBytes: 100,
      prompts: [this.#chain()],
    };
    this.#handle({ kind: 'tick' });
    const foretold = this.#core.explain(request, this.#nowMs);
    const open: Open = {
      ...{ request, attempt: null, queued: false, gone: false, streams: false, aborted: false },
    };
    this.#open.set(request.id, open);
    this.#checkForetold(foretold, this.#handle({ kind: 'arrived', request }), request);
  }

  #firstToken(): void {
    const open = this.#anyOpen(({ attempt, aborted }) => attempt !== null && !aborted);
    if (open?.attempt == null) return;
    open.streams = true;
    this.#handle({ kind: 'firstToken', lease: open.attempt.lease });
  }

  #end(): void {
    const open = this.#anyOpen(({ attempt }) => attempt !== null);
    if (open === null) return;
    const result = open.gone && open.aborted ? GONE : this.#any(RESULTS);
    this.#ended(open, result, open.streams || result.kind === 'complete');
  }

  #late(): void {
    const open = this.#anyOpen(({ attempt, streams }) => attempt !== null && !streams);
    if (open?.attempt != null) this.#handle({ kind: 'firstTokenLate', lease: open.attempt.lease });
  }

  #leave(): void {
    const open = this.#anyOpen(() => true);
    if (open === null || open.gone) return;
    open.gone = true;
    this.#handle({ kind: 'clientGone', request: open.request.id });
    if (open.attempt === null) this.#open.delete(open.request.id);
  }

  #report(): void {
    if (this.#chance(0.1)) this.#toggle(this.#any(REGIONS));
    this.#anyLink();
    for (const [id, { region }] of this.#links) if (this.#chance(0.8)) this.#reportOf(id, region);
  }

  #toggle(region: string): void {
    if (!this.#hot.delete(region)) this.#hot.add(region);
  }

  #reportOf(id: LinkId, region: RegionId): void {
    const known = this.#links.get(id) as { seq: number };
    known.seq += 1;
    const arrived = this.#sent.filter((sent) => sent.region === region && this.#chance(0.7));
    const pools = this.#chance(0.97)
      ? [this.#pool(region, 'p', ['m', 'n']), this.#pool(region, 'q', ['m'])]
      : [];
    this.#say(id, {
      ...{ kind: 'report', seq: known.seq, pools, routers: 2, draining: this.#chance(0.01) },
      arrived: arrived.map(({ seq }) => seq),
    });
  }

  #grant(): void {
    this.#anyLink();
    for (const [id, { region }] of this.#links) {
      if (this.#chance(0.7) && !this.#hot.has(region)) this.#grantOf(id, region);
    }
  }

  #grantOf(id: LinkId, region: RegionId): void {
    const prefillMs = Math.floor(this.#random.next() * 600);
    this.#granted.set(region, (this.#granted.get(region) ?? 0) + prefillMs);
    const pool = this.#any(['p', 'q'] as const) as PoolId;
    this.#say(id, { kind: 'grant', pool, prefillMs, lifeMs: 3_000 });
  }

  #away(): void {
    const link = this.#anyLink();
    if (link === null) return;
    const tenant = this.#any(TENANTS);
    const conversation = Math.floor(this.#random.next() * 6);
    const key = `${tenant}/${conversation}@${4_000 * (1 + Math.floor(this.#random.next() * 3))}`;
    const here = [{ key, tokens: 900, idleMs: 10, awayForMs: 5_000 }];
    this.#say(link[0], { kind: 'away', snapshot: this.#chance(0.2), here, gone: [] });
  }

  #linkOrCut(): void {
    const link = this.#anyLink();
    if (link === null || this.#chance(0.6)) {
      this.#join(this.#any(REGIONS) as RegionId);
      return;
    }
    this.#links.delete(link[0]);
    this.#handle({ kind: 'regionDown', link: link[0] });
  }

  #measure(): void {
    const region = this.#any(REGIONS) as RegionId;
    const roll = this.#random.next();
    if (roll < 0.4) {
      this.#handle({ kind: 'rtt', region, rttMs: Math.floor(this.#random.next() * 300) });
    } else if (roll < 0.6) this.#handle({ kind: 'warmth', region, warm: this.#chance(0.5) });
    else {
      const result = this.#any([
        { kind: 'good', ttftMs: 50, buffered: false },
        { kind: 'busy' },
        { kind: 'failed', detail: '' },
      ] as const);
      this.#handle({ kind: 'probed', region, result });
    }
  }

  #configure(): void {
    this.#config = this.#someConfig();
    this.#handle({ kind: 'configured', config: this.#config });
    for (const open of this.#open.values()) {
      const { attempt } = open;
      if (attempt === null || open.streams || open.aborted) continue;
      const why = this.#forbids(attempt.region, open.request);
      if (why !== null) throw new Breach(`${attempt.lease} stays in ${attempt.region}: ${why}`);
    }
  }

  #pass(): void {
    this.#nowMs += Math.floor(this.#random.next() ** 3 * 3_000);
    this.#handle({ kind: 'tick' });
  }

  // ── the books ────────────────────────────────────────────────────────────────────────────────────────

  #handle(event: GlobalEvent): GlobalEffect[] {
    const effects = this.#core.handle(event, this.#nowMs);
    for (const effect of effects) this.#take(effect);
    return effects;
  }

  #say(link: LinkId, message: Extract<GlobalEvent, { kind: 'regionMessage' }>['message']): void {
    this.#handle({ kind: 'regionMessage', link, message });
  }

  #take(effect: GlobalEffect): void {
    if (effect.kind === 'attempt') this.#began(effect.attempt, effect.decision);
    else if (effect.kind === 'refuse') {
      const open = this.#open.get(effect.request);
      if (open === undefined) throw new Breach(`${effect.request}: refused after its end`);
      if (open.attempt !== null) throw new Breach(`${effect.request}: refused beside an attempt`);
      this.#open.delete(effect.request);
    } else if (effect.kind === 'queued') {
      const open = this.#open.get(effect.request);
      if (open === undefined || open.attempt !== null)
        throw new Breach(`${effect.request}: queued`);
      open.queued = true;
    } else if (effect.kind === 'abort') {
      const open = [...this.#open.values()].find(({ attempt }) => attempt?.lease === effect.lease);
      if (open === undefined || open.aborted)
        throw new Breach(`${effect.lease}: aborted for nothing`);
      open.aborted = true;
    } else if (effect.kind === 'send' && !this.#links.has(effect.link)) {
      throw new Breach(`a message to ${effect.link}, which is down`);
    }
  }

  #began(attempt: GlobalAttempt, decision: GlobalDecision): void {
    const open = this.#open.get(attempt.request);
    if (open === undefined) throw new Breach(`${attempt.lease}: after the end of its request`);
    if (open.attempt !== null) throw new Breach(`${attempt.lease}: beside ${open.attempt.lease}`);
    if (open.streams) throw new Breach(`${attempt.lease}: after its request has streamed`);
    if (open.gone) throw new Breach(`${attempt.lease}: for a client that is gone`);
    const why = this.#forbids(attempt.region, open.request);
    if (why !== null) throw new Breach(`${attempt.lease} goes to ${attempt.region}: ${why}`);
    if (decision.region !== attempt.region) throw new Breach(`${attempt.lease}: decided otherwise`);
    open.attempt = attempt;
    open.aborted = false;
    open.queued = false;
    this.#sent.push({ region: attempt.region, seq: attempt.seq });
    if (this.#sent.length > 50) this.#sent.shift();
    if (decision.kind === 'spill') this.#noteSpill(attempt);
  }

  #noteSpill({ region, prefillMs, lease }: GlobalAttempt): void {
    const work = prefillMs ?? 0;
    const before = this.#spilled.get(region) ?? { sum: 0, largest: 0 };
    const spilled = { sum: before.sum + work, largest: Math.max(before.largest, work) };
    this.#spilled.set(region, spilled);
    const granted = this.#granted.get(region) ?? 0;
    // Pools have an account each: one request more a pool.
    if (spilled.sum > granted + 2 * spilled.largest + 1e-6) {
      throw new Breach(`${lease}: ${spilled.sum} ms spilled into ${region}, ${granted} granted`);
    }
  }

  #ended(open: Open, result: AttemptResult, committed: boolean): void {
    const { attempt } = open;
    if (attempt === null) return;
    open.attempt = null;
    const isOver =
      committed || open.gone || ['complete', 'clientError', 'clientGone'].includes(result.kind);
    // What was called back is placed anew, whatever became of it.
    const isBack = open.aborted && !open.gone && !committed;
    if (isOver && !isBack) this.#open.delete(open.request.id);
    this.#handle({ kind: 'attemptEnded', lease: attempt.lease as LeaseId, result, committed });
    if (!this.#open.has(open.request.id) || open.attempt !== null || open.queued) return;
    if (isBack) {
      this.#open.delete(open.request.id);
      return;
    }
    throw new Breach(`${attempt.lease}: its request is forgotten`);
  }

  #forbids(region: RegionId, request: RouteRequest): string | null {
    const configured = this.#config.regions.find(({ id }) => id === region);
    if (configured === undefined) return 'it is not configured';
    if (configured.rollout === 'off') return 'it is off';
    const tenant = this.#config.tenants.get(request.tenant);
    if (tenant === undefined) return 'its tenant is none of ours';
    if (!mayReside(region, tenant.residency)) return 'its tenant may not be there';
    const certified = tenant.certifications.every((each) =>
      configured.certifications.includes(each),
    );
    return certified ? null : 'it is not certified';
  }

  #check(): void {
    for (const { region, pools } of this.#core.status(this.#nowMs).regions) {
      for (const { pool, spill } of pools) {
        if (spill.share > SETTINGS.spillCeilingRatio + 1e-9)
          throw new Breach(`share ${spill.share}`);
        const key = `${region}/${pool}`;
        const before = this.#shares.get(key) ?? { share: 0, movedMs: 0, way: null };
        const way = spill.share > before.share ? 'up' : spill.share < before.share ? 'down' : null;
        if (way === null) continue;
        const isSoon = this.#nowMs - before.movedMs < SETTINGS.spillDwellMs;
        if (before.way !== null && before.way !== way && isSoon) {
          throw new Breach(`${key} turns round after ${this.#nowMs - before.movedMs} ms`);
        }
        this.#shares.set(key, { share: spill.share, movedMs: this.#nowMs, way });
      }
    }
  }

  #checkForetold(
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

  // ── generated parts ──────────────────────────────────────────────────────────────────────────────────

  #someConfig(): GlobalCoreConfig {
    const regions = REGIONS.filter(() => this.#chance(0.95)).map((id) => ({
      ...{ id: id as RegionId, zone: id, tiers: [], costMs: this.#chance(0.3) ? 20 : 0 },
      certifications: this.#chance(0.8) ? ['iso'] : [],
      ...{ baseUrl: `http://${id}`, rollout: this.#any(ROLLOUTS) },
    }));
    const some = (ratio: number): RegionId[] =>
      REGIONS.filter(() => this.#chance(ratio)).map((id) => id as RegionId);
    const tenants = TENANTS.filter(() => this.#chance(0.97)).map((name): [string, TenantFacts] => [
      name,
      {
        residency: this.#chance(0.5) ? null : { allow: some(0.7), fallback: some(0.2) },
        ...{ saltGroup: name, models: this.#chance(0.9) ? null : ['m'], tier: null },
        certifications: this.#chance(0.2) ? ['iso'] : [],
      },
    ]);
    return { settings: SETTINGS, zone: null, regions, tenants: new Map(tenants) };
  }

  #pool(region: string, pool: string, models: readonly string[]): RegionPoolReport {
    const isHot = this.#hot.has(region);
    return {
      ...{ pool: pool as PoolId, observedAgoMs: Math.floor(this.#random.next() * 500) },
      readyReplicas: this.#chance(0.98) ? 2 : 0,
      waitingPrefillMs: this.#chance(0.98)
        ? (isHot ? 1_000 : 0) + this.#random.next() * (isHot ? 4_000 : 200)
        : null,
      waitingPrefillTokens: null,
      prefillCost: this.#chance(0.9) ? CURVE : null,
      ...{ prefillTps: null, slotWaitMs: null, kvUsageRatio: null, preemptionsPerS: null },
      ...{ kvLifetimeMs: 60_000, kvRoomTokens: null, pending: [], tiers: [], oldestQueuedMs: null },
      models: models.map((name) => ({ name, revision: 'unknown', maxModelLen: null })),
      queuedPrefillMs: isHot ? this.#random.next() * 2_000 : 0,
      ...{ queuedRequests: 0, kvRoomWaitMs: null, unacknowledgedMs: 0 },
    };
  }

  #chain(): PromptChain {
    const turns = 1 + Math.floor(this.#random.next() * 3);
    const hashLow = Math.floor(this.#random.next() * 6);
    const ends = Array.from({ length: turns }, (_, k): TurnEnd => {
      const offset = 4_000 * (k + 1);
      return { offset, chunks: Math.floor(offset / 512), hashLow, hashHigh: 0 };
    });
    const end = ends.at(-1) as TurnEnd;
    return {
      ...{ keySpace: 'text/1', bytes: end.offset, hashes: new Uint32Array(0) },
      ...{ turnEnds: ends.slice(0, -1), end, parts: {}, tokenIds: null },
    };
  }

  #join(region: RegionId): void {
    this.#names += 1;
    const link = `l${this.#names}` as LinkId;
    const wallMs = 1_000_000_000 + Math.floor((this.#random.next() * 2 - 1) * CLOCK_MS);
    if (this.#config.regions.some(({ id }) => id === region))
      this.#links.set(link, { region, seq: 0 });
    const closed: LinkId[] = [];
    for (const effect of this.#core.handle(
      {
        ...{ kind: 'regionUp', link, region },
        hello: {
          ...{
            kind: 'hello',
            protocol: [1, 1],
            features: [],
            routerId: link as string as RouterId,
          },
          ...{ software: 'sim', region, wallMs },
        },
      },
      this.#nowMs,
    )) {
      if (effect.kind === 'close') closed.push(effect.link);
      this.#take(effect);
    }
    for (const id of closed) this.#links.delete(id);
  }

  #anyLink(): [LinkId, { region: RegionId; seq: number }] | null {
    // What is not configured any more has been closed.
    for (const [id, { region }] of this.#links) {
      if (!this.#config.regions.some((each) => each.id === region)) this.#links.delete(id);
    }
    const links = [...this.#links];
    return links[Math.floor(this.#random.next() * links.length)] ?? null;
  }

  #anyOpen(fits: (open: Open) => boolean): Open | null {
    const fitting = [...this.#open.values()].filter(fits);
    return fitting[Math.floor(this.#random.next() * fitting.length)] ?? null;
  }

  #any<T>(of: readonly T[]): T {
    return of[Math.floor(this.#random.next() * of.length)] as T;
  }

  #chance(ratio: number): boolean {
    return this.#random.next() < ratio;
  }
}

const CURVE = {
  ...{ baseMs: 5, frontMsPerToken: 0.001, linearMsPerToken: 0.1 },
  ...{ contextMsPerToken2: 0, stepTokens: 2_048 },
};
const COMPLETE: AttemptResult = {
  kind: 'complete',
  usage: { promptTokens: 1_000, cachedTokens: 0, completionTokens: 20 },
};
const GONE: AttemptResult = { kind: 'clientGone' };
const RESULTS: readonly AttemptResult[] = [
  ...[COMPLETE, COMPLETE, COMPLETE, COMPLETE, COMPLETE, COMPLETE],
  { kind: 'complete', usage: null },
  { kind: 'clientError', status: 400 },
  { kind: 'backPressure', status: 429, retryAfterMs: 1_500 },
  { kind: 'connectFailed', detail: '' },
  { kind: 'staleConnection', detail: '' },
  { kind: 'serverFault', cause: 'reset', detail: '' },
  { kind: 'serverFault', cause: 'first_token_timeout', detail: '' },
];
