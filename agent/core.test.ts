import { describe, expect, test } from 'vitest';
import { CURVE, FakeEngine, Harness, leaseFacts, POOL, REPLICA } from './core.harness.ts';
import { prefillMs } from '../shared/model/cost-curve.ts';
import type { Incarnation, LeaseId, LinkId } from '../shared/model/ids.ts';
import type { ReplicaReport } from '../shared/model/report.ts';
import type { LeaseFacts, PrefixMessage, ResumeState, Usage } from '../shared/protocol/messages.ts';

/** Speaks as a router on one link. */
class RouterVoice {
  readonly link: LinkId;
  private readonly harness: Harness;
  private seq = 0;

  constructor(
    harness: Harness,
    name: string,
    options: { router?: string; resume?: ResumeState[]; features?: string[] } = {},
  ) {
    this.harness = harness;
    this.link = harness.link(name, options);
  }

  leases(
    ...open: { facts: LeaseFacts; sentAgoMs: number; firstTokenAgoMs: number | null }[]
  ): void {
    this.seq = 0;
    const entries = open.map(({ facts, ...ages }) => ({ ...facts, ...ages }));
    this.harness.say(this.link, {
      kind: 'leases',
      replica: REPLICA,
      rank: 0,
      seq: 0,
      open: entries,
    });
  }

  sent(lease: string, change: Partial<LeaseFacts> = {}): void {
    const facts = { ...leaseFacts(lease, change), incarnation: this.incarnation };
    this.harness.say(this.link, {
      kind: 'sent',
      replica: REPLICA,
      rank: 0,
      seq: this.next(),
      agoMs: 0,
      ...facts,
    });
  }

  first(lease: string): void {
    this.harness.say(this.link, {
      kind: 'firstToken',
      replica: REPLICA,
      rank: 0,
      seq: this.next(),
      agoMs: 0,
      lease: lease as LeaseId,
    });
  }

  ended(
    lease: string,
    usage: Usage | null,
    outcome: 'complete' | 'failed' | 'aborted' = 'complete',
  ): void {
    this.harness.say(this.link, {
      kind: 'ended',
      replica: REPLICA,
      rank: 0,
      seq: this.next(),
      agoMs: 0,
      lease: lease as LeaseId,
      outcome,
      usage,
    });
  }

  report(): ReplicaReport {
    return this.harness.report(this.link);
  }

  /** As it would be sent at this moment. */
  reportNow(): ReplicaReport {
    const target = this.harness.core.status(this.harness.nowMs).engines[0]?.targets[0];
    if (target === undefined) throw new Error('no target');
    return target.report;
  }

  get incarnation(): Incarnation | null {
    return this.report().incarnation;
  }

  prefixes(): PrefixMessage[] {
    return this.harness.sent.flatMap(({ link, message }) =>
      link === this.link && message.kind === 'prefix' ? [message] : [],
    );
  }

  private next(): number {
    this.seq += 1;
    return this.seq;
  }
}

/** An agent with a ready engine and a router that has sent its empty snapshot. */
function ready(engine?: FakeEngine): { h: Harness; router: RouterVoice } {
  const h = new Harness(engine === undefined ? {} : { engine });
  const router = new RouterVoice(h, 'a');
  h.advance(15_000);
  expect(router.report().phase).toBe('ready');
  router.leases();
  h.advance(1_100);
  return { h, router };
}

const chain = (chunks: number, end: number, turnEnds: number[] = []) => ({
  hashes: Uint32Array.from({ length: chunks * 2 }, (_, i) => (i % 2 === 0 ? i + 1 : 77)),
  endLow: end,
  endHigh: 99,
  turnEnds: Uint32Array.from(turnEnds.flatMap((each) => [each, 99])),
});

/** What a router gives back of its last report and prefixes. */
function resumeOf(router: RouterVoice): ResumeState {
  const report = router.report();
  const [snapshot, ...deltas] = router.prefixes();
  const all = [snapshot, ...deltas].flatMap((each) => (each === undefined ? [] : [each]));
  return {
    ...report,
    incarnation: report.incarnation as Incarnation,
    runs: all.flatMap((each) => each.runs),
    leaves: all.flatMap((each) => each.leaves),
  };
}

