import { describe, expect, test } from 'vitest';
import type { RegionId } from '../../shared/model/ids.ts';
import { ConversationMemory, MatchedShare, type AwayReport } from './affinity.ts';

const LIMITS = { affinityMax: 3, affinityLifeMs: 60_000 };
const HERE = 'here' as RegionId;
const THERE = 'there' as RegionId;

function dwelling(region: RegionId, atMs: number) {
  return { region, tokens: 100, atMs, sinceMs: 0, movedMs: null };
}

function away(keys: readonly string[], more: Partial<AwayReport> = {}): AwayReport {
  const here = keys.map((key) => ({ key, tokens: 10, idleMs: 100, awayForMs: 500 }));
  return { snapshot: false, here, gone: [], ...more };
}

describe('what this router has sent', () => {
  test('is remembered up to a number; the least recently noted goes first', () => {
    const memory = new ConversationMemory();
    for (const key of ['a', 'b', 'c']) memory.noted(key, dwelling(HERE, 1), LIMITS);
    memory.noted('a', dwelling(THERE, 2), LIMITS);
    memory.noted('d', dwelling(HERE, 3), LIMITS);
    expect(memory.find('b', LIMITS, 3)).toBeNull();
    expect(memory.find('a', LIMITS, 3)?.region).toBe(THERE);
    expect(memory.sizes).toEqual({ own: 3, away: 0 });
  });

  test('is forgotten after its life', () => {
    const memory = new ConversationMemory();
    memory.noted('a', dwelling(HERE, 0), LIMITS);
    expect(memory.find('a', LIMITS, 60_000)).not.toBeNull();
    expect(memory.find('a', LIMITS, 60_001)).toBeNull();
  });
});

describe('what a region reports as away from home', () => {
  const at = (nowMs: number) => ({ limits: LIMITS, nowMs });
  const by = { reporter: 'r1', region: THERE };

  test('is known with its age, until the region says that it is gone', () => {
    const memory = new ConversationMemory();
    memory.reported(by, away(['a']), at(1_000));
    expect(memory.find('a', LIMITS, 1_000)).toEqual({
      ...{ region: THERE, tokens: 10, atMs: 900, sinceMs: 500, movedMs: 500 },
      vouched: true,
    });
    memory.reported(by, away([], { gone: ['a'] }), at(1_100));
    expect(memory.find('a', LIMITS, 1_100)).toBeNull();
  });

  test('is away for no longer than a region could be told of, whatever is said', () => {
    const memory = new ConversationMemory();
    const here = [{ key: 'a', tokens: 1, idleMs: 0, awayForMs: 1e18 }];
    memory.reported(by, { snapshot: false, here, gone: [] }, at(0));
    expect(memory.find('a', LIMITS, 0)?.sinceMs).toBe(-8.64e9);
  });

  test('is replaced by a snapshot of the same reporter, and by no other', () => {
    const memory = new ConversationMemory();
    memory.reported(by, away(['a']), at(1_000));
    memory.reported({ reporter: 'r2', region: THERE }, away(['b'], { snapshot: true }), at(1_000));
    memory.reported(by, away(['c'], { snapshot: true }), at(1_000));
    const known = ['a', 'b', 'c'].filter((key) => memory.find(key, LIMITS, 1_000) !== null);
    expect(known).toEqual(['b', 'c']);
  });

  test('is not taken back by a region where it does not live', () => {
    const memory = new ConversationMemory();
    memory.reported(by, away(['a']), at(1_000));
    const other = { reporter: 'x', region: HERE };
    memory.reported(other, away([], { gone: ['a'] }), at(1_000));
    expect(memory.find('a', LIMITS, 1_000)?.region).toBe(THERE);
  });

  test('is remembered of so many reporters, the longest silent of which is forgotten as one', () => {
    const memory = new ConversationMemory();
    const big = { limits: { ...LIMITS, affinityMax: 10_000 }, nowMs: 1_000 };
    for (let n = 0; n <= 1_024; n += 1) {
      memory.reported({ reporter: `r${n}`, region: THERE }, away([`k${n}`]), big);
    }
    memory.reported({ reporter: 'r0', region: THERE }, away([], { gone: ['k0'] }), big);
    expect(memory.find('k0', LIMITS, 1_000)).not.toBeNull();
    memory.reported({ reporter: 'r5', region: THERE }, away([], { gone: ['k5'] }), big);
    expect(memory.find('k5', LIMITS, 1_000)).toBeNull();
  });

  test('is taken back by the reporter that told of it last alone', () => {
    const memory = new ConversationMemory();
    const other = { reporter: 'r2', region: THERE };
    memory.reported(by, away(['a']), at(1_000));
    memory.reported(other, away(['a']), at(1_100));
    memory.reported(by, away([], { gone: ['a'], snapshot: true }), at(1_200));
    expect(memory.find('a', LIMITS, 1_200)?.region).toBe(THERE);
    memory.reported(other, away([], { gone: ['a'] }), at(1_200));
    expect(memory.find('a', LIMITS, 1_200)).toBeNull();
  });

  test('is bounded', () => {
    const memory = new ConversationMemory();
    memory.reported(by, away(['a', 'b', 'c', 'd', 'e']), at(1_000));
    expect(memory.sizes.away).toBe(3);
  });
});

