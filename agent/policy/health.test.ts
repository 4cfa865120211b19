import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { DegradedReason } from '../../shared/model/phase.ts';
import { Health } from './health.ts';

type Act = 'good' | 'goodSlow' | 'bad' | 'slow' | 'lost' | 'back' | 'reset';

function act(health: Health, what: Act, nowMs: number): void {
  if (what === 'good') health.probed({ good: true, atPace: true }, nowMs);
  else if (what === 'goodSlow') health.probed({ good: true, atPace: false }, nowMs);
  else if (what === 'bad') health.probed({ good: false, atPace: false }, nowMs);
  else if (what === 'slow') health.slow(nowMs);
  else if (what === 'reset') health.reset(nowMs);
  else health.gpu(what === 'lost', nowMs);
}

describe('a rank', () => {
  const cases: [string, Act[], (DegradedReason | null)[]][] = [
    ['is fit while its probes are good', ['good', 'good'], [null, null]],
    ['is degraded by one bad probe', ['bad'], ['probe']],
    [
      'comes back after three good probes in a row',
      ['bad', 'good', 'bad', 'good', 'good', 'good'],
      ['probe', 'probe', 'probe', 'probe', 'probe', null],
    ],
    [
      'that is slow comes back after three probes at its old pace only',
      ['slow', 'good', 'good', 'goodSlow', 'good', 'good', 'good'],
      ['slow', 'slow', 'slow', 'slow', 'slow', 'slow', null],
    ],
    [
      'that does not generate at all is more than slow; its pace does not matter for that',
      ['slow', 'bad', 'goodSlow', 'goodSlow', 'goodSlow'],
      ['slow', 'probe', 'probe', 'probe', null],
    ],
    [
      'without its GPU is degraded whatever its probes say, until the GPU is there and probes are good',
      ['lost', 'good', 'good', 'good', 'back', 'good', 'good', 'good'],
      ['host', 'host', 'host', 'host', 'host', 'host', 'host', null],
    ],
    ['a missing GPU outranks', ['slow', 'lost', 'bad'], ['slow', 'host', 'host']],
    ['of another process is fit, as far as is known', ['bad', 'reset'], ['probe', null]],
    ['of another process still lacks its GPU', ['lost', 'reset'], ['host', 'host']],
    [
      'that is said to be slow twice is slow once',
      ['slow', 'good', 'slow'],
      ['slow', 'slow', 'slow'],
    ],
  ];
  test.each(cases)('%s', (_, acts, expected) => {
    const health = new Health(3);
    const reasons = acts.map((each, at) => {
      act(health, each, at);
      return health.degradedFor;
    });
    expect(reasons).toEqual(expected);
  });

  test('says since when', () => {
    const health = new Health(1);
    health.slow(5);
    health.slow(6);
    expect(health.sinceMs).toBe(5);
    health.probed({ good: true, atPace: true }, 9);
    expect(health.sinceMs).toBe(9);
  });

  test('never comes back without as many good probes as are asked for since the last bad news', () => {
    const acts = fc.array(fc.constantFrom<Act>('good', 'goodSlow', 'bad', 'slow', 'lost', 'back'));
    fc.assert(
      fc.property(acts, fc.integer({ min: 1, max: 4 }), (list, recoveries) => {
        const health = new Health(recoveries);
        let good = 0;
        for (const [at, each] of list.entries()) {
          const before = health.degradedFor;
          good = each === 'good' || each === 'goodSlow' ? good + 1 : each === 'back' ? good : 0;
          act(health, each, at);
          if (before !== null && health.degradedFor === null) {
            expect(good).toBeGreaterThanOrEqual(recoveries);
          }
        }
      }),
    );
  });
});