describe('from start to ready', () => {
  test('is ready only after a generation has succeeded and calibration is over', () => {
    const h = new Harness();
    const router = new RouterVoice(h, 'a');
    h.advance(15_000);
    expect(h.engine.orders[0]?.purpose).toBe('probe');
    expect(h.engine.orders.map((order) => order.purpose)).toContain('calibration');
    const phases = h.sent.flatMap((s) =>
      s.message.kind === 'report' ? [s.message.report.phase] : [],
    );
    expect([...new Set(phases)]).toEqual(['warming', 'ready']);
    const { prefillCost } = router.report();
    if (prefillCost === null) throw new Error('no curve');
    for (const [u, c] of [
      [500, 0],
      [4_000, 0],
      [300, 12_000],
    ] as const) {
      expect(prefillMs(prefillCost, u, c) / prefillMs(CURVE, u, c)).toBeCloseTo(1, 1);
    }
  });

  test('an idle agent wakes seldom: scrapes, reports, probes', () => {
    const { h } = ready();
    const before = h.wakes;
    h.advance(60_000);
    expect(h.wakes - before).toBeLessThan(60 * 5);
  });

  test('an engine that refuses is starting; with a living process it is loading', () => {
    const engine = new FakeEngine();
    engine.mode = 'refused';
    const h = new Harness({ engine });
    const router = new RouterVoice(h, 'a');
    h.advance(2_000);
    expect([router.report().phase, router.report().incarnation]).toEqual(['starting', null]);
    engine.evidence = 'alive';
    h.advance(2_000);
    expect(router.report().phase).toBe('loading');
    engine.mode = 'up';
    h.advance(15_000);
    expect(router.report().phase).toBe('ready');
  });

  test('what answers as no engine does is said once while it lasts', () => {
    const engine = new FakeEngine();
    engine.mode = 'strange';
    const h = new Harness({ engine });
    const said = (): number => h.logs.filter((code) => code === 'scrape_failed').length;
    h.advance(1_500);
    expect(said()).toBe(0);
    h.advance(20_000);
    expect(said()).toBe(1);
    engine.mode = 'up';
    h.advance(5_000);
    engine.mode = 'strange';
    h.advance(10_000);
    expect(said()).toBe(2);
  });

  test('the agent’s own generations are in no statistic of users', () => {
    const { router } = ready();
    const report = router.report();
    expect([report.running, report.itlMs, report.bytesPerToken, report.kappa]).toEqual([
      0,
      null,
      null,
      1,
    ]);
    expect(report.derived).toContain('prefillTps');
  });
});

