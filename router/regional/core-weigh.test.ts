// The fast weighing of a pool says what the plain one says, number by number, and the decision drawn
// from it is the one that a look at every candidate gives.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import type { AgentId, LinkId, PoolId, ReplicaId, RouterId } from '../../shared/model/ids.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { AGENT_FEATURES, type PrefixMessage } from '../../shared/protocol/messages.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import { draw, drawProbabilities } from '../policy/pick.ts';
import { decide } from './core-decide.ts';
import { heard, linkDown, linkUp } from './core-links.ts';
import { attemptEnded } from './core-outcomes.ts';
import { probed, sweep } from './core-freshness.ts';
import { noteFirstToken } from './core-leases.ts';
import { curveOf, loadOf, poolCurve, viewOf } from './core-load.ts';
import { arrive, enter } from './core-requests.ts';
import { roomNow, serves } from './core-room.ts';
import { Roster } from './core-roster.ts';
import { Shares } from './core-share.ts';
import { noteOthersAcked, siblingDown, siblingSaid, siblingUp } from './core-siblings.ts';
import { RegionalState, type LeaseState, type PoolState, type RequestState } from './core-state.ts';
import { weighPlainly } from './core-weigh-plain.harness.ts';
import { isReady, NOBODY } from './core-ready.ts';
import { weigh } from './core-weigh.ts';
import type { Scored } from './core-weighing.ts';
import { roomForNew } from './core-working-set.ts';
import { chainOf, configOf, CoreRig, MODEL, reportOf } from './core.harness.ts';

const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | null> => fc.option(value, { freq: 4 });
const amount = (max: number): fc.Arbitrary<number> => fc.double({ min: 0, max, noNaN: true });

const figures = fc.record({
  phase: fc.constantFrom('ready', 'ready', 'ready', 'ready', 'degraded', 'loading'),
  degradedFor: fc.constantFrom('slow', 'slow', 'probe', null),
  slowRatio: maybe(amount(9)),
  prefillCost: maybe(
    fc.record({
      baseMs: amount(30),
      frontMsPerToken: amount(0.01),
      linearMsPerToken: fc.constantFrom(0.05, 0.1, 0.1, 0.4),
      contextMsPerToken2: amount(1e-5),
      stepTokens: fc.constantFrom(256, 2_048),
    }),
  ),
  waitingPrefillMs: maybe(fc.constantFrom(0, 0, 5, 40, 59.9, 60, 500)),
  waitingPrefillTokens: maybe(fc.nat(4_000)),
  slotWaitMs: maybe(fc.constantFrom(0, 0, 100)),
  running: maybe(fc.nat(5)),
  runningMax: maybe(fc.integer({ min: 1, max: 8 })),
  itlMs: maybe(amount(30)),
  kvUsageRatio: maybe(amount(1)),
  preemptionsPerMin: maybe(fc.constantFrom(0, 0, 12)),
  bytesPerToken: maybe(
    fc.record({
      mean: fc.double({ min: 1, max: 6, noNaN: true }),
      p5: fc.constant(1),
      p95: fc.constant(6),
    }),
  ),
  blockTokens: maybe(fc.constantFrom(1, 16, 64)),
  kappa: fc.constantFrom(1, 1, 0.7, 0),
  partTokens: fc.constantFrom({}, { image: 300 }),
  kvCapacityTokens: maybe(fc.constantFrom(2_000, 50_000)),
  workingSetTokens: maybe(fc.nat(3_000)),
  ackedSeq: fc.constantFrom(-1, 0, 2, 1_000_000),
  queued: fc.constantFrom(
    { prefillMs: 0, requests: 0, topPriority: null, routersQueueing: 0 },
    { prefillMs: 90, requests: 3, topPriority: 0, routersQueueing: 2 },
  ),
  models: fc.constantFrom(
    [{ id: MODEL, maxModelLen: 32_768, loras: [] }],
    [{ id: MODEL, maxModelLen: null, loras: ['tuned'] }],
    [{ id: MODEL, maxModelLen: 300, loras: [] }],
    [{ id: 'other', maxModelLen: null, loras: [MODEL] }],
    [{ id: 'other', maxModelLen: null, loras: [] }],
    [],
  ),
}) as unknown as fc.Arbitrary<Partial<ReplicaReport>>;

