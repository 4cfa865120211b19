// A random history against one global core, with a shell that keeps its own books: generated fleets, tenants, faults and
// changes of policy. A breach is said in words, with the seed that shows it.
//
//   residency   no attempt is made in a region that its tenant's list, as it is now, does not name, or that is off
//   credit      all that was spilled into a pool ≤ all that it granted + one request
//   dwell       no share turns round sooner than the dwell, and none is above its ceiling
//   once        every request ends exactly once, has one attempt at a time, and streams from one place
//   explain     what is foretold of a request is what is done
//   told        a region hears of no zone that its tenant's list does not name, of every attempt by when it has to answer,
//               and nothing that it would refuse to read, whatever other regions claim

import { GLOBAL_DEFAULTS } from '../../shared/model/global-settings.ts';
import type { LinkId, PoolId, RegionId, RequestId, RouterId } from '../../shared/model/ids.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import type { RegionPoolReport } from '../../shared/protocol/region-messages.ts';
import { GlobalCore } from '../../router/global/core.ts';
import type { GlobalEffect, GlobalEvent } from '../../router/global/events.ts';
import type { AttemptResult } from '../../router/policy/attempt-result.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import { Breach, HistoryBooks, type Open } from './history-books.ts';
import {
  Dice,
  MODELS,
  REGIONS,
  someChain,
  someConfig,
  somePool,
  TENANTS,
} from './history-fleet.ts';
import { HISTORY_HINTS, HISTORY_KEYS, someNames, WALL_MS } from './history-names.ts';

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

class History {
  readonly #dice: Dice;
  readonly #core: GlobalCore;
  #nowMs: number;
  readonly #books: HistoryBooks;
  /** Regions whose queues are long for now. */
  readonly #hot = new Set<string>();
  #names = 0;