describe('reports', () => {
  test('come within 50 ms of a change and every second without one', () => {
    const { h, router } = ready();
    const from = h.nowMs;
    router.sent('x');
    h.advance(50);
    expect([router.report().ackedSeq, router.report().running]).toEqual([1, 1]);
    router.first('x');
    router.ended('x', null);
    h.advance(50);
    const times = h.sent
      .filter((s) => s.message.kind === 'report' && s.atMs >= from)
      .map((s) => s.atMs);
    for (let i = 1; i < times.length; i += 1) {
      expect((times[i] ?? 0) - (times[i - 1] ?? 0)).toBeGreaterThanOrEqual(50);
    }
    h.advance(10_000);
    const seqs = h.sent.flatMap((s) => (s.message.kind === 'report' ? [s] : []));
    for (let i = 1; i < seqs.length; i += 1) {
      expect((seqs[i]?.atMs ?? 0) - (seqs[i - 1]?.atMs ?? 0)).toBeLessThanOrEqual(1_010);
    }
  });

  test('every router gets its own acknowledgement and the same figures', () => {
    const { h, router } = ready();
    const other = new RouterVoice(h, 'b');
    h.advance(60);
    expect(other.report().ackedSeq).toBe(-1);
    other.leases();
    router.sent('x', { uncachedTokens: 300, promptTokens: 300 });
    router.sent('y', { uncachedTokens: 200, promptTokens: 200 });
    h.advance(60);
    expect([router.report().ackedSeq, other.report().ackedSeq]).toEqual([2, 0]);
    expect([router.report().waitingPrefillTokens, other.report().waitingPrefillTokens]).toEqual([
      500, 500,
    ]);
    expect(other.report().routers).toBe(2);
  });

  test('a router that is linked twice is one router', () => {
    const { h, router } = ready();
    new RouterVoice(h, 'a2', { router: 'router-a' });
    h.advance(60);
    expect(router.report().routers).toBe(1);
  });

  test('what routers hold queued is summed, and each is told how it stands among them', () => {
    const { h, router } = ready();
    const other = new RouterVoice(h, 'b');
    const queued = { kind: 'queued', pool: POOL } as const;
    h.say(router.link, { ...queued, prefillMs: 300, requests: 2, topPriority: 0 });
    h.say(other.link, { ...queued, prefillMs: 200, requests: 1, topPriority: -1, headAgeMs: 400 });
    h.advance(60);
    const sum = { prefillMs: 500, requests: 3, topPriority: -1, routersQueueing: 2 };
    const turn = { othersAtTop: 1, before: 1, turnMs: 25 };
    const behind = { ...turn, othersTop: -1, othersRequests: 1 };
    const { place } = router.report().queued;
    expect(router.report().queued).toEqual({
      ...sum,
      place: { ...behind, oldestAgeMs: place?.oldestAgeMs },
    });
    expect(place?.oldestAgeMs).toBeGreaterThan(400);
    expect(place?.oldestAgeMs).toBeLessThanOrEqual(460);
    const ahead = { ...turn, othersTop: 0, othersRequests: 2 };
    expect(other.report().queued).toEqual({ ...sum, place: ahead });
    h.deliver({ kind: 'linkDown', link: other.link });
    h.advance(60);
    expect(router.report().queued).toEqual({
      prefillMs: 300,
      requests: 2,
      topPriority: 0,
      routersQueueing: 1,
      place: { othersTop: null, othersAtTop: 0, before: 0 },
    });
  });

  test('the older of two next requests goes first, until its router has sent something', () => {
    const { h, router } = ready();
    const other = new RouterVoice(h, 'b');
    const queued = {
      kind: 'queued',
      pool: POOL,
      prefillMs: 10,
      requests: 1,
      topPriority: 0,
    } as const;
    h.say(router.link, { ...queued, headAgeMs: 500 });
    h.advance(100);
    h.say(other.link, { ...queued, headAgeMs: 550 });
    h.advance(60);
    const before = (voice: RouterVoice) => voice.report().queued.place?.before;
    expect([before(router), before(other)]).toEqual([0, 1]);
    router.sent('r.1');
    h.advance(60);
    expect([before(router), before(other)]).toEqual([1, 0]);
  });

  test.each([
    ['leaves an echo unanswered', ['heard'], false],
    ['was never asked for one', [], true],
  ])('a stream of a router that %s is waited for: %s, %s', (_, features, isWaitedFor) => {
    const { h, router } = ready();
    const other = new RouterVoice(h, 'b', { features });
    other.leases();
    other.sent('b.1', { promptTokens: 3_000, uncachedTokens: 3_000 });
    const isWaiting = () => (router.report().waitingPrefillMs ?? 0) > 0;
    h.advance(1_500);
    expect(isWaiting()).toBe(true);
    h.advance(6_000);
    expect(isWaiting()).toBe(isWaitedFor);
  });

  test('a router that asks is told which events of the others a report includes, once', () => {
    const { h } = ready();
    const asks = new RouterVoice(h, 'asks', { features: ['others_acked'] });
    const other = new RouterVoice(h, 'b');
    const acked = (link: LinkId) =>
      h.sent.flatMap(({ link: to, message }) =>
        to === link && message.kind === 'report' ? (message.othersAcked ?? []) : [],
      );
    asks.leases();
    other.leases();
    h.advance(100);
    const before = acked(asks.link).length;
    other.sent('b.1');
    asks.sent('a.1');
    h.advance(1_000);
    expect(acked(asks.link).slice(before)).toEqual([{ router: 'router-b', seq: 1 }]);
    expect(acked(other.link)).toEqual([]);
  });

  test('a fenced engine is no longer spoken of over that link', () => {
    const { h, router } = ready();
    h.say(router.link, { kind: 'fence', replica: REPLICA });
    const count = h.sent.length;
    h.advance(5_000);
    h.deliver({ kind: 'stop' });
    expect(h.sent.length).toBe(count);
    expect(h.logs).toContain('fenced');
  });

  test('stopping says bye and falls silent', () => {
    const { h, router } = ready();
    h.deliver({ kind: 'stop' });
    expect(h.sent.at(-1)).toMatchObject({
      link: router.link,
      message: { kind: 'bye', reason: 'shutdown' },
    });
    expect(h.core.nextWakeMs()).toBeNull();
  });
});

