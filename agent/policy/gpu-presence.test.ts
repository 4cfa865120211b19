import { describe, expect, test } from 'vitest';
import { GpuPresence, type GpuFacts, type GpuReading } from './gpu-presence.ts';

function gpu(uuid: string, more: Partial<GpuFacts> = {}): GpuFacts {
  const facts = { memoryTotalBytes: 100, memoryUsedBytes: 40, temperatureC: 50, powerW: null };
  return {
    index: 0,
    uuid,
    name: 'NVIDIA H200',
    ...facts,
    utilisationRatio: 0.5,
    throttled: false,
    lost: false,
    ...more,
  };
}

const reading = (...gpus: GpuFacts[]): GpuReading => ({ kind: 'gpus', gpus });
const UNKNOWN: GpuReading = { kind: 'unknown' };
const LOST: GpuReading = { kind: 'lost' };

/** How many are missing after each reading. */
function missing(
  readings: readonly GpuReading[],
  uuids: readonly string[] | null = null,
): (number | null)[] {
  const presence = new GpuPresence();
  return readings.map((each) => {
    presence.take(each, uuids);
    return presence.summary?.lost ?? null;
  });
}

describe('missing GPUs', () => {
  const two = reading(gpu('a'), gpu('b'));
  const cases: [string, readonly GpuReading[], readonly string[] | null, (number | null)[]][] = [
    ['none while the same are listed', [two, two], null, [0, 0]],
    [
      'one that is no longer listed, until it is back',
      [two, reading(gpu('a')), two],
      null,
      [0, 1, 0],
    ],
    [
      'one that the driver calls lost',
      [two, reading(gpu('a'), gpu('b', { lost: true }))],
      null,
      [0, 1],
    ],
    ['all, where the driver finds none any more', [two, reading()], null, [0, 2]],
    ['none that was never there', [reading(), reading(gpu('a'))], null, [null, 0]],
    [
      'none that was lost before it was ever seen well',
      [reading(gpu('a', { lost: true }))],
      null,
      [null],
    ],
    ['at least one where one lost GPU hides the others', [two, LOST, two], null, [0, 1, 0]],
    [
      'what is not known changes nothing',
      [two, UNKNOWN, reading(gpu('a')), UNKNOWN],
      null,
      [0, 0, 1, 1],
    ],
    ['a lost one is no news of a machine without GPUs', [UNKNOWN, LOST], null, [null, null]],
    ['another engine’s GPU is not missed', [two, reading(gpu('a'))], ['a'], [0, 0]],
    ['the engine’s own is', [two, reading(gpu('b'))], ['a'], [0, 1]],
  ];
  test.each(cases)('%s', (_, readings, uuids, expected) => {
    expect(missing(readings, uuids)).toEqual(expected);
  });

  test('those that the engine no longer uses are not missed', () => {
    const presence = new GpuPresence();
    presence.take(two, ['a', 'b']);
    presence.take(reading(gpu('a')), ['a']);
    expect(presence.missing).toBe(false);
  });
});

test('what a reading that fails does not tell is unknown; which GPUs there are stands', () => {
  const presence = new GpuPresence();
  presence.take(reading(gpu('a')), null);
  for (const failed of [UNKNOWN, LOST]) {
    presence.take(failed, null);
    expect(presence.summary).toMatchObject({
      ...{ name: 'NVIDIA H200', count: 1, memoryTotalBytes: 100, memoryUsedBytes: null },
      ...{ temperatureC: null, utilisationRatio: null, throttled: null },
    });
  }
});

test('figures of several are summed, averaged, or the hottest; a sum that lacks one is unknown', () => {
  const presence = new GpuPresence();
  presence.take(
    reading(
      gpu('a', { temperatureC: 81, utilisationRatio: 1, throttled: true }),
      gpu('b', { memoryUsedBytes: null }),
    ),
    null,
  );
  expect(presence.summary).toEqual({
    name: 'NVIDIA H200',
    count: 2,
    lost: 0,
    memoryTotalBytes: 200,
    memoryUsedBytes: null,
    temperatureC: 81,
    utilisationRatio: 0.75,
    throttled: true,
  });
});
