// One order among those that wait for KV room in two routers: this one, and a sibling as it tells of itself.

import { describe, expect, test } from 'vitest';
import type { LinkId, PoolId, ReplicaId, RouterId } from '../../shared/model/ids.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import type {
  SiblingHeldFirst,
  SiblingSend,
  SiblingSends,
} from '../../shared/protocol/sibling-messages.ts';
import type { RouterEffect } from './events.ts';
import { attemptsIn, chainOf, CoreRig, decisionIn, reportOf } from './core.harness.ts';

const POOL = 'pool' as PoolId;
const LINK = 'sibling-1' as LinkId;
const OUT = 'out-1' as LinkId;
/** Room for one conversation of 1,280 tokens and its answer of 256, where no other's is counted. */
const ROOM: Partial<ReplicaReport> = {
  ...{ kvCapacityTokens: 10_000, workingSetTokens: 7_400, ackedSeq: 0, routers: 2 },
};
const FULL: Partial<ReplicaReport> = { ...ROOM, workingSetTokens: 9_000 };
const GOES_ON = { turnEnds: [{ offset: 100, chunks: 0, hashLow: 1, hashHigh: 2 }] };
/** Two intervals of reports, and their way. */
const PATIENCE_MS = 120;

class HeldRig extends CoreRig {
  #from = 0;