describe('what one link is told of several targets', () => {
  test('leaves at the same moments, an interval apart, prefixes with the reports', () => {
    const h = new Harness({ ranks: 2 });
    const link = h.link('a');
    h.advance(15_000);
    for (const rank of [0, 1]) {
      h.say(link, { kind: 'leases', replica: REPLICA, rank, seq: 0, open: [] });
    }
    const fromMs = h.nowMs + 1_000;
    // At instants that have nothing to do with the interval.
    for (let k = 1; k <= 300; k += 1) {
      const hashes = Uint32Array.of(k, 77);
      const chains = [{ hashes, endLow: k, endHigh: 99, turnEnds: new Uint32Array(0) }];
      const facts = leaseFacts(`l${k}`, { promptBytes: 600, chains });
      const { incarnation } = h.report(link);
      const sent = { ...facts, incarnation, kind: 'sent', replica: REPLICA, agoMs: 0 } as const;
      h.say(link, { ...sent, rank: k % 2, seq: Math.ceil(k / 2) });
      h.advance(k % 2 === 0 ? 3 : 10);
    }
    const moments = new Map<number, string[]>();
    for (const { atMs, message } of h.sent) {
      if (atMs < fromMs) continue;
      const rank =
        message.kind === 'prefix'
          ? `p${message.rank}`
          : 'report' in message
            ? `r${message.report.rank}`
            : '';
      moments.set(atMs, [...(moments.get(atMs) ?? []), rank]);
    }
    for (const told of moments.values()) expect(told.toSorted()).toEqual(['p0', 'p1', 'r0', 'r1']);
    const [first = 0, ...times] = [...moments.keys()];
    expect(times.length).toBeGreaterThan(15);
    expect((times.at(-1) ?? 0) - first).toBeGreaterThanOrEqual(50 * times.length);
  });
});

describe('prefixes', () => {
  test('a snapshot on every link, then deltas with growing numbers; a resync asks for a snapshot', () => {
    const { h, router } = ready();
    router.sent('x', { promptBytes: 3 * 512 + 100, chains: [chain(3, 500)] });
    h.advance(100);
    router.first('x');
    router.ended('x', { promptTokens: 400, cachedTokens: 0, completionTokens: 25 });
    h.advance(100);
    const [first, ...deltas] = router.prefixes();
    expect([first?.seq, first?.runs.length]).toEqual([0, 0]);
    expect(deltas.map((each) => each.seq)).toEqual([1, 2]);
    expect(deltas[0]?.runs.map((run) => [run.depth, run.hashes.length])).toEqual([[0, 6]]);
    expect(deltas[1]?.leaves).toEqual([
      { hashLow: 500, hashHigh: 99, promptTokens: 400, answerTokens: 25 },
    ]);
    const late = new RouterVoice(h, 'b');
    h.advance(60);
    expect(late.prefixes().map((each) => [each.seq, each.runs.length, each.leaves.length])).toEqual(
      [[0, 1, 1]],
    );
    h.say(router.link, { kind: 'resync', replica: REPLICA, rank: 0 });
    h.advance(60);
    expect(router.prefixes().at(-1)).toMatchObject({ seq: 0, leaves: [{ hashLow: 500 }] });
  });

  test('of a large snapshot come in parts, which say that they are', () => {
    const engine = new FakeEngine();
    engine.maxModelLen = 4_000_000;
    engine.rank = { ...engine.rank, kvCapacityTokens: 4_000_000 };
    const { h, router } = ready(engine);
    const chunks = 20_000;
    router.sent('x', { promptBytes: chunks * 512, chains: [chain(chunks, 500)] });
    router.first('x');
    router.ended('x', { promptTokens: 2_560_000, cachedTokens: 0, completionTokens: 25 });
    h.advance(100);
    expect(router.prefixes().map(({ continues = false }) => continues)).not.toContain(true);
    const late = new RouterVoice(h, 'b');
    h.advance(60);
    expect(late.prefixes().map(({ seq, continues }) => [seq, continues])).toEqual([
      [0, undefined],
      [1, true],
    ]);
    expect(late.prefixes()[1]?.leaves).toHaveLength(1);
  });

  test('of a long delta come in parts to a router that expects them, and at once to one that does not', () => {
    const engine = new FakeEngine();
    engine.maxModelLen = 4_000_000;
    engine.rank = { ...engine.rank, kvCapacityTokens: 4_000_000 };
    const { h, router } = ready(engine);
    const newer = new RouterVoice(h, 'b', { features: ['delta_parts'] });
    h.advance(60);
    const chunks = 3_000;
    router.sent('x', { promptBytes: chunks * 512, chains: [chain(chunks, 500)] });
    router.first('x');
    h.advance(100);
    const sizes = (of: RouterVoice): number[] =>
      of
        .prefixes()
        .slice(1)
        .map(({ runs }) => runs.reduce((sum, { hashes }) => sum + hashes.length / 2, 0));
    expect(sizes(router)).toEqual([chunks]);
    expect(sizes(newer)).toEqual([1_024, 1_024, 952]);
    expect(newer.prefixes().map(({ seq }) => seq)).toEqual([0, 1, 2, 3]);
    // Those are of a delta: their turns have ended just now.
    expect(newer.prefixes().every(({ continues = false }) => !continues)).toBe(true);
  });

  test('are bounded by the engine’s KV capacity', () => {
    const engine = new FakeEngine();
    engine.rank = { ...engine.rank, kvCapacityTokens: 1_280 };
    const { h, router } = ready(engine);
    for (let i = 0; i < 5; i += 1) {
      const hashes = Uint32Array.from({ length: 12 }, (_, j) => 1_000 * (i + 1) + j);
      router.sent(`x${i}`, { promptBytes: 6 * 512, chains: [{ ...chain(0, 9_000 + i), hashes }] });
      h.advance(200);
      router.first(`x${i}`);
      router.ended(`x${i}`, { promptTokens: 768, cachedTokens: 0, completionTokens: 0 });
      h.advance(200);
    }
    const evicted = router.prefixes().reduce((sum, each) => sum + each.evicted.length / 2, 0);
    // 30 chunks and 5 leaves came, 10 chunks of 128 tokens fit.
    expect(evicted).toBeGreaterThanOrEqual(20);
    // Nobody has come back: whether anybody will is unknown.
    expect(router.report().workingSetTokens).toBeNull();
  });

  test('know what comes back of what its routers tell, also where the turn before was elsewhere', () => {
    const workingSet = (rested: { restedMs?: number }): number | null => {
      const { h, router } = ready();
      for (let i = 0; i < 10; i += 1) {
        const hashes = Uint32Array.from({ length: 20 }, (_, j) => 1_000 * (i + 1) + j);
        const chains = [{ ...chain(0, 9_000 + i), hashes }];
        router.sent(`x${i}`, { promptBytes: 10 * 512, chains, ...rested });
        router.first(`x${i}`);
        router.ended(`x${i}`, { promptTokens: 1_280, cachedTokens: 0, completionTokens: 0 });
        h.advance(700);
      }
      return router.report().workingSetTokens;
    };
    expect(workingSet({})).toBeNull();
    // Four or five of them have ended within 3 s.
    const known = workingSet({ restedMs: 3_000 });
    expect(known).toBeGreaterThan(4 * 1_280 - 1);
    expect(known).toBeLessThan(6 * 1_280);
  });

  test('lets a prompt that fits in no way evict nothing; it counts for the context', () => {
    const { h, router } = ready();
    router.sent('a', { promptBytes: 20 * 512, chains: [chain(20, 1)] });
    router.first('a');
    router.ended('a', { promptTokens: 2_560, cachedTokens: 0, completionTokens: 10 });
    const huge = { promptTokens: 300_000, uncachedTokens: 300_000, promptBytes: 1_200_000 };
    router.sent('huge', { ...huge, chains: [chain(2_343, 2)] });
    h.advance(200);
    expect(router.report().waitingPrefillTokens).toBe(32_768);
    router.ended('huge', null, 'failed');
    h.advance(1_000);
    expect(router.prefixes().flatMap(({ evicted }) => [...evicted])).toEqual([]);
  });
});

