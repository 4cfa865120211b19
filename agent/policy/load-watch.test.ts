import { describe, expect, test } from 'vitest';
import { NO_EVIDENCE, type ProcessEvidence } from '../events.ts';
import { LoadWatch } from './load-watch.ts';

function seen(
  more: { stage?: string; ratio?: number | null; pid?: number; restarts?: number } = {},
): ProcessEvidence {
  const { stage, ratio = null, pid, restarts = null } = more;
  return {
    ...NO_EVIDENCE,
    state: 'alive',
    progress: stage === undefined ? null : { stage, ratio },
    process: pid === undefined ? null : { source: 'unit', pid },
    restarts,
  };
}

/** 10 s of starting, 40 s of weights, 10 s of graphs. */
function loadedOnce(): LoadWatch {
  const watch = new LoadWatch();
  watch.loading(seen({ stage: 'starting' }), 0);
  watch.loading(seen({ stage: 'weights', ratio: 0 }), 10_000);
  watch.loading(seen({ stage: 'graphs' }), 50_000);
  watch.served(60_000);
  return watch;
}

describe('the ETA of a load', () => {
  test('is unknown while nothing tells', () => {
    const watch = new LoadWatch();
    watch.loading(seen(), 0);
    expect(watch.etaMs(10_000)).toBeNull();
    watch.loading(seen({ stage: 'compiling' }), 10_000);
    expect(watch.etaMs(30_000)).toBeNull();
  });

  test('is the rest of the stage at its pace where only a ratio tells: a lower bound', () => {
    const watch = new LoadWatch();
    watch.loading(seen({ stage: 'weights', ratio: 0 }), 0);
    watch.loading(seen({ stage: 'weights', ratio: 0.25 }), 20_000);
    expect(watch.etaMs(20_000)).toBe(60_000);
    watch.loading(seen({ stage: 'weights', ratio: 1 }), 80_000);
    expect(watch.etaMs(80_000)).toBeNull();
  });

  test('does not trust a pace of the first moment', () => {
    const watch = new LoadWatch();
    watch.loading(seen({ stage: 'weights', ratio: 0 }), 0);
    watch.loading(seen({ stage: 'weights', ratio: 0.5 }), 500);
    expect(watch.etaMs(500)).toBeNull();
    watch.loading(seen({ stage: 'weights', ratio: 0.01 }), 5_000);
    expect(watch.etaMs(5_000)).toBeNull();
  });

  test('is what is left of an earlier load where the log tells nothing', () => {
    const watch = loadedOnce();
    watch.loading(seen(), 100_000);
    expect(watch.etaMs(115_000)).toBe(45_000);
    expect(watch.etaMs(300_000)).toBe(0);
  });

  test('follows the stage, not the time: weights from a warm cache are quicker', () => {
    const watch = loadedOnce();
    watch.loading(seen({ stage: 'starting' }), 100_000);
    watch.loading(seen({ stage: 'weights', ratio: 0 }), 102_000);
    watch.loading(seen({ stage: 'weights', ratio: 0.5 }), 103_000);
    // 20 s of weights and 10 s of graphs were left then.
    expect(watch.etaMs(103_000)).toBe(30_000);
    watch.loading(seen({ stage: 'graphs' }), 104_000);
    expect(watch.etaMs(106_000)).toBe(8_000);
  });

  test('goes by time in a stage without a figure, never beyond the stage', () => {
    const watch = loadedOnce();
    watch.loading(seen({ stage: 'starting' }), 100_000);
    expect(watch.etaMs(105_000)).toBe(55_000);
    expect(watch.etaMs(130_000)).toBe(50_000);
  });

  test('is none of a load whose log says that it failed', () => {
    const watch = loadedOnce();
    watch.loading(seen({ stage: 'failed' }), 100_000);
    expect(watch.etaMs(101_000)).toBeNull();
  });
});

describe('an engine that dies in load', () => {
  test('three times has no ETA any more, until it serves', () => {
    const watch = loadedOnce();
    for (const death of [1, 2, 3]) {
      watch.loading(seen(), death * 10_000 + 100_000);
      expect(watch.loops).toBe(false);
      watch.gone();
      expect(watch.deaths).toBe(death);
    }
    watch.loading(seen(), 200_000);
    expect(watch.loops).toBe(true);
    expect(watch.etaMs(201_000)).toBeNull();
    watch.served(250_000);
    watch.loading(seen(), 300_000);
    expect([watch.deaths, watch.etaMs(301_000)]).toEqual([0, 49_000]);
  });

  test('and is started again between two looks counts by its process', () => {
    const watch = new LoadWatch();
    watch.loading(seen({ pid: 1 }), 0);
    watch.loading(seen({ pid: 2 }), 5_000);
    expect([watch.deaths, watch.sinceMs]).toEqual([1, 5_000]);
    watch.loading(seen({ pid: 2 }), 6_000);
    expect(watch.deaths).toBe(1);
  });

  test('counts by its supervisor’s restarts, all of them', () => {
    const watch = new LoadWatch();
    watch.loading(seen({ pid: 1, restarts: 2 }), 0);
    watch.loading(seen({ pid: 9, restarts: 5 }), 5_000);
    expect([watch.deaths, watch.loops]).toEqual([3, true]);
  });

  test('that died in service, or was never seen to load, did not die in load', () => {
    const watch = new LoadWatch();
    watch.gone();
    watch.loading(seen({ pid: 1, restarts: 7 }), 0);
    watch.served(10);
    watch.gone();
    expect(watch.deaths).toBe(0);
    // The restart that brought it back is no second death.
    watch.loading(seen({ pid: 2, restarts: 8 }), 20);
    expect(watch.deaths).toBe(0);
  });

  test('two sources that name different processes of it are no death', () => {
    const watch = new LoadWatch();
    watch.loading({ ...seen(), process: { source: 'pidFile', pid: 1 } }, 0);
    watch.loading({ ...seen(), process: { source: 'list', pid: 2 } }, 1_000);
    expect(watch.deaths).toBe(0);
  });
});
