import { describe, expect, test } from 'vitest';
import { Lifecycle } from './lifecycle.ts';
import { NO_EVIDENCE, type ProcessEvidence } from '../events.ts';
import type { Phase } from '../../shared/model/phase.ts';

const SETTINGS = { startTimeoutMs: 600_000 };

function seen(state: unknown, more: Partial<ProcessEvidence> = {}): ProcessEvidence {
  return { ...NO_EVIDENCE, state: state as ProcessEvidence['state'], ...more };
}

type Act =
  | readonly ['refused', 'alive' | 'absent' | 'unknown']
  | readonly ['failed', 'alive' | 'absent' | 'unknown']
  | readonly ['answers' | 'asleep' | 'warmedUp' | 'reborn' | 'drain'];

function phasesOf(acts: readonly (readonly [number, ...Act])[]): Phase[] {
  const life = new Lifecycle(SETTINGS, 0);
  return acts.map(([nowMs, what, evidence]) => {
    if (what === 'refused') life.refused(seen(evidence), nowMs);
    else if (what === 'failed') life.failed(seen(evidence), nowMs);
    else if (what === 'answers') life.answered(false, nowMs);
    else if (what === 'asleep') life.answered(true, nowMs);
    else if (what === 'warmedUp') life.warmedUp(nowMs);
    else if (what === 'reborn') life.reborn(nowMs);
    else life.drain(nowMs);
    return life.phase;
  });
}

describe('phases', () => {
  const cases: [string, (readonly [number, ...Act])[], Phase[]][] = [
    [
      'a refused port without evidence is starting until the time-out, then dead',
      [
        [1_000, 'refused', 'unknown'],
        [599_000, 'refused', 'unknown'],
        [600_000, 'refused', 'unknown'],
      ],
      ['starting', 'starting', 'dead'],
    ],
    [
      'a refused port is loading only with a living process',
      [
        [1_000, 'refused', 'alive'],
        [2_000, 'refused', 'absent'],
        [3_000, 'refused', 'alive'],
      ],
      ['loading', 'dead', 'loading'],
    ],
    [
      'an answering port is warming, and ready only after warm-up',
      [
        [1_000, 'answers'],
        [2_000, 'answers'],
        [3_000, 'warmedUp'],
      ],
      ['warming', 'warming', 'ready'],
    ],
    [
      'something that answers as no engine does is not warming',
      [
        [1_000, 'failed', 'unknown'],
        [2_000, 'failed', 'alive'],
      ],
      ['starting', 'loading'],
    ],
    [
      'one refused scrape of a ready engine changes nothing, a second one does',
      [
        [1, 'answers'],
        [2, 'warmedUp'],
        [3, 'refused', 'unknown'],
        [4, 'refused', 'unknown'],
      ],
      ['warming', 'ready', 'ready', 'starting'],
    ],
    [
      'a ready engine whose process is gone is dead at once',
      [
        [1, 'answers'],
        [2, 'warmedUp'],
        [3, 'refused', 'absent'],
      ],
      ['warming', 'ready', 'dead'],
    ],
    [
      'a sleeping engine is asleep, and warms up again when it wakes',
      [
        [1, 'answers'],
        [2, 'warmedUp'],
        [3, 'asleep'],
        [4, 'answers'],
      ],
      ['warming', 'ready', 'asleep', 'warming'],
    ],
    [
      'another engine process has to warm up',
      [
        [1, 'answers'],
        [2, 'warmedUp'],
        [3, 'reborn'],
      ],
      ['warming', 'ready', 'warming'],
    ],
    [
      'draining is for good',
      [
        [1, 'answers'],
        [2, 'drain'],
        [3, 'answers'],
        [4, 'refused', 'absent'],
      ],
      ['warming', 'draining', 'draining', 'draining'],
    ],
  ];
  test.each(cases)('%s', (_, acts, expected) => {
    expect(phasesOf(acts)).toEqual(expected);
  });
});

test('loading has an ETA once a load was seen whole', () => {
  const life = new Lifecycle(SETTINGS, 0);
  life.refused(seen('alive'), 0);
  expect(life.loadEtaMs(10_000)).toBeNull();
  life.answered(false, 50_000);
  life.warmedUp(60_000);
  life.refused(seen('alive'), 100_000);
  life.refused(seen('alive'), 100_100);
  expect(life.phase).toBe('loading');
  expect(life.loadEtaMs(110_000)).toBeCloseTo(40_100);
});