describe('what is learned from usage', () => {
  const serve = (
    router: RouterVoice,
    h: Harness,
    lease: string,
    facts: Partial<LeaseFacts>,
    usage: Usage,
  ): void => {
    router.sent(lease, facts);
    h.advance(200);
    router.first(lease);
    h.advance(10);
    router.ended(lease, usage);
    h.advance(600);
  };

  test('bytes per token', () => {
    const { h, router } = ready();
    for (let i = 0; i < 20; i += 1) {
      serve(
        router,
        h,
        `x${i}`,
        { promptBytes: 4_200 },
        { promptTokens: 1_000, cachedTokens: 0, completionTokens: 5 },
      );
    }
    expect(router.report().bytesPerToken?.mean).toBeCloseTo(4.2);
  });

  test('κ is reported over predicted, rounded down to blocks; an index that keeps being wrong is dropped', () => {
    const { h, router } = ready();
    const chains = [chain(4, 600)];
    const predicted = {
      promptTokens: 1_000,
      uncachedTokens: 200,
      matchedTokens: 800,
      promptBytes: 4_000,
      chains,
    };
    for (let i = 0; i < 15; i += 1) {
      serve(router, h, `x${i}`, predicted, {
        promptTokens: 1_000,
        cachedTokens: 640,
        completionTokens: 1,
      });
    }
    expect(router.report().kappa).toBeGreaterThan(0.75);
    expect(router.report().kappa).toBeLessThan(0.9);
    for (let i = 0; i < 120 && !h.logs.includes('index_dropped'); i += 1) {
      serve(router, h, `y${i}`, predicted, {
        promptTokens: 1_000,
        cachedTokens: 0,
        completionTokens: 1,
      });
    }
    expect(h.logs).toContain('index_dropped');
    expect(router.prefixes().at(-1)).toMatchObject({ seq: expect.any(Number) });
    const snapshots = router.prefixes().filter((each) => each.seq === 0);
    expect(snapshots.at(-1)?.runs).toEqual([]);
    expect(router.report().kappa).toBe(1);
  });

  test('prefill tokens per second come from busy time and hold when idle', () => {
    const { h, router } = ready();
    for (let i = 0; i < 5; i += 1) {
      serve(
        router,
        h,
        `x${i}`,
        {},
        { promptTokens: 1_000, cachedTokens: 200, completionTokens: 1 },
      );
    }
    h.advance(60_000);
    expect(router.report().prefillTps).toBeCloseTo(800 / 0.2, -1);
    expect(router.report().derived).not.toContain('prefillTps');
  });

  test('a pace that nothing has shown for a minute is none: who was slow for a moment gets work again', () => {
    const { h, router } = ready();
    const costMs = (): number => prefillMs(router.report().prefillCost ?? CURVE, 800, 0);
    const prefill = (lease: string, ms: number): void => {
      router.sent(lease, { promptTokens: 800, uncachedTokens: 800 });
      h.advance(ms);
      router.first(lease);
      h.advance(10);
      router.ended(lease, { promptTokens: 800, cachedTokens: 0, completionTokens: 1 });
      h.advance(600);
    };
    for (let i = 0; i < 40; i += 1) prefill(`usual${i}`, 200);
    expect(costMs()).toBeCloseTo(200, -1);
    for (let i = 0; i < 5; i += 1) prefill(`slow${i}`, 600);
    expect(costMs()).toBeGreaterThan(500);
    h.advance(50_000);
    expect(costMs()).toBeGreaterThan(500);
    h.advance(12_000);
    expect(costMs()).toBeLessThan(300);
  });
});