describe('a region that tells of more than there is room for', () => {
  const limits = { affinityMax: 30, affinityLifeMs: 60_000 };
  const of = (region: string) => ({ reporter: `${region}/r`, region: region as RegionId });
  const named = (name: string, count: number) =>
    Array.from({ length: count }, (_, n) => `${name}${n}`);

  test('forgets its own oldest, and nothing that others told before or tell after', () => {
    const memory = new ConversationMemory();
    memory.reported(of('a'), away(named('a', 10)), { limits, nowMs: 0 });
    for (let n = 0; n < 100; n += 1) {
      memory.reported(of('evil'), away([`evil${n}`]), { limits, nowMs: n });
    }
    memory.reported(of('b'), away(named('b', 10)), { limits, nowMs: 200 });
    const known = (keys: readonly string[]) =>
      keys.filter((key) => memory.find(key, limits, 200) !== null);
    expect(known([...named('a', 10), ...named('b', 10)])).toHaveLength(20);
    expect(known(named('evil', 100))).toEqual(named('evil', 100).slice(-10));
    expect(memory.sizes.away).toBe(30);
  });

  test('may fill the room while it is alone', () => {
    const memory = new ConversationMemory();
    memory.reported(of('a'), away(named('a', 40)), { limits, nowMs: 0 });
    expect(memory.sizes.away).toBe(30);
  });

  test('takes no other off the list of those who may take back, however many names it has', () => {
    const memory = new ConversationMemory();
    memory.reported(of('a'), away(['a0']), { limits, nowMs: 0 });
    for (let n = 0; n < 2_000; n += 1) {
      const by = { reporter: `evil/${n}`, region: 'evil' as RegionId };
      memory.reported(by, away([]), { limits, nowMs: 0 });
    }
    memory.reported(of('a'), away([], { gone: ['a0'] }), { limits, nowMs: 0 });
    expect(memory.find('a0', limits, 0)).toBeNull();
  });

  test('has what another has told since off its own account', () => {
    const memory = new ConversationMemory();
    memory.reported(of('a'), away(named('k', 20)), { limits, nowMs: 0 });
    memory.reported(of('b'), away(named('k', 20).toReversed()), { limits, nowMs: 1 });
    memory.reported(of('a'), away(named('a', 15)), { limits, nowMs: 2 });
    // 20 are of `b`, which has told most: five of those go.
    const left = named('k', 20).filter((key) => memory.find(key, limits, 2) !== null);
    expect(left).toEqual(named('k', 20).slice(0, 15));
    expect(named('a', 15).every((key) => memory.find(key, limits, 2) !== null)).toBe(true);
  });
});

test('of two that know a turn, the one that served it last is believed', () => {
  const memory = new ConversationMemory();
  memory.noted('a', dwelling(HERE, 500), LIMITS);
  memory.reported({ reporter: 'r', region: THERE }, away(['a']), { limits: LIMITS, nowMs: 1_000 });
  expect(memory.find('a', LIMITS, 1_000)?.region).toBe(THERE);
  memory.noted('a', dwelling(HERE, 950), LIMITS);
  expect(memory.find('a', LIMITS, 1_000)?.region).toBe(HERE);
});

test('of two regions that tell of one turn, the one that served it last is believed, whoever speaks last', () => {
  const memory = new ConversationMemory();
  const at = { limits: LIMITS, nowMs: 1_000 };
  const idle = (idleMs: number) => [{ key: 'a', tokens: 10, idleMs, awayForMs: 500 }];
  memory.reported({ reporter: 'r1', region: THERE }, away([], { here: idle(100) }), at);
  memory.reported({ reporter: 'r2', region: HERE }, away([], { here: idle(400) }), at);
  expect(memory.find('a', LIMITS, 1_000)?.region).toBe(THERE);
  memory.reported({ reporter: 'r2', region: HERE }, away([], { here: idle(50) }), at);
  expect(memory.find('a', LIMITS, 1_000)?.region).toBe(HERE);
});

test('prompts with earlier turns are conversations until most of them turn out to be none', () => {
  const share = new MatchedShare();
  expect(share.of('t')).toBe(1);
  for (let n = 0; n < 24; n += 1) share.note('t', false);
  expect(share.of('t')).toBeLessThan(0.3);
  expect(share.of('u')).toBe(1);
  for (let n = 0; n < 10; n += 1) share.note('t', true);
  expect(share.of('t')).toBeGreaterThan(0.3);
});