  /** A conversation of its own, or one that goes on from nothing that is there. */
  begins(more: { tenant?: string; priority?: number; chain?: Partial<PromptChain> } = {}) {
    this.#from += 100;
    const hashes = Array.from({ length: 10 }, (_, k) => this.#from + k);
    const { chain = {}, ...request } = more;
    return this.arrive({ ...request, prompts: [chainOf(hashes, chain)] });
  }

  says(said: Partial<SiblingSends>): RouterEffect[] {
    const message = { kind: 'sends', opened: [], past: [], ...said } as const;
    return this.handle({ kind: 'siblingMessage', link: LINK, message });
  }

  /** The sibling holds one back that has waited so long. */
  hears(ageMs: number, more: Partial<SiblingHeldFirst> = {}): RouterEffect[] {
    const first = { ...{ tenant: 't', priority: 0, returning: false, ageMs }, patienceMs: 15_000 };
    return this.says({ held: [{ pool: POOL, first: { ...first, ...more } }] });
  }
}

function rig(report: Partial<ReplicaReport>, settings: Partial<RegionalSettings> = {}): HeldRig {
  const made = new HeldRig({ settings: { holdMs: 60_000, workingSetBoundMax: 0.9, ...settings } });
  made.ready('a', report);
  made.handle({ kind: 'siblingUp', link: LINK, router: 'router-2' as RouterId });
  made.says({ anew: true, held: [] });
  return made;
}

/** `r1` waits here for room; it came 1 s ago. */
function waiting(more: Parameters<HeldRig['begins']>[0] = {}, settings = {}): HeldRig {
  const made = rig(FULL, settings);
  expect(decisionIn(made.begins(more))).toBe('queue/kv_room');
  made.pass(1_000);
  return made;
}

const sent = (effects: readonly RouterEffect[]): string[] =>
  attemptsIn(effects).map(({ request }) => request);

describe('one that waits for room', () => {
  test('leaves it to a sibling’s that one queue would let in first', () => {
    const one = waiting();
    one.hears(500);
    expect(sent(one.report('a', ROOM))).toEqual([]);
  });

  test.each([
    ['an older one', { ageMs: 2_000 }],
    ['one of another tenant', { ageMs: 500, tenant: 'u' }],
    ['one that is less urgent', { ageMs: 500, priority: 1 }],
  ])('takes it where %s waits there', (_, { ageMs, ...first }) => {
    const one = waiting();
    one.hears(ageMs, first);
    expect(sent(one.report('a', ROOM))).toEqual(['r1']);
  });

  test.each([
    ['a more urgent one of any tenant', {}, { ageMs: 2_000, tenant: 'u', priority: -1 }],
    ['one that goes on', {}, { ageMs: 2_000, returning: true }],
    ['one that may enter by age', {}, { ageMs: 2_000, patienceMs: 1_500 }],
    ['one that goes on and waits longer', { chain: GOES_ON }, { ageMs: 2_000, returning: true }],
  ])('leaves it to %s', (_, own, { ageMs, ...first }) => {
    const one = waiting(own);
    one.hears(ageMs, first);
    expect(sent(one.report('a', ROOM))).toEqual([]);
  });

  test('takes it as soon as the other is told to wait no longer, or its link is cut', () => {
    const [gone, cut] = [waiting(), waiting()];
    for (const one of [gone, cut]) {
      one.hears(500);
      expect(sent(one.report('a', ROOM))).toEqual([]);
    }
    expect(sent(gone.says({ held: [{ pool: POOL }] }))).toEqual(['r1']);
    expect(sent(cut.handle({ kind: 'siblingDown', link: LINK }))).toEqual(['r1']);
  });

  test('takes it where nobody else has for as long as they take to hear of it', () => {
    const one = waiting();
    one.hears(500);
    one.report('a', ROOM);
    expect(sent(one.pass(PATIENCE_MS - 1))).toEqual([]);
    expect(sent(one.pass(2))).toEqual(['r1']);
  });

  test('gives way anew to the next room', () => {
    const one = waiting();
    one.begins();
    one.hears(0, { priority: -1 });
    one.report('a', ROOM);
    expect(sent(one.pass(PATIENCE_MS + 1))).toEqual(['r2']);
    one.report('a', { ...FULL, ackedSeq: 1 });
    one.pass(1_000);
    expect(sent(one.report('a', { ...ROOM, ackedSeq: 1 }))).toEqual([]);
    expect(sent(one.pass(PATIENCE_MS - 1))).toEqual([]);
    expect(sent(one.pass(2))).toEqual(['r1']);
  });

  test('has given way to nobody while there was no room', () => {
    const one = waiting();
    one.hears(500);
    one.report('a', ROOM);
    one.pass(PATIENCE_MS / 2);
    one.report('a', FULL);
    one.pass(PATIENCE_MS);
    expect(sent(one.report('a', ROOM))).toEqual([]);
    expect(sent(one.pass(PATIENCE_MS - 1))).toEqual([]);
  });
});

describe('one that comes', () => {
  test('waits where it would pass a sibling’s that goes on, as explain says', () => {
    const one = rig(ROOM);
    one.hears(500, { returning: true });
    const asked = one.core.explain(one.request(), one.nowMs);
    expect([asked.kind, asked.reason]).toEqual(['queue', 'order']);
    expect(decisionIn(one.begins())).toBe('queue/order');
  });

  test('passes those that came before it, and goes where nothing holds it back', () => {
    const one = rig(ROOM);
    one.hears(500);
    expect(sent(one.begins())).toEqual(['r1']);
  });
});

describe('what a sibling sends', () => {
  const send = (more: Partial<SiblingSend>): SiblingSend => ({
    ...{ no: 1, replica: 'a' as ReplicaId, rank: 0, seq: 1 },
    ...{ promptTokens: 128, uncachedTokens: 128, contextTokens2: 0, ...more },
  });
  const acks = (one: HeldRig, report: Partial<ReplicaReport>): RouterEffect[] =>
    one.handle({
      kind: 'message',
      link: 'a' as LinkId,
      message: {
        ...{ kind: 'report', report: reportOf('a', report) },
        othersAcked: [{ router: 'router-2' as RouterId, seq: 1 }],
      },
    });

  test('takes room until a report includes it', () => {
    const one = rig(ROOM);
    one.says({ opened: [send({ growthTokens: 100 })] });
    expect(decisionIn(one.begins())).toBe('queue/kv_room');
    expect(sent(acks(one, { ...ROOM, workingSetTokens: 7_400 }))).toEqual(['r1']);
  });

  test('takes none where its router does not say how much', () => {
    const one = rig(ROOM);
    one.says({ opened: [send({})] });
    expect(sent(one.begins())).toEqual(['r1']);
  });

  test('is the one that enters by age in its time', () => {
    const settings = { newConversationWaitMs: 1_000, queueMaxWaitMs: 900_000 };
    const [alone, beside] = [waiting({}, settings), waiting({}, settings)];
    expect(sent(alone.seen)).toEqual(['r1']);
    beside.begins();
    beside.says({ opened: [send({ aged: true })] });
    expect(sent(beside.pass(999))).toEqual([]);
    expect(sent(beside.pass(1))).toEqual(['r2']);
  });
});

describe('siblings that listen', () => {
  const told = (effects: readonly RouterEffect[]) =>
    effects.flatMap((effect) =>
      effect.kind === 'tellSiblings' ? (effect.message.held ?? []) : [],
    );
  const listened = (): HeldRig => {
    const one = rig(FULL);
    one.handle({ kind: 'siblingListens', link: OUT });
    one.pass(1_000);
    return one;
  };

  test('are told who goes first, once, the next one when that has left, and when nobody waits', () => {
    const one = listened();
    expect(told(one.begins())).toEqual([
      {
        pool: POOL,
        first: {
          ...{ tenant: 't', priority: 0, returning: false },
          ...{ ageMs: 0, patienceMs: 15_000 },
        },
      },
    ]);
    one.pass(1_000);
    // The newest goes first; one that goes on before it.
    expect(told(one.begins({ priority: 3 }))).toEqual([]);
    expect(told(one.begins({ chain: GOES_ON }))).toMatchObject([{ first: { returning: true } }]);
    one.pass(100);
    expect(told(one.report('a', ROOM))).toMatchObject([{ first: { ageMs: 1_100 } }]);
    for (const id of ['r1', 'r2']) one.handle({ kind: 'clientGone', request: id as never });
    expect(told(one.pass(100))).toEqual([{ pool: POOL }]);
    expect(told(one.pass(10_000))).toEqual([]);
  });

  test('are told when another one goes first for its age', () => {
    const one = listened();
    one.begins();
    one.pass(1_000);
    one.begins();
    one.pass(13_999);
    expect(told(one.pass(1))).toEqual([]);
    const { seen } = one;
    const firsts = told(seen).map(({ first }) => first?.ageMs);
    expect(firsts.slice(0, 2)).toEqual([0, 0]);
  });

  test('hear of all that waits when they come, of nothing while nobody does', () => {
    const hears = (one: HeldRig) =>
      one
        .handle({ kind: 'siblingListens', link: 'out-2' as LinkId })
        .flatMap((effect) => (effect.kind === 'sendSibling' ? [effect.message.held] : []));
    expect(hears(listened())).toEqual([[]]);
    expect(hears(waiting())).toMatchObject([[{ pool: POOL, first: { ageMs: 1_000 } }]]);
  });
});
