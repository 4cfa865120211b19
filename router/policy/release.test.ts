import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { QueuedWork } from '../../shared/model/report.ts';
import { otherQueues, shareOpensInMs, type OtherQueues, type ShareInput } from './release.ts';

function sum(routersQueueing: number, topPriority: number | null, more = {}): QueuedWork {
  return { prefillMs: 900, requests: 9, topPriority, routersQueueing, ...more };
}

describe('what the other routers hold', () => {
  const none = {
    ...{ topPriority: null, atTop: 0, before: 0, meanMs: 0 },
    ...{ turnMs: null, requests: null, oldestAgeMs: null },
  };

  test('is as the agent tells it, whatever this router thinks of itself', () => {
    const place = { othersTop: 3, othersAtTop: 2, before: 1 };
    const told = { ...none, topPriority: 3, atTop: 2, before: 1, meanMs: 100 };
    expect(otherQueues(sum(4, 0, { place }), true)).toEqual(told);
    expect(otherQueues(sum(4, 0, { place }), false)).toEqual(told);
    const alone = { othersTop: null, othersAtTop: 0, before: 0 };
    expect(otherQueues(sum(1, 0, { place: alone }), false)).toEqual(none);
  });

  test('is the sum less this router where an older agent tells no more', () => {
    expect(otherQueues(sum(1, 0), true)).toEqual(none);
    expect(otherQueues(sum(1, 0), false)).toMatchObject({ topPriority: 0, atTop: 1, before: 0 });
    expect(otherQueues(sum(3, 2), true)).toMatchObject({ topPriority: 2, atTop: 2, before: 0 });
    expect(otherQueues(sum(0, null), true)).toEqual(none);
  });
});

const OTHERS: OtherQueues = {
  topPriority: 0,
  atTop: 1,
  before: 0,
  meanMs: 100,
  turnMs: null,
  requests: null,
  oldestAgeMs: null,
};
const INPUT: ShareInput = {
  others: OTHERS,
  holdMs: 60,
  blind: false,
  roomForAll: () => false,
  ownAgeMs: 0,
  heldAgeMs: 0,
  isHome: false,
  roomForMs: 0,
  reportAgeMs: 0,
  waitMs: 20,
  ownMs: 0,
  freeSlots: null,
  idleMs: null,
  patienceMs: 120,
};

function opensIn(
  more: Partial<Omit<ShareInput, 'others'>> & { others?: Partial<OtherQueues> },
  priority = 0,
): number | null {
  return shareOpensInMs({ ...INPUT, ...more, others: { ...OTHERS, ...more.others } }, priority);
}

describe('of two routers as urgent as each other', () => {
  test('each takes half of the room, one request at least, and then waits for a report', () => {
    expect(opensIn({ ownMs: 0 })).toBe(0);
    expect(opensIn({ ownMs: 19 })).toBe(0);
    // (60 − 20) / 2
    expect(opensIn({ ownMs: 20 })).toBeNull();
    expect(opensIn({ waitMs: 0, idleMs: 999, ownMs: 30 })).toBeNull();
  });

  test('the second goes once what the first sends still leaves room', () => {
    const before = { before: 1 };
    expect(opensIn({ others: before })).toBeNull();
    // Requests of 10 ms: the first takes its 20 ms of share, which leaves 20.
    expect(opensIn({ others: { ...before, meanMs: 10 } })).toBe(0);
    expect(opensIn({ others: { ...before, meanMs: 39 } })).toBe(0);
    expect(opensIn({ others: { ...before, meanMs: 41 } })).toBeNull();
  });

  test('the second takes the target when the first has let it idle for as long as its request would take', () => {
    expect(opensIn({ waitMs: 0, idleMs: 0, others: { before: 1 } })).toBe(40);
    expect(opensIn({ waitMs: 0, idleMs: 30, others: { before: 1 } })).toBe(10);
    expect(opensIn({ waitMs: 0, idleMs: 40, others: { before: 1 } })).toBe(0);
  });

  test('the second does not take the last free slot', () => {
    const short = { others: { before: 1, meanMs: 10 }, waitMs: 0, idleMs: 0 };
    expect(opensIn({ ...short, freeSlots: 2 })).toBe(0);
    expect(opensIn({ ...short, freeSlots: 1 })).toBe(120);
  });
});

describe('with more urgent work elsewhere', () => {
  test('nothing less urgent goes, but into a target that nobody takes for twice as long as equals wait', () => {
    expect(opensIn({}, 1)).toBeNull();
    expect(opensIn({ waitMs: 0, idleMs: 0 }, 1)).toBe(240);
    expect(opensIn({ waitMs: 0, idleMs: 240 }, 1)).toBe(0);
  });

  test('the most urgent itself is bound by the hold alone', () => {
    expect(opensIn({ ownMs: 1e6, waitMs: 59, others: { before: 1 } }, -1)).toBe(0);
    expect(opensIn({ ownMs: 1e6, others: { topPriority: null } })).toBe(0);
  });
});