describe('traffic that no router told of', () => {
  test('is what the engine counts above the ledger on two scrapes in a row, times a mean prompt', () => {
    const { h, router } = ready();
    h.engine.add({ waiting: 3, running: 1 });
    h.advance(1_200);
    expect(router.report().unattributedTokens).toBe(0);
    h.advance(1_000);
    expect(router.report().unattributedTokens).toBeGreaterThan(0);
    expect(router.report().waitingPrefillTokens).toBe(router.report().unattributedTokens);
    expect(router.report().running).toBe(4);
  });

  test('does not include what routers have told of', () => {
    const { h, router } = ready();
    for (let i = 0; i < 4; i += 1)
      router.sent(`x${i}`, { uncachedTokens: 8_000, promptTokens: 8_000 });
    h.engine.add({ waiting: 3, running: 1 });
    h.advance(3_000);
    expect([router.report().unattributedTokens, router.report().running]).toEqual([0, 4]);
  });
});

test('what waits in an engine that shows no load is unknown, not the ledger’s part of it', () => {
  const { h, router } = ready();
  router.sent('x', { uncachedTokens: 8_000, promptTokens: 8_000 });
  h.advance(1_100);
  expect(router.report().waitingPrefillMs).toBeGreaterThan(0);
  h.engine.rank = { ...h.engine.rank, running: null, waiting: null };
  h.advance(2_000);
  expect(router.report()).toMatchObject({
    waitingPrefillMs: null,
    waitingPrefillTokens: null,
    unattributedTokens: null,
  });
});