  constructor(seed: number) {
    this.#dice = new Dice(seededRandom(seed));
    this.#nowMs = Math.floor(this.#dice.next() * 1e7);
    this.#books = new HistoryBooks(someConfig(this.#dice, SETTINGS));
    this.#core = new GlobalCore({
      ...{ routerId: 'g' as RouterId, software: 'sim', config: this.#books.config },
      random: seededRandom(seed ^ 0x5bd1e995),
      wallMs: () => WALL_MS,
      keys: HISTORY_KEYS,
      hints: HISTORY_HINTS,
    });
    for (const id of REGIONS) {
      const region = id as RegionId;
      if (this.#dice.chance(0.9)) this.#join(region);
      if (this.#dice.chance(0.9)) this.#handle({ kind: 'rtt', region, rttMs: this.#rttMs() });
      if (this.#dice.chance(0.5)) this.#hot.add(region);
    }
  }

  step(): void {
    const roll = this.#dice.next();
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
    this.#books.checkShares(this.#core.status(this.#nowMs), this.#nowMs);
  }

  /** Nothing is left behind. */
  close(): void {
    this.#handle({ kind: 'drain' });
    for (let n = 0; n < 10_000 && this.#books.open.size > 0; n += 1) {
      this.#nowMs += 500;
      this.#handle({ kind: 'tick' });
      for (const open of this.#books.open.values()) {
        if (open.attempt !== null) this.#ended(open, COMPLETE, true);
      }
    }
    const { openRequests, attempts, queued } = this.#core.status(this.#nowMs);
    if (this.#books.open.size > 0 || openRequests + attempts + queued.requests + queued.bytes > 0) {
      throw new Breach(`left behind: ${openRequests} requests, ${attempts} attempts`);
    }
  }

  // ── what happens ─────────────────────────────────────────────────────────────────────────────────────

  #arrive(): void {
    this.#names += 1;
    const asked: RouteRequest = {
      ...{
        id: `r${this.#names}` as RequestId,
        tenant: this.#dice.any(TENANTS),
        model: this.#dice.any(MODELS),
      },
      ...{
        stream: this.#dice.chance(0.7),
        priority: Math.floor(this.#dice.next() * 3),
        maxTokens: 20,
      },
      work: this.#dice.any(['generation', 'generation', 'generation', 'prefill', 'light'] as const),
      clientDeadlineMs: this.#dice.chance(0.2) ? Math.floor(this.#dice.next() * 5_000) : null,
      bodyBytes: 100,
      prompts: this.#dice.chance(0.9)
        ? [someChain(this.#dice)]
        : [someChain(this.#dice), someChain(this.#dice)],
    };
    const request = { ...asked, ...someNames(this.#dice, asked) };
    this.#handle({ kind: 'tick' });
    const foretold = this.#core.explain(request, this.#nowMs);
    const open: Open = {
      ...{ request, attempt: null, queued: false, gone: false, streams: false, aborted: false },
    };
    this.#books.open.set(request.id, open);
    this.#books.checkForetold(foretold, this.#handle({ kind: 'arrived', request }), request);
  }

  #firstToken(): void {
    const open = this.#anyOpen(({ attempt, aborted }) => attempt !== null && !aborted);
    if (open === null || open.attempt === null) return;
    open.streams = true;
    this.#handle({ kind: 'firstToken', lease: open.attempt.lease });
  }

  #end(): void {
    const open = this.#anyOpen(({ attempt }) => attempt !== null);
    if (open === null) return;
    const result = open.gone && open.aborted ? GONE : this.#dice.any(RESULTS);
    this.#ended(open, result, open.streams || result.kind === 'complete');
  }

  #late(): void {
    const open = this.#anyOpen(({ attempt, streams }) => attempt !== null && !streams);
    const lease = open?.attempt?.lease;
    if (lease !== undefined) this.#handle({ kind: 'firstTokenLate', lease });
  }

  #leave(): void {
    const open = this.#anyOpen(() => true);
    if (open === null || open.gone) return;
    open.gone = true;
    this.#handle({ kind: 'clientGone', request: open.request.id });
    if (open.attempt === null) this.#books.open.delete(open.request.id);
  }

  #report(): void {
    if (this.#dice.chance(0.1)) this.#toggle(this.#dice.any(REGIONS));
    this.#anyLink();
    for (const [id, { region }] of this.#books.links)
      if (this.#dice.chance(0.8)) this.#reportOf(id, region);
  }

  #toggle(region: string): void {
    if (!this.#hot.delete(region)) this.#hot.add(region);
  }

  #reportOf(id: LinkId, region: RegionId): void {
    const known = this.#books.links.get(id) as { seq: number };
    // Now and then one comes a second time, or from before.
    known.seq += this.#dice.chance(0.97) ? 1 : 0;
    const arrived = this.#books.sent.filter(
      (sent) => sent.region === region && this.#dice.chance(0.7),
    );
    const isHot = this.#hot.has(region);
    const pools = this.#dice.chance(0.97)
      ? [
          somePool(this.#dice, 'p', { isHot, models: MODELS }),
          somePool(this.#dice, 'q', { isHot, models: ['m'] }),
          ...(this.#dice.chance(0.05) ? [this.#newPool()] : []),
        ]
      : [];
    this.#say(id, {
      ...{ kind: 'report', seq: known.seq, pools, routers: 2, draining: this.#dice.chance(0.01) },
      arrived: arrived.map(({ seq }) => seq),
    });
  }

  /** Named as none before. */
  #newPool(): RegionPoolReport {
    this.#names += 1;
    return somePool(this.#dice, `p${this.#names}`, { isHot: false, models: ['m'] });
  }

  #rttMs(): number {
    return Math.floor(this.#dice.next() * 300);
  }

  #grant(): void {
    this.#anyLink();
    for (const [id, { region }] of this.#books.links) {
      if (this.#dice.chance(0.7) && !this.#hot.has(region)) this.#grantOf(id, region);
    }
  }

  #grantOf(id: LinkId, region: RegionId): void {
    // Seldom a whole request: what is granted, not what is wanted, bounds what goes abroad.
    const prefillMs = Math.floor(this.#dice.next() * (this.#dice.chance(0.2) ? 600 : 60));
    const pool = this.#dice.any(['p', 'q'] as const) as PoolId;
    this.#books.granted(region, pool, prefillMs);
    this.#say(id, { kind: 'grant', pool, prefillMs, lifeMs: 3_000 });
  }

  #away(): void {
    const link = this.#anyLink();
    if (link === null) return;
    const tenant = this.#dice.any(TENANTS);
    const conversation = Math.floor(this.#dice.next() * 6);
    const key = `${tenant}/${conversation}@${4_000 * (1 + Math.floor(this.#dice.next() * 3))}`;
    const isLie = this.#dice.chance(0.05);
    const here = [{ key, tokens: isLie ? 1e18 : 900, idleMs: 10, awayForMs: isLie ? 1e18 : 5_000 }];
    this.#say(link[0], { kind: 'away', snapshot: this.#dice.chance(0.2), here, gone: [] });
  }

  #linkOrCut(): void {
    const link = this.#anyLink();
    if (link === null || this.#dice.chance(0.6)) {
      this.#join(this.#dice.any(REGIONS) as RegionId);
      return;
    }
    this.#books.links.delete(link[0]);
    this.#handle({ kind: 'regionDown', link: link[0] });
  }

  #measure(): void {
    const region = this.#dice.any(REGIONS) as RegionId;
    const roll = this.#dice.next();
    if (roll < 0.4) {
      this.#handle({ kind: 'rtt', region, rttMs: this.#rttMs() });
    } else if (roll < 0.6) this.#handle({ kind: 'warmth', region, warm: this.#dice.chance(0.5) });
    else {
      const result = this.#dice.any([
        { kind: 'good', ttftMs: 50, buffered: false },
        { kind: 'busy' },
        { kind: 'failed', detail: '' },
      ] as const);
      this.#handle({ kind: 'probed', region, result });
    }
  }

  #configure(): void {
    this.#books.configured(someConfig(this.#dice, SETTINGS));
    this.#handle({ kind: 'configured', config: this.#books.config });
    for (const open of this.#books.open.values()) {
      const { attempt } = open;
      if (attempt === null || open.streams || open.aborted) continue;
      const why = this.#books.forbids(attempt.region, open.request);
      if (why !== null) throw new Breach(`${attempt.lease} stays in ${attempt.region}: ${why}`);
    }
  }

  #pass(): void {
    this.#nowMs += Math.floor(this.#dice.next() ** 3 * 3_000);
    this.#handle({ kind: 'tick' });
  }