test('routers that see one report together send one request more than the hold at most', () => {
  const plan = fc.record({
    routers: fc.integer({ min: 2, max: 8 }),
    waitMs: fc.integer({ min: 0, max: 59 }),
    prefillMs: fc.integer({ min: 1, max: 500 }),
  });
  fc.assert(
    fc.property(plan, ({ routers, waitMs, prefillMs }) => {
      let sentMs = 0;
      for (let before = 0; before < routers; before += 1) {
        const atTop = routers - 1;
        const others = { ...OTHERS, atTop, before, meanMs: prefillMs };
        let ownMs = 0;
        while (shareOpensInMs({ ...INPUT, others, waitMs, ownMs }, 0) === 0) ownMs += prefillMs;
        sentMs += ownMs;
      }
      expect(sentMs).toBeGreaterThan(0);
      // Each ends its share with a request that it still begins.
      const share = (60 - waitMs) / routers;
      const most = prefillMs > share ? 60 - waitMs + prefillMs : 60 - waitMs + routers * prefillMs;
      expect(sentMs).toBeLessThanOrEqual(most);
    }),
  );
});

test('where reports come late, equally urgent work is bound by the hold alone', () => {
  const blind = { ...INPUT, blind: true, ownMs: 1_000, waitMs: 1_000 };
  expect(shareOpensInMs(blind, 0)).toBe(0);
  expect(shareOpensInMs(blind, 1)).toBeNull();
});

describe('where reports come in turn', () => {
  const others: OtherQueues = { ...OTHERS, atTop: 2, before: 1, turnMs: 6 };

  test("the room is the receiving router's alone until the next one is told", () => {
    const opens = (reportAgeMs: number) => shareOpensInMs({ ...INPUT, others, reportAgeMs }, 0);
    expect([opens(0), opens(5.9), opens(6), opens(40)]).toEqual([0, 0, null, null]);
  });

  test('whoever has more than half of the others before it lets its turn pass', () => {
    const opens = (before: number, atTop: number) =>
      shareOpensInMs({ ...INPUT, others: { ...others, before, atTop } }, 0);
    expect([opens(2, 5), opens(3, 5), opens(1, 2), opens(2, 2)]).toEqual([0, null, 0, null]);
    expect([opens(0, 1), opens(1, 1)]).toEqual([0, null]);
  });

  test('more urgent work waits for no turn, less urgent work for those before it', () => {
    const late = { ...INPUT, others, reportAgeMs: 40 };
    expect(shareOpensInMs(late, -1)).toBe(0);
    expect(shareOpensInMs({ ...late, reportAgeMs: 0 }, 1)).toBe(null);
  });

  test('where there is room for all that waits nobody waits for a turn, but for more urgent work', () => {
    const late = {
      ...INPUT,
      others: { ...others, before: 2 },
      reportAgeMs: 40,
      roomForAll: () => true,
    };
    expect(shareOpensInMs(late, 0)).toBe(0);
    expect(shareOpensInMs(late, 1)).toBeNull();
  });

  test('whoever is older than all that waits elsewhere waits for no turn, as its age grows with theirs', () => {
    const opens = (ownAgeMs: number | null, reportAgeMs = 28) =>
      shareOpensInMs(
        { ...INPUT, others: { ...others, oldestAgeMs: 700 }, reportAgeMs, ownAgeMs },
        0,
      );
    expect([opens(727), opens(728), opens(900), opens(null)]).toEqual([null, 0, 0, null]);
    expect([opens(900, 29), opens(900, 30)]).toEqual([0, null]);
  });

  test('a router whose oldest is younger by far lets its turn pass, until the room has stayed for a while', () => {
    const opens = (heldAgeMs: number | null, roomForMs = 0) =>
      shareOpensInMs(
        { ...INPUT, others: { ...others, oldestAgeMs: 2_000 }, heldAgeMs, roomForMs },
        0,
      );
    expect([opens(500), opens(499), opens(null)]).toEqual([0, null, 0]);
    expect([opens(499, INPUT.patienceMs - 1), opens(499, INPUT.patienceMs)]).toEqual([null, 0]);
  });

  test('whoever comes for a prefix that the target alone holds waits for no turn, but for more urgent work', () => {
    const home = { ...INPUT, others: { ...others, before: 2 }, reportAgeMs: 40, isHome: true };
    expect(shareOpensInMs(home, 0)).toBe(0);
    expect(shareOpensInMs(home, 1)).toBeNull();
  });

  test('a target that stays idle is open to all', () => {
    const input = { ...INPUT, others, waitMs: 0, reportAgeMs: 40 };
    expect(shareOpensInMs({ ...input, idleMs: input.patienceMs - 20 }, 0)).toBe(20);
    expect(shareOpensInMs({ ...input, idleMs: input.patienceMs }, 0)).toBe(0);
  });
});