describe('a restarted agent', () => {
  test.each([0, 50])('says that it is ready, though told %s ms late of the engine', (lateMs) => {
    const { h, router } = ready(new FakeEngine());
    const restarted = new Harness({ engine: h.engine, seed: 2, startMs: h.nowMs });
    restarted.advance(lateMs);
    restarted.link('a', { resume: [resumeOf(router)] });
    restarted.advance(50);
    expect(restarted.phases.at(-1)).toBe('ready');
  });

  test.each([
    ['with a start time', 1_000],
    ['without a start time', null],
  ])('changes no figure beside a living engine %s', (_, startTimeSeconds) => {
    const engine = new FakeEngine();
    engine.startTimeSeconds = startTimeSeconds;
    const { h, router } = ready(engine);
    const facts = {
      promptBytes: 2_000,
      promptTokens: 500,
      uncachedTokens: 500,
      chains: [chain(3, 700)],
    };
    router.sent('done', facts);
    h.advance(300);
    router.first('done');
    router.ended('done', { promptTokens: 480, cachedTokens: 0, completionTokens: 30 });
    router.sent('open', { ...facts, promptTokens: 12_000, uncachedTokens: 12_000, chains: [] });
    h.advance(100);
    const before = router.reportNow();
    const resume = resumeOf(router);
    const orders = engine.orders.length;

    const restarted = new Harness({ engine, seed: 2, startMs: h.nowMs });
    const again = new RouterVoice(restarted, 'a', { resume: [resume] });
    again.leases({
      facts: {
        ...leaseFacts('open', {
          ...facts,
          promptTokens: 12_000,
          uncachedTokens: 12_000,
          chains: [],
        }),
        incarnation: before.incarnation,
      },
      sentAgoMs: 100,
      firstTokenAgoMs: null,
    });
    restarted.advance(100);
    const after = again.reportNow();
    const first = restarted.sent.find((s) => s.message.kind === 'report');
    expect(first?.message).toMatchObject({ report: { phase: 'ready' } });
    for (const name of [
      'incarnation',
      'phase',
      'waitingPrefillTokens',
      'largestPrefillMs',
      'kappa',
      'running',
    ] as const) {
      expect([name, after[name]]).toEqual([name, before[name]]);
    }
    expect(after.prefillCost).toEqual(before.prefillCost);
    expect(after.bytesPerToken?.mean).toBeCloseTo(before.bytesPerToken?.mean ?? 0);
    // 100 ms of progress later.
    expect(after.waitingPrefillMs).toBeCloseTo((before.waitingPrefillMs ?? 0) - 100, 3);
    expect(again.prefixes()[0]?.runs).toEqual(resume.runs);
    expect(again.prefixes()[0]?.leaves).toEqual(resume.leaves);
    expect(engine.orders.length).toBe(orders);
  });

  test('calibrates when the router remembers another life of the engine', () => {
    const { h, router } = ready();
    const resume = resumeOf(router);
    h.engine.startTimeSeconds = 2_000;
    const restarted = new Harness({ engine: h.engine, seed: 2, startMs: h.nowMs });
    const again = new RouterVoice(restarted, 'a', { resume: [resume] });
    restarted.advance(100);
    expect([again.report().phase, again.prefixes()[0]?.runs]).toEqual(['warming', []]);
    expect(again.report().incarnation).not.toBe(resume.incarnation);
  });

  test('without a start time, a router whose counters are ahead remembers another engine', () => {
    const engine = new FakeEngine();
    engine.startTimeSeconds = null;
    const { h, router } = ready(engine);
    const resume = { ...resumeOf(router), counters: { promptTokens: 1e9, generationTokens: null } };
    const restarted = new Harness({ engine, seed: 2, startMs: h.nowMs });
    const again = new RouterVoice(restarted, 'a', { resume: [resume] });
    restarted.advance(100);
    expect(again.report().phase).toBe('warming');
  });
});

describe('an engine that restarts', () => {
  test.each([
    ['is known by its start time', (engine: FakeEngine) => (engine.startTimeSeconds = 2_000)],
    [
      'is known by a counter that went back',
      (engine: FakeEngine) => {
        engine.rank = { ...engine.rank, promptTokensTotal: 0, generationTokensTotal: 0 };
      },
    ],
  ])('%s: ledger and index begin anew, the curve stays as a prior', (_, restart) => {
    const engine = new FakeEngine();
    if (restart.toString().includes('rank')) engine.startTimeSeconds = null;
    const { h, router } = ready(engine);
    const old = router.incarnation;
    router.sent('x', { promptBytes: 2_000, chains: [chain(3, 800)] });
    h.advance(100);
    expect(router.report().running).toBe(1);
    restart(engine);
    h.advance(1_100);
    const report = router.report();
    expect(report.incarnation).not.toBe(old);
    expect([report.phase, report.running, report.ackedSeq, report.prefillCost]).toEqual([
      'warming',
      0,
      -1,
      null,
    ]);
    expect(router.prefixes().at(-1)).toMatchObject({
      seq: 0,
      runs: [],
      incarnation: report.incarnation,
    });
    router.leases();
    h.advance(15_000);
    expect([router.report().phase, router.report().ackedSeq]).toEqual(['ready', 0]);
  });

  test('without a start time, two refused scrapes are another life', () => {
    const engine = new FakeEngine();
    engine.startTimeSeconds = null;
    const { h, router } = ready(engine);
    const old = router.incarnation;
    engine.mode = 'refused';
    h.advance(1_300);
    expect(router.report().phase).toBe('starting');
    engine.mode = 'up';
    h.advance(1_300);
    expect(router.incarnation).not.toBe(old);
  });
});