  // ── the books ────────────────────────────────────────────────────────────────────────────────────────

  #handle(event: GlobalEvent): GlobalEffect[] {
    const effects = this.#core.handle(event, this.#nowMs);
    for (const effect of effects) this.#books.take(effect);
    return effects;
  }

  #ended(open: Open, result: AttemptResult, committed: boolean): void {
    this.#books.ended(open, { result, committed }, (lease) => {
      this.#handle({ kind: 'attemptEnded', lease, result, committed });
    });
  }

  #say(link: LinkId, message: Extract<GlobalEvent, { kind: 'regionMessage' }>['message']): void {
    this.#handle({ kind: 'regionMessage', link, message });
  }

  // ── links ──────────────────────────────────────────────────────────────────────────────────────────────

  #join(region: RegionId): void {
    this.#names += 1;
    const link = `l${this.#names}` as LinkId;
    const wallMs = WALL_MS + Math.floor((this.#dice.next() * 2 - 1) * CLOCK_MS);
    if (this.#books.config.regions.some(({ id }) => id === region))
      this.#books.links.set(link, { region, seq: 0 });
    const closed: LinkId[] = [];
    for (const effect of this.#core.handle(
      {
        ...{ kind: 'regionUp', link, region },
        hello: {
          ...{
            kind: 'hello',
            protocol: [1, 1],
            features: [],
            // One that comes back before it was missed has two links.
            routerId: (this.#dice.chance(0.7) ? link : region) as string as RouterId,
          },
          ...{ software: 'sim', region, wallMs },
        },
      },
      this.#nowMs,
    )) {
      if (effect.kind === 'close') closed.push(effect.link);
      this.#books.take(effect);
    }
    for (const id of closed) this.#books.links.delete(id);
  }

  #anyLink(): [LinkId, { region: RegionId; seq: number }] | null {
    // What is not configured any more has been closed.
    for (const [id, { region }] of this.#books.links) {
      if (!this.#books.config.regions.some((each) => each.id === region))
        this.#books.links.delete(id);
    }
    const links = [...this.#books.links];
    return links[Math.floor(this.#dice.next() * links.length)] ?? null;
  }

  #anyOpen(fits: (open: Open) => boolean): Open | null {
    const fitting = [...this.#books.open.values()].filter(fits);
    return fitting[Math.floor(this.#dice.next() * fitting.length)] ?? null;
  }
}

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