const path = fc.array(fc.nat(2), { minLength: 1, maxLength: 6 });
const name = fc.nat(6);
const prompt = fc.record({
  path,
  turns: fc.array(fc.nat(5), { maxLength: 5 }),
  parts: fc.constantFrom({}, {}, {}, { image: 2 }),
  tokenIds: fc.option(fc.integer({ min: 1, max: 2_000 }), { freq: 6 }),
});
const asked = fc.record({
  prompts: fc.oneof(
    { weight: 5, arbitrary: fc.tuple(prompt) },
    { weight: 1, arbitrary: fc.array(prompt, { maxLength: 4 }) },
  ),
  maxTokens: fc.option(fc.nat(500)),
  work: fc.constantFrom('generation', 'generation', 'generation', 'prefill', 'light'),
  priority: fc.integer({ min: -1, max: 1 }),
  truncates: fc.boolean(),
});

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('report' as const),
      name,
      figures,
      life: fc.option(fc.constantFrom(1, 1, 1, 2), { nil: undefined }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('holds' as const), name, path, leaf: fc.boolean() }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('arrive' as const), asked }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('fail' as const),
      which: fc.nat(),
      pause: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('down' as const), name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('bye' as const), name }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('up' as const),
      name,
      ranks: fc.integer({ min: 1, max: 3 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('sibling' as const),
      name,
      opened: fc.array(fc.nat(9), { maxLength: 3 }),
      past: fc.array(fc.nat(9), { maxLength: 3 }),
      tokens: fc.nat(2_000),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('siblingGone' as const), acked: fc.boolean(), name }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(300) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(40_000) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('begin' as const), which: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('complete' as const), which: fc.nat() }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('probed' as const), name, ok: fc.boolean() }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;
type Asked = typeof asked extends fc.Arbitrary<infer S> ? S : never;

const FAULT: AttemptResult = { kind: 'serverFault', cause: 'reset', detail: '' };
const BUSY: AttemptResult = { kind: 'backPressure', status: 429, retryAfterMs: 400 };

/** A state of the core that is driven event by event, without its queue. */
class Rig {
  readonly state = new RegionalState({
    routerId: 'router' as RouterId,
    software: 'test',
    config: configOf({ settings: { breakerFailures: 1, workingSetBound: 0.9 } }),
    random: { next: () => this.random.next() },
    wallMs: () => 0,
  });
  random = seededRandom(5);
  readonly #words = new CoreRig();
  readonly #seqs = new Map<number, number>();

  constructor() {
    this.state.nowMs = 1_000;
    for (let k = 0; k < 5; k += 1) this.run({ kind: 'up', name: k, ranks: 1 });
    siblingUp(this.state, SIBLING_LINK, SIBLING);
  }

