import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { RegionId } from '../../shared/model/ids.ts';
import {
  filterRegions,
  mayReside,
  ROLLOUT_MODES,
  type RegionDemand,
  type RegionView,
  type Residency,
} from './region-filter.ts';

const TOKYO = 'tokyo' as RegionId;
const OSAKA = 'osaka' as RegionId;
const PARIS = 'paris' as RegionId;
const ALL = [TOKYO, OSAKA, PARIS];

function view(region: RegionId, more: Partial<RegionView> = {}): RegionView {
  return {
    region,
    rollout: 'active',
    certifications: [],
    tiers: ['standard'],
    models: [{ name: 'llama', revision: 'r1' }],
    seen: true,
    hasCapacity: true,
    paused: false,
    breakerOpen: false,
    excluded: false,
    ...more,
  };
}

function demand(more: Partial<RegionDemand> = {}): RegionDemand {
  const open = { residency: null, revisions: null, tier: null, certifications: [] };
  return { ...open, model: 'llama', ...more };
}

const EU: Residency = { allow: [PARIS], fallback: [] };

describe('residency', () => {
  test('leaves the tenant its own regions, and the others have no other reason', () => {
    const views = [view(TOKYO, { seen: false }), view(OSAKA), view(PARIS)];
    const { eligible, removed } = filterRegions(views, demand({ residency: EU }));
    expect(eligible).toEqual([PARIS]);
    expect([...removed]).toEqual([
      [TOKYO, 'residency'],
      [OSAKA, 'residency'],
    ]);
  });

  test('is not widened where nothing is left', () => {
    const views = [view(TOKYO), view(OSAKA), view(PARIS, { hasCapacity: false })];
    expect(filterRegions(views, demand({ residency: EU })).eligible).toEqual([]);
  });

  test('with an empty list allows nothing, and without one everything', () => {
    const views = ALL.map((region) => view(region));
    const none = { allow: [], fallback: [] };
    expect(filterRegions(views, demand({ residency: none })).eligible).toEqual([]);
    expect(filterRegions(views, demand()).eligible).toEqual(ALL);
  });

  test('takes fallbacks one by one in their order, and only where no allowed region is left', () => {
    const residency = { allow: [PARIS], fallback: [OSAKA, TOKYO] };
    const asked = demand({ residency });
    expect(
      filterRegions(
        ALL.map((region) => view(region)),
        asked,
      ).eligible,
    ).toEqual([PARIS]);
    const without = [view(TOKYO), view(OSAKA), view(PARIS, { excluded: true })];
    const { eligible, removed } = filterRegions(without, asked);
    expect(eligible).toEqual([OSAKA]);
    expect(removed.get(TOKYO)).toBe('standby');
  });
});

describe('a region', () => {
  test.each([
    ['rollout', { rollout: 'off' }],
    ['certification', { certifications: [] }],
    ['tier', { tiers: [] }],
    ['excluded', { excluded: true }],
    ['unseen', { seen: false }],
    ['unseen', { models: null }],
    ['model', { models: [{ name: 'qwen', revision: 'r1' }] }],
    ['revision', { models: [{ name: 'llama', revision: 'unknown' }] }],
    ['revision', { models: [{ name: 'llama', revision: 'r2' }] }],
    ['context_length', { models: [{ name: 'llama', revision: 'r1', longestModelLen: 199 }] }],
    [
      'context_length',
      {
        models: [
          { name: 'llama', revision: 'r1', longestModelLen: 449, bytesPerTokenMost: 4 },
          { name: 'llama', revision: 'r2', longestModelLen: 1e6 },
        ],
      },
    ],
    ['no_capacity', { hasCapacity: false }],
    ['breaker', { breakerOpen: true }],
    ['paused', { paused: true }],
  ] as const)('is removed for %s', (reason, more) => {
    const length = { bytes: 1_600, tokens: 150, answerTokens: 50 };
    const rules = { tier: 'standard', certifications: ['hds'] };
    const strict = demand({ revisions: ['r0', 'r1'], length, ...rules });
    const sound = { certifications: ['hds'] };
    const { eligible, removed } = filterRegions(
      [view(TOKYO, { ...sound, ...more }), view(PARIS, sound)],
      strict,
    );
    expect(removed.get(TOKYO)).toBe(reason);
    expect(eligible).toEqual([PARIS]);
  });

  test.each([
    [{ longestModelLen: 450, bytesPerTokenMost: 4 }],
    [{ longestModelLen: 200, bytesPerTokenMost: null }],
    [{ longestModelLen: null, bytesPerTokenMost: 4 }],
    [{}],
  ])('with %j takes 400 tokens at least and an answer of 50', (context) => {
    const models = [{ name: 'llama', revision: 'r1', ...context }];
    const length = { bytes: 1_600, tokens: 150, answerTokens: 50 };
    expect(filterRegions([view(TOKYO, { models })], demand({ length })).eligible).toEqual([TOKYO]);
  });

  test('that says no revision satisfies no demand for one', () => {
    const views = [view(TOKYO, { models: [{ name: 'llama', revision: 'unknown' }] })];
    expect(filterRegions(views, demand()).eligible).toEqual([TOKYO]);
    expect(filterRegions(views, demand({ revisions: ['unknown'] })).eligible).toEqual([]);
  });

  test('kept for failover serves where no active one can', () => {
    const spare = view(OSAKA, { rollout: 'failover' });
    expect(filterRegions([view(TOKYO), spare], demand()).eligible).toEqual([TOKYO]);
    const down = view(TOKYO, { breakerOpen: true });
    expect(filterRegions([down, spare], demand()).eligible).toEqual([OSAKA]);
  });
});

test('no state of any fleet makes a region eligible that is outside the list', () => {
  const anyView = (region: RegionId) =>
    fc
      .record({
        rollout: fc.constantFrom(...ROLLOUT_MODES),
        seen: fc.boolean(),
        hasCapacity: fc.boolean(),
        paused: fc.boolean(),
        breakerOpen: fc.boolean(),
        excluded: fc.boolean(),
      })
      .map((more) => view(region, more));
  const residency = fc.record({ allow: fc.subarray(ALL), fallback: fc.shuffledSubarray(ALL) });
  fc.assert(
    fc.property(fc.tuple(...ALL.map(anyView)), residency, (views, list) => {
      const { eligible, removed } = filterRegions(views, demand({ residency: list }));
      expect(eligible.length + removed.size).toBe(ALL.length);
      for (const region of eligible) {
        expect(mayReside(region, list)).toBe(true);
        expect(removed.has(region)).toBe(false);
      }
      if (eligible.length > 1) expect(list.allow).toEqual(expect.arrayContaining([...eligible]));
    }),
  );
});
