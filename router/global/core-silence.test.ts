import { describe, expect, test } from 'vitest';
import type { RegionId } from '../../shared/model/ids.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import {
  asia,
  attemptIn,
  attemptsIn,
  COMPLETE,
  GlobalRig,
  kindOf,
  tenantOf,
} from './core.harness.ts';

const CALLED_BACK: AttemptResult = { kind: 'serverFault', cause: 'region_silent', detail: '' };

/** Seconds pass, with reports of these regions. */
function seconds(rig: GlobalRig, count: number, ...reporting: readonly string[]) {
  const effects: ReturnType<GlobalRig['pass']> = [];
  for (let n = 0; n < 4 * count; n += 1) {
    effects.push(...rig.pass(250));
    if (n % 4 === 3) for (const region of reporting) effects.push(...rig.report(region));
  }
  return effects;
}

const region = (rig: GlobalRig, k = 0) => rig.core.status(rig.nowMs).regions[k];
const aborted = (effects: ReturnType<GlobalRig['pass']>) =>
  effects.flatMap((effect) => (effect.kind === 'abort' ? [effect] : []));
const logged = (effects: ReturnType<GlobalRig['pass']>, code: string) =>
  effects.filter((effect) => effect.kind === 'log' && effect.code === code);

describe('a region that stands still', () => {
  test('gets nothing new but one request at a time once three of its reports have not come', () => {
    const rig = asia();
    seconds(rig, 17, 'jp', 'sg', 'eu');
    seconds(rig, 2.75, 'sg', 'eu');
    expect(attemptIn(rig.arrive()).region).toBe('jp');
    expect(logged(seconds(rig, 0.5, 'sg', 'eu'), 'region_silent')).toHaveLength(1);
    expect(region(rig)).toMatchObject({ seen: true, silent: true });
    // The one that is under way since before does not try it.
    expect(attemptIn(rig.arrive()).region).toBe('jp');
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    const { candidates } = rig.core.explain(rig.request(), rig.nowMs);
    expect(candidates[0]).toMatchObject({ region: 'jp', removed: 'silent' });
  });

  test('has what it holds called back when that is overdue, and it is answered elsewhere', () => {
    const rig = asia();
    seconds(rig, 17, 'jp', 'sg', 'eu');
    const held = Array.from({ length: 20 }, () => attemptIn(rig.arrive()));
    const calledBack = aborted(seconds(rig, 4, 'sg', 'eu'));
    expect(calledBack).toHaveLength(20);
    expect(new Set(calledBack.map(({ reason }) => reason))).toEqual(new Set(['region_silent']));
    const again = held.map(({ lease }) => kindOf(rig.end(lease, CALLED_BACK)));
    expect(new Set(again.map(String))).toEqual(new Set(['send,failover,sg']));
    // Once: nothing is called back a second time.
    expect(aborted(seconds(rig, 3, 'sg', 'eu'))).toEqual([]);
  });

  test('keeps what has begun: a stream goes on or stalls by its own deadline', () => {
    const rig = asia();
    seconds(rig, 17, 'jp', 'sg', 'eu');
    const begun = attemptIn(rig.arrive());
    rig.handle({ kind: 'firstToken', lease: begun.lease });
    expect(aborted(seconds(rig, 12, 'sg', 'eu'))).toEqual([]);
  });

  test('is given the time that a long prefill takes, and not more than the grace', () => {
    const rig = asia();
    seconds(rig, 17, 'jp', 'sg', 'eu');
    // 40,000 tokens at 8,000 a second.
    const long = attemptIn(
      rig.arrive({ prompts: [{ ...attemptPrompt(160_000), tokenIds: null }] }),
    );
    expect(long.region).toBe('jp');
    expect(aborted(seconds(rig, 8, 'sg', 'eu'))).toEqual([]);
    expect(aborted(seconds(rig, 4, 'sg', 'eu'))).toMatchObject([{ lease: long.lease }]);
  });

  test('keeps what no other region may serve, and goes on being asked for it', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    seconds(rig, 17, 'jp', 'sg', 'eu');
    for (let n = 0; n < 3; n += 1) rig.arrive();
    expect(aborted(seconds(rig, 8, 'sg', 'eu'))).toEqual([]);
    expect(region(rig)?.silent).toBe(true);
    expect([attemptIn(rig.arrive()), attemptIn(rig.arrive())].map((each) => each.region)).toEqual([
      'jp',
      'jp',
    ]);
  });

  test.each<[string, (rig: GlobalRig, lease: string) => void]>([
    ['a report', (rig) => void rig.report('jp')],
    ['a new link', (rig) => void rig.up('jp', 'another')],
    [
      'an answer to a ping',
      (rig) => void rig.handle({ kind: 'rtt', region: 'jp' as RegionId, rttMs: 15 }),
    ],
    [
      'a first token',
      (rig, lease) => void rig.handle({ kind: 'firstToken', lease: lease as never }),
    ],
    [
      'an answer that refuses',
      (rig, lease) => void rig.end(lease, { kind: 'clientError', status: 400 }),
    ],
  ])('is heard again by %s', (_, says) => {
    const rig = asia();
    seconds(rig, 17, 'jp', 'sg', 'eu');
    seconds(rig, 3.5, 'sg', 'eu');
    const trial = attemptIn(rig.arrive());
    expect(trial.region).toBe('jp');
    expect(attemptIn(rig.arrive()).region).toBe('sg');
    says(rig, trial.lease);
    expect(region(rig)?.silent).toBe(false);
    expect([attemptIn(rig.arrive()), attemptIn(rig.arrive())].map((each) => each.region)).toEqual([
      'jp',
      'jp',
    ]);
  });

  test('is not heard by a connection: whatever stands before it accepts those', () => {
    const rig = asia();
    seconds(rig, 17, 'jp', 'sg', 'eu');
    seconds(rig, 3.5, 'sg', 'eu');
    rig.handle({ kind: 'rtt', region: 'jp' as RegionId, rttMs: 15, over: 'connection' });
    expect(region(rig)?.silent).toBe(true);
  });
});