  run(next: Step): void {
    const { state } = this;
    switch (next.kind) {
      case 'up':
        this.#up(next.name, next.ranks);
        break;
      case 'report': {
        const { life = 1 } = next;
        const incarnation = `r${next.name}/${life}` as ReplicaReport['incarnation'];
        const report = reportOf(`r${next.name}`, { ...next.figures, incarnation });
        heard(state, linkOf(next.name), { kind: 'report', report });
        break;
      }
      case 'holds':
        this.#holds(next.name, next.path, next.leaf);
        break;
      case 'arrive':
        arrive(state, this.request(next.asked));
        break;
      case 'fail': {
        const lease = this.#lease(next.which);
        const result = next.pause ? BUSY : FAULT;
        if (lease !== undefined) attemptEnded(state, lease, { result, committed: false } as never);
        break;
      }
      case 'down':
        linkDown(state, linkOf(next.name), 'cut');
        break;
      case 'bye': {
        const replica = `r${next.name}` as ReplicaId;
        heard(state, linkOf(next.name), { kind: 'bye', replica, reason: 'drained' });
        break;
      }
      case 'begin': {
        const lease = this.#lease(next.which);
        if (lease !== undefined) noteFirstToken(state, lease);
        break;
      }
      case 'complete': {
        const lease = this.#lease(next.which);
        const result: AttemptResult = { kind: 'complete', usage: null };
        if (lease !== undefined) attemptEnded(state, lease, { result, committed: true } as never);
        break;
      }
      case 'probed': {
        const replica = state.replicas.get(`r${next.name}` as ReplicaId);
        if (replica !== undefined) probed(state, replica, next.ok);
        break;
      }
      case 'sibling': {
        const { opened, past, tokens, name: k } = next;
        siblingSaid(state, SIBLING_LINK, {
          kind: 'sends',
          opened: opened.map((no) => ({
            ...{ no, replica: `r${k}` as ReplicaId, rank: 0, seq: no, requests: 1 + (no % 3) },
            ...{ promptTokens: tokens, uncachedTokens: tokens / 2, contextTokens2: tokens },
          })),
          past,
        });
        break;
      }
      case 'siblingGone':
        if (next.acked) {
          const target = state.replicas.get(`r${next.name}` as ReplicaId)?.targets[0];
          if (target !== undefined) noteOthersAcked(target, [{ router: SIBLING, seq: 4 }]);
          break;
        }
        siblingDown(state, SIBLING_LINK);
        siblingUp(state, SIBLING_LINK, SIBLING);
        break;
      case 'pass':
        state.nowMs += next.ms;
        sweep(state);
    }
    state.effects = [];
  }

  #lease(which: number): LeaseState | undefined {
    const leases = [...this.state.leases.values()];
    return leases[which % Math.max(1, leases.length)];
  }

  request({ prompts, ...more }: Asked): ReturnType<CoreRig['request']> {
    const chains = prompts.map(({ path: ids, turns, parts, tokenIds }): PromptChain => {
      const ends = turns.toSorted((a, b) => a - b).filter((at) => at < ids.length);
      const turnEnds = ends.map((at) => chainOf(ids.slice(0, at + 1)).end);
      return { ...chainOf(ids), turnEnds, parts, tokenIds };
    });
    return this.#words.request({ ...more, prompts: chains } as never);
  }

  #up(k: number, ranks: number): void {
    const replica = `r${k}` as ReplicaId;
    linkUp(this.state, linkOf(k), {
      kind: 'hello',
      protocol: [1, 1],
      features: k % 2 === 0 ? AGENT_FEATURES : [],
      agentId: `agent-${k}` as AgentId,
      software: 'test',
      pool: 'pool' as PoolId,
      engines: [{ replica, advertiseUrl: `http://${replica}`, ranks }],
      proofPort: null,
      wallMs: 0,
    });
  }

  #holds(k: number, ids: readonly number[], leaf: boolean): void {
    const seq = this.#seqs.get(k) ?? 0;
    this.#seqs.set(k, seq + 1);
    const { hashes, end } = chainOf(ids);
    const { hashLow, hashHigh } = end;
    heard(this.state, linkOf(k), {
      kind: 'prefix',
      replica: `r${k}` as ReplicaId,
      rank: 0,
      incarnation: `r${k}/1` as PrefixMessage['incarnation'],
      seq,
      runs: [{ parentLow: 0, parentHigh: 0, depth: 0, hashes }],
      leaves: leaf ? [{ hashLow, hashHigh, promptTokens: 100 * ids.length, answerTokens: 40 }] : [],
      evicted: new Uint32Array(0),
    });
  }
}

