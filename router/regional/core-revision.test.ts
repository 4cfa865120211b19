// A revision that is asked for: by name, by what a tenant may use, or by a name that stands for one.

import { describe, expect, test } from 'vitest';
import type { PoolId } from '../../shared/model/ids.ts';
import { attemptsIn, CoreRig, MODEL, refusalIn } from './core.harness.ts';

/** Two replicas of one pool, of a revision each. */
function rigOf(more: { readonly revisions?: Readonly<Record<string, string>> } = {}): CoreRig {
  const aliases = { stable: MODEL };
  const rig = new CoreRig({
    pools: [{ id: 'pool' as PoolId, models: [MODEL, 'stable'], aliases, ...more }],
  });
  rig.ready('a', { revision: 'r1' });
  rig.ready('b', { revision: 'r2' });
  return rig;
}

const ask = (rig: CoreRig, model: string, revisions?: readonly string[]) =>
  rig.arrive({ model, ...(revisions === undefined ? {} : { revisions }) });
/** Where it is served; it ends there. */
function servedBy(rig: CoreRig, model: string, revisions?: readonly string[]): string | undefined {
  const [attempt] = attemptsIn(ask(rig, model, revisions));
  if (attempt !== undefined) rig.end(attempt.lease);
  return attempt?.target.replica;
}

describe('a request for one revision', () => {
  test('goes to a replica that runs it, also where another is better', () => {
    const rig = rigOf();
    for (let n = 0; n < 3; n += 1) {
      expect(servedBy(rig, `${MODEL}@r2`)).toBe('b');
      expect(servedBy(rig, `${MODEL}@r1`)).toBe('a');
    }
  });

  test('of the tier before, or its tenant, keeps to those', () => {
    const rig = rigOf();
    for (let n = 0; n < 3; n += 1) expect(servedBy(rig, MODEL, ['r2', 'r3'])).toBe('b');
    expect(refusalIn(ask(rig, `${MODEL}@r1`, ['r2']))).toMatchObject({ code: 'model_not_found' });
  });

  test('by a name that stands for it keeps to it, and no other revision is that name', () => {
    const rig = rigOf({ revisions: { stable: 'r1' } });
    for (let n = 0; n < 3; n += 1) expect(servedBy(rig, 'stable')).toBe('a');
    expect(refusalIn(ask(rig, 'stable@r2'))).toMatchObject({ code: 'model_not_found' });
    const [asked] = attemptsIn(ask(rig, 'stable'));
    expect(asked?.engineModel).toBe(MODEL);
  });

  test('that nobody runs is refused for good, also while another revision is loading', () => {
    const rig = rigOf();
    rig.ready('c', { revision: 'r3', phase: 'loading' });
    expect(refusalIn(ask(rig, `${MODEL}@r4`))).toMatchObject({
      ...{ code: 'model_not_found', retryAfterMs: null },
      decision: { reason: 'unknown_revision' },
    });
    const { candidates } = rig.core.explain(rig.request({ model: `${MODEL}@r4` }), rig.nowMs);
    expect(candidates.map(({ removed }) => removed)).toEqual(['revision', 'revision', 'revision']);
  });

  test('that says none satisfies none', () => {
    const rig = new CoreRig();
    rig.ready('a', { revision: 'unknown' });
    expect(refusalIn(ask(rig, `${MODEL}@unknown`))).toMatchObject({ code: 'model_not_found' });
    expect(servedBy(rig, MODEL)).toBe('a');
  });
});