describe('frozen', () => {
  test('silent with work for 10 s, then a failed canary: degraded; back after three good probes', () => {
    const { h, router } = ready();
    router.sent('w');
    h.advance(100);
    router.first('w');
    router.sent('x', { promptTokens: 100, uncachedTokens: 100 });
    h.engine.mode = 'frozen';
    h.advance(10_000);
    expect(router.report().phase).toBe('ready');
    h.advance(5_000);
    expect(router.report().phase).toBe('degraded');
    h.engine.mode = 'up';
    h.advance(30_000);
    expect(router.report().phase).toBe('ready');
  });

  test('a lone 26 s prefill is not frozen', () => {
    const engine = new FakeEngine();
    engine.maxModelLen = 262_144;
    const { h, router } = ready(engine);
    const tokens = 250_000;
    expect(prefillMs(CURVE, tokens, 0)).toBeGreaterThan(26_000);
    router.sent('x', { promptTokens: tokens, uncachedTokens: tokens });
    h.engine.mode = 'frozen';
    h.advance(26_000);
    router.first('x');
    h.engine.mode = 'up';
    h.advance(60_000);
    expect(h.logs).not.toContain('phase degraded');
    const phases = h.sent.flatMap((s) =>
      s.message.kind === 'report' ? [s.message.report.phase] : [],
    );
    expect(phases).not.toContain('degraded');
  });

  test('users’ first tokens spare the engine the probes', () => {
    const { h, router } = ready();
    const before = h.engine.orders.length;
    for (let i = 0; i < 12; i += 1) {
      router.sent(`x${i}`);
      h.advance(100);
      router.first(`x${i}`);
      router.ended(`x${i}`, null);
      h.advance(9_900);
    }
    expect(h.engine.orders.length).toBe(before);
    h.advance(31_000);
    expect(h.engine.orders.length).toBeGreaterThan(before);
  });
});

test('a sleeping engine is asleep and its index is empty', () => {
  const { h, router } = ready();
  router.sent('x', { promptBytes: 2_000, chains: [chain(3, 900)] });
  h.advance(100);
  router.first('x');
  router.ended('x', { promptTokens: 500, cachedTokens: 0, completionTokens: 3 });
  h.advance(100);
  h.engine.rank = { ...h.engine.rank, asleep: true };
  h.advance(1_200);
  expect(router.report().phase).toBe('asleep');
  expect(router.prefixes().at(-1)).toMatchObject({ seq: 0, runs: [], leaves: [] });
  h.engine.rank = { ...h.engine.rank, asleep: false };
  h.advance(3_000);
  expect(router.report().phase).toBe('ready');
});

test('a router that returns within the grace changes no figure', () => {
  const { h, router } = ready();
  router.sent('x', { promptTokens: 20_000, uncachedTokens: 20_000 });
  h.advance(100);
  const before = router.reportNow();
  h.deliver({ kind: 'linkDown', link: router.link });
  h.advance(500);
  const again = new RouterVoice(h, 'a-again', { router: 'router-a' });
  const facts = leaseFacts('x', { promptTokens: 20_000, uncachedTokens: 20_000 });
  again.leases({
    facts: { ...facts, incarnation: before.incarnation },
    sentAgoMs: 600,
    firstTokenAgoMs: null,
  });
  h.advance(60);
  const after = again.reportNow();
  expect([after.running, after.waitingPrefillTokens]).toEqual([1, 20_000]);
  expect(again.report().ackedSeq).toBe(0);
  expect(after.waitingPrefillMs).toBeCloseTo((before.waitingPrefillMs ?? 0) - 560, 3);
});

test('a router that does not return is released after the grace', () => {
  const engine = new FakeEngine();
  const { h, router } = ready(engine);
  const other = new RouterVoice(h, 'b');
  router.sent('x');
  engine.add({ running: 1 });
  h.deliver({ kind: 'linkDown', link: router.link });
  h.advance(9_900);
  expect(other.report().running).toBe(1);
  engine.add({ running: -1 });
  h.advance(200);
  expect(other.report().running).toBe(0);
});

test('a router that died is released with the first scrape that shows its requests gone', () => {
  const { h, router } = ready();
  const other = new RouterVoice(h, 'b');
  router.sent('x');
  h.deliver({ kind: 'linkDown', link: router.link });
  h.advance(2_100);
  expect(other.report().running).toBe(0);
});