const SIBLING = 'sibling' as RouterId;
const SIBLING_LINK = 'sibling-1' as LinkId;

/** Seed of the draw that both make. */
const DRAWN_BY = 77;

const linkOf = (k: number): LinkId => `link-${k}` as LinkId;

function facts({ target, ...figuresOf }: Scored): object {
  return { key: target.key, ...figuresOf };
}

/** As a look at every candidate gives it, and who is drawn; null where nobody is. */
function plainDraw(
  state: RegionalState,
  request: RequestState,
): { drawn: Map<string, number>; chosen: string | null } | null {
  const weighing = weigh(state, request);
  const room = roomForNew(state, request, weighing);
  const all = Array.from({ length: weighing.count }, (_, k) => weighing.at(k));
  const [most, next] = all.toSorted((a, b) => b.cachedTokens - a.cachedTokens);
  const alone = (most?.cachedTokens ?? 0) > (next?.cachedTokens ?? 0);
  const home = alone && 2 * most!.cachedTokens >= most!.promptTokens ? most : undefined;
  const held = request.pool.queue.get(request.request.id)?.held !== undefined;
  const least = Math.min(...all.map(({ prefillMs }) => prefillMs));
  const { priority } = request.request;
  const own = least + state.settings.ageCredit * request.arrivedMs;
  const { topUnheld, leastKey } = request.pool.queue;
  const oldest = topUnheld === priority ? Math.min(own, leastKey ?? own) : own;
  const [key, heldKey] = held ? [null, null] : [own, oldest];
  const isItsTurn = (one: Scored): boolean =>
    new Shares(state, request.pool).opensInMs(
      one.target,
      { priority, key, heldKey },
      one.target === home?.target,
    ) === 0;
  const goesHome = home !== undefined && isItsTurn(home);
  const roomy = all.filter((one) => room?.acts !== true || room.of(one).state !== 'full');
  if (!roomy.some((one) => !one.load.full && (goesHome || isItsTurn(one)))) return null;
  const open = roomy.filter(({ load }) => !load.closed);
  const costs = open.map((one) => one.costMs);
  const tied = drawProbabilities(costs, state.settings);
  const picked = open[draw(tied, seededRandom(DRAWN_BY))];
  const shown = open.map((one, k): [string, number] => [
    one.target.key,
    isItsTurn(one) ? (tied[k] ?? 0) : 0,
  ]);
  return {
    drawn: new Map(shown),
    chosen: picked === undefined || !isItsTurn(picked) ? null : picked.target.key,
  };
}

/** What a queue asks of each target says what the plain functions say. */
function expectRooms({ state }: Rig, { pool }: RequestState): void {
  const { settings, nowMs } = state;
  const view = viewOf(state, pool);
  for (const [place, target] of pool.roster.targets.entries()) {
    expect(serves(pool, place)).toBe(isReady(target, NOBODY));
    const choice = curveOf(target, () => poolCurve(pool));
    const { full, roomAtMs } = loadOf(target, { ...choice, settings, view, nowMs });
    expect(roomNow(state, pool, place)).toMatchObject({ full, roomAtMs });
  }
}

function expectSame(rig: Rig, request: RequestState): void {
  const { state } = rig;
  const plain = weighPlainly(state, request);
  const weighing = weigh(state, request);
  const fast = Array.from({ length: weighing.count }, (_, k) => facts(weighing.at(k)));
  expect(fast).toEqual(plain.scored.map(facts));
  expect(weighing.removed).toEqual(plain.removed);
  expectRooms(rig, request);
  if (request.request.work === 'light') return;
  const ranked = plain.scored.toSorted((a, b) => a.costMs - b.costMs).slice(0, 16);
  const expected = plain.scored.length === 0 ? null : plainDraw(state, request);
  rig.random = seededRandom(DRAWN_BY);
  const { decision, chosen } = decide(state, request, { draw: true });
  expect(chosen?.target.key ?? null).toBe(expected?.chosen ?? null);
  const shown = decision.candidates.filter(({ removed }) => removed === null);
  expect(shown.map(({ target, drawProbability }) => [target, drawProbability])).toEqual(
    ranked.map(({ target }) => [
      { replica: target.replica.id, rank: target.rank },
      expected?.drawn.get(target.key) ?? 0,
    ]),
  );
}

