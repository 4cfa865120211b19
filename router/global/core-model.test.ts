// What a request demands of the model itself: a revision, and a context that it fits into.

import { describe, expect, test } from 'vitest';
import type { PoolId } from '../../shared/model/ids.ts';
import type { RegionModelReport } from '../../shared/protocol/region-messages.ts';
import {
  asia,
  attemptIn,
  kindOf,
  MODEL,
  poolReport,
  refusalIn,
  tenantOf,
  turnsOf,
} from './core.harness.ts';
import type { GlobalRig } from './core.harness.ts';

function model(more: Partial<RegionModelReport> = {}): readonly RegionModelReport[] {
  return [{ name: MODEL, revision: 'r1', maxModelLen: null, ...more }];
}

/** Japan is nearest and takes 1,200 tokens, Singapore 4,000, the EU says nothing. */
function contexts(rig = asia()): GlobalRig {
  const bytesPerTokenMost = 4;
  rig.report('jp', { models: model({ longestModelLen: 1_200, bytesPerTokenMost }) });
  rig.report('sg', { models: model({ longestModelLen: 4_000, bytesPerTokenMost }) });
  return rig;
}
/** So many thousand tokens. */
const prompts = (thousands: number) => [turnsOf(1, thousands)];

describe('a prompt that is too long for the nearest region', () => {
  test('goes to one that takes it, and is at home there', () => {
    const rig = contexts();
    expect(attemptIn(rig.arrive({ prompts: prompts(1) })).region).toBe('jp');
    const long = rig.arrive({ prompts: prompts(2) });
    expect(kindOf(long)).toEqual(['send', 'home', 'sg']);
    expect(attemptIn(long).away).toBe(false);
    expect(attemptIn(rig.arrive({ prompts: prompts(5) })).region).toBe('eu');
  });

  test('counts with the answer that it asks for', () => {
    const rig = contexts();
    expect(attemptIn(rig.arrive({ prompts: prompts(1), maxTokens: 200 })).region).toBe('jp');
    expect(attemptIn(rig.arrive({ prompts: prompts(1), maxTokens: 201 })).region).toBe('sg');
    expect(attemptIn(rig.arrive({ prompts: prompts(1), maxTokens: null })).region).toBe('jp');
  });

  test('is no matter where the engine cuts it, or makes nothing of it', () => {
    const rig = contexts();
    expect(attemptIn(rig.arrive({ prompts: prompts(9), truncates: true })).region).toBe('jp');
    expect(attemptIn(rig.arrive({ prompts: [], work: 'light' })).region).toBe('jp');
  });

  test('goes to the pool of its home region that takes it, though another has more replicas', () => {
    const rig = asia();
    const pool = (id: string, readyReplicas: number, longestModelLen: number) =>
      poolReport({
        ...{ pool: id as PoolId, readyReplicas },
        models: model({ longestModelLen, bytesPerTokenMost: 4 }),
      });
    const pools = [pool('short', 9, 2_000), pool('long', 1, 4_000)];
    rig.say('jp', { kind: 'report', seq: 1, pools, routers: 1, draining: false, arrived: [] });
    const placed = (thousands: number, maxTokens = 10): readonly string[] => {
      const { region, pool: id } = attemptIn(
        rig.arrive({ prompts: prompts(thousands), maxTokens }),
      );
      return [region, id];
    };
    expect(placed(1)).toEqual(['jp', 'short']);
    expect(placed(3)).toEqual(['jp', 'long']);
    expect(placed(1, 2_000)).toEqual(['jp', 'long']);
    const { candidates, pool: explained } = rig.core.explain(
      rig.request({ prompts: prompts(3) }),
      rig.nowMs,
    );
    expect([candidates[0]?.removed, explained]).toEqual([null, 'long']);
    // It fits in the end without its answer alone: there, and not where not even it does.
    for (const region of ['sg', 'eu']) {
      rig.report(region, { models: model({ longestModelLen: 1_000, bytesPerTokenMost: 4 }) });
    }
    expect(placed(3, 9_000)).toEqual(['jp', 'long']);
  });

  test('is refused as too long where every region of its tenant is too short, and says so in explain', () => {
    const rig = contexts(asia({ tenants: { t: tenantOf(['jp'], ['sg']) } }));
    expect(attemptIn(rig.arrive({ prompts: prompts(2) })).region).toBe('sg');
    const request = rig.request({ prompts: prompts(5) });
    const { kind, reason, candidates } = rig.core.explain(request, rig.nowMs);
    expect([kind, reason]).toEqual(['refuse', 'context_length']);
    expect(candidates.map(({ removed }) => removed)).toEqual([
      ...['context_length', 'context_length', 'residency'],
    ]);
    expect(refusalIn(rig.handle({ kind: 'arrived', request }))).toMatchObject({
      ...{ code: 'context_length_exceeded', retryAfterMs: null },
    });
  });

  test('is no reason to refuse where only the answer is: the engine cuts or refuses it', () => {
    const rig = contexts(asia({ tenants: { t: tenantOf(['jp', 'sg']) } }));
    const effects = rig.arrive({ prompts: prompts(1), maxTokens: 100_000 });
    expect(kindOf(effects)).toEqual(['send', 'home', 'jp']);
  });

  test('waits for the region that would take it where that one is out: nobody says that it is too long', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp', 'sg']) } });
    rig.pass(10_001);
    rig.report('jp', { models: model({ longestModelLen: 1_200, bytesPerTokenMost: 4 }) });
    expect(refusalIn(rig.arrive({ prompts: prompts(2) }))).toMatchObject({
      code: 'no_healthy_region',
    });
  });
});

describe('a revision that is asked for', () => {
  function revisions(rig = asia()): GlobalRig {
    rig.report('jp', { models: model({ revision: 'r1' }) });
    rig.report('sg', { models: [...model({ revision: 'r1' }), ...model({ revision: 'r2' })] });
    rig.report('eu', { models: model({ revision: 'r3' }) });
    return rig;
  }

  test('is served where some replica runs it', () => {
    const rig = revisions();
    const ask = (...asked: string[]) => attemptIn(rig.arrive({ revisions: asked })).region;
    expect([ask('r1'), ask('r2'), ask('r3'), ask('r3', 'r2')]).toEqual(['jp', 'sg', 'eu', 'sg']);
    expect(attemptIn(rig.arrive()).region).toBe('jp');
  });

  test('is refused where no region runs it, and says so in explain', () => {
    const rig = revisions(asia({ tenants: { t: tenantOf(['jp', 'sg']) } }));
    const request = rig.request({ revisions: ['r3'] });
    const { reason, candidates } = rig.core.explain(request, rig.nowMs);
    expect(reason).toBe('unknown_revision');
    expect(candidates.map(({ removed }) => removed)).toEqual(['revision', 'revision', 'residency']);
    expect(refusalIn(rig.handle({ kind: 'arrived', request }))).toMatchObject({
      ...{ code: 'model_not_found', retryAfterMs: null },
    });
  });
});