describe('a region whose reports alone are gone', () => {
  test('is used as before while it gives first tokens', () => {
    const rig = asia();
    seconds(rig, 17, 'jp', 'sg', 'eu');
    for (let n = 0; n < 8; n += 1) {
      const attempt = attemptIn(rig.arrive());
      expect(attempt.region).toBe('jp');
      seconds(rig, 1, 'sg', 'eu');
      rig.handle({ kind: 'firstToken', lease: attempt.lease });
      rig.end(attempt.lease, COMPLETE);
    }
    expect(region(rig)).toMatchObject({ seen: true, silent: false });
  });
});

describe('a router that has stood still itself', () => {
  test('takes nobody for silent, and calls nothing back', () => {
    const rig = asia();
    seconds(rig, 17, 'jp', 'sg', 'eu');
    const held = attemptIn(rig.arrive());
    rig.nowMs += 6_000;
    const woken = rig.handle({ kind: 'tick' });
    expect(aborted(woken)).toEqual([]);
    expect(logged(woken, 'region_silent')).toEqual([]);
    for (const id of ['jp', 'sg', 'eu']) rig.report(id);
    expect(aborted(seconds(rig, 2, 'jp', 'sg', 'eu'))).toEqual([]);
    expect(region(rig)?.silent).toBe(false);
    rig.end(held.lease, COMPLETE);
    expect(attemptsIn(rig.arrive())).toMatchObject([{ region: 'jp' }]);
  });

  test('does not take a region for silent that was never heard, as at its own start', () => {
    const rig = new GlobalRig();
    rig.nowMs = 100_000;
    rig.join('near', 10);
    for (let n = 0; n < 20; n += 1) {
      rig.report('near');
      rig.pass(1_000);
    }
    const { regions } = rig.core.status(rig.nowMs);
    expect(regions.map(({ silent, seen }) => [silent, seen])).toEqual([
      [false, true],
      [false, false],
    ]);
  });
});

function attemptPrompt(bytes: number) {
  return {
    keySpace: 'text/1',
    bytes,
    hashes: new Uint32Array(0),
    turnEnds: [],
    end: { offset: bytes, chunks: 0, hashLow: 99, hashHigh: 0 },
    parts: {},
  };
}
