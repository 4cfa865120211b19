import { describe, expect, test } from 'vitest';
import type { RegionId } from '../../shared/model/ids.ts';
import {
  asia,
  attemptIn,
  COMPLETE,
  decisionIn,
  type GlobalRig,
  kindOf,
  RESET,
  tenantOf,
  turnsOf,
} from './core.harness.ts';

describe('a conversation', () => {
  test('goes on where it lives, also where that is not home any more', () => {
    const rig = asia();
    const first = attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] }));
    // Nobody is told of what is at home.
    expect(first).toMatchObject({ region: 'jp', conversation: null, away: false });
    rig.end(first.lease, COMPLETE);
    rig.handle({ kind: 'rtt', region: 'sg' as RegionId, rttMs: 5 });
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    const next = rig.arrive({ prompts: [turnsOf(7, 2)] });
    expect(kindOf(next)).toEqual(['send', 'affinity', 'jp']);
    const told = { away: true, conversation: 't/7@8000', predictedCachedTokens: 1_010 };
    expect(attemptIn(next)).toMatchObject(told);
  });

  test('is found where a region says that it lives away from home, by a router that never saw it', () => {
    const rig = asia();
    const here = [{ key: 't/7@8000', tokens: 2_000, idleMs: 0, awayForMs: 5_000 }];
    rig.say('sg', { kind: 'away', snapshot: true, here, gone: [] });
    const effects = rig.arrive({ prompts: [turnsOf(7, 3)] });
    expect(kindOf(effects)).toEqual(['send', 'affinity', 'sg']);
    expect(attemptIn(effects)).toMatchObject({ away: true, awayForMs: 5_000 });
    rig.say('sg', { kind: 'away', snapshot: false, here: [], gone: ['t/7@8000'] });
    expect(kindOf(rig.arrive({ prompts: [turnsOf(7, 3)] }))).toEqual(['send', 'home', 'jp']);
  });

  test('is in the cache where it lives and nowhere else', () => {
    const rig = asia();
    rig.end(attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] })).lease, COMPLETE);
    const { candidates } = rig.core.explain(rig.request({ prompts: [turnsOf(7, 2)] }), rig.nowMs);
    expect(candidates.map(({ cachedTokens }) => cachedTokens)).toEqual([1_010, 0, 0]);
    expect(candidates.map(({ prefillMs }) => prefillMs)).toEqual([990 / 8, 250, 250]);
  });

  test('whose last turns nobody knows is found by an earlier one', () => {
    const rig = asia();
    const here = [{ key: 't/7@4000', tokens: 2_000, idleMs: 0, awayForMs: 0 }];
    rig.say('sg', { kind: 'away', snapshot: true, here, gone: [] });
    expect(attemptIn(rig.arrive({ prompts: [turnsOf(7, 5)] })).region).toBe('sg');
    // Eight ends are looked up.
    expect(attemptIn(rig.arrive({ prompts: [turnsOf(7, 9)] })).region).toBe('sg');
    expect(attemptIn(rig.arrive({ prompts: [turnsOf(7, 10)] })).region).toBe('jp');
  });

  test('that goes elsewhere since its home is out is away, so that everybody finds it when home is back', () => {
    const rig = asia();
    const failed = attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] }));
    expect(failed).toMatchObject({ region: 'jp', away: false });
    expect(attemptIn(rig.end(failed.lease, RESET))).toMatchObject({ region: 'sg', away: true });
    rig.pass(10_001);
    for (const region of ['sg', 'eu']) rig.report(region);
    expect(attemptIn(rig.arrive())).toMatchObject({ region: 'sg', away: true });
    rig.report('jp');
    expect(attemptIn(rig.arrive())).toMatchObject({ region: 'jp', away: false });
  });

  test('that goes elsewhere by the rules of its tenant is at home there', () => {
    const rig = asia({ tenants: { t: tenantOf(['sg']) } });
    expect(attemptIn(rig.arrive())).toMatchObject({ region: 'sg', away: false });
  });

  test('that nobody knows lives at home, and does not pass the gate', () => {
    const rig = asia();
    expect(kindOf(rig.arrive({ prompts: [turnsOf(9, 4)] }))).toEqual(['send', 'home', 'jp']);
  });

  test('is forgotten where its region is none of the tenant any more', () => {
    const rig = asia({ tenants: { t: tenantOf(null) } });
    const first = attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] }));
    rig.end(first.lease, COMPLETE);
    rig.configure({ tenants: new Map([['t', tenantOf(['eu'])]]) });
    const next = rig.arrive({ prompts: [turnsOf(7, 2)] });
    expect(kindOf(next)).toEqual(['send', 'only_region', 'eu']);
  });

  test('of another tenant is another one', () => {
    const rig = asia({ tenants: { t: tenantOf(null), u: tenantOf(null) } });
    const here = [{ key: 't/7@4000', tokens: 2_000, idleMs: 0, awayForMs: 0 }];
    rig.say('sg', { kind: 'away', snapshot: true, here, gone: [] });
    expect(attemptIn(rig.arrive({ tenant: 'u', prompts: [turnsOf(7, 2)] })).region).toBe('jp');
    expect(attemptIn(rig.arrive({ tenant: 't', prompts: [turnsOf(7, 2)] })).region).toBe('sg');
  });

  test('that shares only a system prompt with others is a new one', () => {
    const rig = asia();
    const shared = turnsOf(7, 1);
    rig.end(attemptIn(rig.arrive({ prompts: [shared] })).lease, COMPLETE);
    rig.handle({ kind: 'rtt', region: 'sg' as RegionId, rttMs: 5 });
    expect(kindOf(rig.arrive({ prompts: [shared] }))).toEqual(['send', 'home', 'sg']);
  });

  test('given as examples, as their usage shows, counts as new', () => {
    const rig = asia();
    const usage = { promptTokens: 3_000, cachedTokens: 0, completionTokens: 10 };
    for (let n = 0; n < 60; n += 1) {
      const attempt = attemptIn(rig.arrive({ prompts: [turnsOf(1_000 + n, 3)] }));
      rig.end(attempt.lease, { kind: 'complete', usage });
    }
    expect(attemptIn(rig.arrive({ prompts: [turnsOf(5, 3)] })).predictedCachedTokens).toBe(0);
  });

  describe('moves for load', () => {
    /** It lives in Japan; `queues` are the reports of its queue, ms of each of two replicas. */
    function lives(queues: readonly number[], creditMs = 10_000): GlobalRig {
      const rig = asia({ settings: { spillIntervalMs: 1_000, smoothingHalfLifeMs: 1 } });
      rig.end(attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] })).lease, COMPLETE);
      for (const queue of queues) {
        rig.pass(1_000);
        rig.report('sg');
        rig.report('jp', { waitingPrefillMs: 2 * queue });
        if (creditMs > 0) rig.grant('sg', creditMs);
      }
      // The share has had its time to grow: accounts fill with each that could go.
      return rig;
    }
    const next = (rig: GlobalRig): unknown => {
      let effects: ReturnType<GlobalRig['arrive']> = [];
      for (let n = 0; n < 12; n += 1) {
        effects = rig.arrive({ prompts: [turnsOf(7, 2)] });
        if (decisionIn(effects)?.reason === 'moved') break;
      }
      return kindOf(effects);
    };

    test('where staying costs more by twice the start threshold in two reports', () => {
      expect(next(lives([600, 1_500, 1_500, 1_500]))).toEqual(['spill', 'moved', 'sg']);
    });

    test('never for one report alone', () => {
      expect(next(lives([600, 600, 600, 1_500]))).toEqual(['send', 'affinity', 'jp']);
    });

    test('never for what two routers of a region report of one moment', () => {
      const rig = asia({ settings: { spillIntervalMs: 1_000, smoothingHalfLifeMs: 1 } });
      rig.up('jp', 'jp2');
      rig.end(attemptIn(rig.arrive({ prompts: [turnsOf(7, 1)] })).lease, COMPLETE);
      const report = (queue: number): void => {
        rig.pass(1_000);
        rig.report('sg');
        rig.grant('sg', 10_000);
        for (const link of ['jp', 'jp2']) rig.report(link, { waitingPrefillMs: 2 * queue });
      };
      for (const queue of [600, 600, 600, 1_500]) report(queue);
      expect(next(rig)).toEqual(['send', 'affinity', 'jp']);
      report(1_500);
      expect(next(rig)).toEqual(['spill', 'moved', 'sg']);
    });

    test('never without credit', () => {
      expect(next(lives([600, 1_500, 1_500, 1_500], 0))).toEqual(['send', 'affinity', 'jp']);
    });

    test('never again within the dwell', () => {
      const rig = lives([600, 1_500, 1_500, 1_500]);
      expect(next(rig)).toEqual(['spill', 'moved', 'sg']);
      const moved = rig.arrive({ prompts: [turnsOf(8, 1)] });
      rig.end(attemptIn(moved).lease, COMPLETE);
      // It came to Singapore a minute ago, and that is hot now.
      const here = [{ key: 't/7@8000', tokens: 2_000, idleMs: 0, awayForMs: 60_000 }];
      rig.say('sg', { kind: 'away', snapshot: true, here, gone: [] });
      for (let n = 0; n < 60; n += 1) {
        rig.pass(1_000);
        rig.report('jp');
        rig.grant('jp', 10_000);
        rig.report('sg', { waitingPrefillMs: 6_000 });
      }
      const kinds = Array.from({ length: 12 }, () =>
        kindOf(rig.arrive({ prompts: [turnsOf(7, 3)] })),
      );
      expect(new Set(kinds.map(String))).toEqual(new Set(['send,affinity,sg']));
    });

    test('never again within the dwell where this router has moved it itself, then once more', () => {
      const rig = lives([600, 1_500, 1_500, 1_500]);
      const moved = () => {
        for (let n = 0; n < 12; n += 1) {
          const effects = rig.arrive({ prompts: [turnsOf(7, 2)] });
          const { lease } = attemptIn(effects);
          rig.end(lease, COMPLETE);
          if (decisionIn(effects)?.reason === 'moved') return attemptIn(effects).region;
        }
        return null;
      };
      expect(moved()).toBe('sg');
      const later = (seconds: number): string[] => {
        const kinds = new Set<string>();
        for (let n = 0; n < seconds; n += 1) {
          rig.pass(1_000);
          rig.report('jp');
          rig.grant('jp', 10_000);
          rig.report('sg', { waitingPrefillMs: 6_000 });
          const effects = rig.arrive({ prompts: [turnsOf(7, 3)] });
          rig.end(attemptIn(effects).lease, COMPLETE);
          kinds.add(String(kindOf(effects)));
        }
        return [...kinds];
      };
      expect(later(590)).toEqual(['send,affinity,sg']);
      expect(later(60)).toContain('spill,moved,jp');
    });

    test('never to a neighbour that was as full in one of the two reports', () => {
      const rig = lives([600, 1_500, 1_500, 1_500]);
      rig.report('sg', { waitingPrefillMs: 3_000 });
      rig.pass(600);
      rig.report('sg');
      expect(next(rig)).toEqual(['send', 'affinity', 'jp']);
      rig.pass(600);
      rig.report('sg');
      expect(next(rig)).toEqual(['spill', 'moved', 'sg']);
    });

    test('never for less', () => {
      expect(next(lives([600, 700, 700, 700]))).toEqual(['send', 'affinity', 'jp']);
    });
  });
});