test('the fast weighing is the plain one, and so are draw and candidates', () => {
  const steps = fc.array(step, { minLength: 5, maxLength: 60 });
  const last = fc.array(fc.tuple(asked, fc.subarray(['r0#0', 'r1#0', 'r2#0'])), {
    minLength: 3,
    maxLength: 6,
  });
  fc.assert(
    fc.property(steps, last, (before, requests) => {
      const rig = new Rig();
      for (const next of before) rig.run(next);
      for (const [one, tried] of requests) {
        const request = enter(rig.state, rig.request(one));
        if ('decision' in request) continue;
        for (const key of tried) request.tried.add(key);
        expectSame(rig, request);
      }
    }),
    { numRuns: 400 },
  );
});

/** What is kept of a pool's targets from one event to the next is what a look at all of them finds. */
function expectCurrent({ nowMs }: RegionalState, { roster, replicas }: PoolState): void {
  roster.sync();
  const anew = new Roster(replicas);
  anew.sync();
  const isSame = roster.targets.every((target, place) => target === anew.targets[place]);
  expect([roster.targets.length, isSame]).toEqual([anew.targets.length, true]);
  expect(roster.figures).toEqual(anew.figures);
  expect(roster.standing).toEqual(anew.standing);
  expect(roster.slots).toEqual(anew.slots);
  expect(roster.degraded).toBe(anew.degraded);
  expect(roster.medianCurve()).toEqual(anew.medianCurve());
  for (const model of [MODEL, 'tuned', 'other']) {
    expect(roster.limits(model)).toEqual(anew.limits(model));
  }
  const all = [...replicas].flatMap(({ targets }) => targets);
  const tripped = all.filter(({ breaker }) => breaker.state(nowMs) !== 'closed');
  expect(roster.breakers.tripped).toBe(tripped.length);
}

test('what is kept of all targets is true after every event', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 5, maxLength: 60 }), (steps) => {
      const rig = new Rig();
      for (const next of steps) {
        rig.run(next);
        for (const pool of rig.state.pools.values()) expectCurrent(rig.state, pool);
      }
    }),
    { numRuns: 150 },
  );
});

test('equal replicas stay in the order of the pool, and equal curves give the first of them', () => {
  const rig = new Rig();
  const flat = { baseMs: 0, frontMsPerToken: 0, contextMsPerToken2: 0, stepTokens: 2_048 };
  const curves = [
    { ...flat, linearMsPerToken: 1 },
    { ...flat, baseMs: 1_024, linearMsPerToken: 0.5 },
    { ...flat, frontMsPerToken: 0.5, linearMsPerToken: 0.5 },
  ];
  for (let k = 5; k < 30; k += 1) rig.run({ kind: 'up', name: k, ranks: 1 });
  for (let k = 0; k < 30; k += 1) {
    const prefillCost = k % 7 === 3 ? (curves[k % 3] ?? null) : null;
    rig.run({ kind: 'report', name: k, figures: { prefillCost, itlMs: null }, life: 1 });
  }
  for (const maxTokens of [null, 5]) {
    const prompts = [{ path: [1, 2], turns: [], parts: {}, tokenIds: null }];
    const work = 'generation';
    const more = { maxTokens, work, priority: 0, truncates: false } as const;
    const request = enter(rig.state, rig.request({ ...more, prompts } as never));
    if ('decision' in request) throw new Error('refused');
    expectSame(rig, request);
  }
});
