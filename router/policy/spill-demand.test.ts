import { describe, expect, test } from 'vitest';
import { GLOBAL_DEFAULTS } from '../../shared/model/global-settings.ts';
import { SpillFlow } from './spill-demand.ts';

/** Ten a second of 100 ms each, for so long. */
function steady(ms: number): SpillFlow {
  const flow = new SpillFlow();
  for (let at = 0; at <= ms; at += 100) flow.came(100, at);
  return flow;
}

describe('what is asked of receivers', () => {
  test('is the share of what comes within the horizon', () => {
    // 1,000 ms of prefill a second, 5 s, a quarter and what the ramp adds.
    const share = 0.25 + (0.1 * 5_000) / 60_000;
    const wanted = steady(60_000).abroadMs(0.25, GLOBAL_DEFAULTS, 60_000);
    expect(wanted).toBeGreaterThan(5_000 * share * 0.97);
    expect(wanted).toBeLessThan(5_000 * share * 1.03);
  });

  test('is no more than the ceiling lets abroad', () => {
    const flow = steady(60_000);
    const ceiling = flow.abroadMs(0.5, GLOBAL_DEFAULTS, 60_000);
    expect(flow.abroadMs(0.9, GLOBAL_DEFAULTS, 60_000)).toBe(ceiling);
  });

  test('is one request at least, so that a share of 0 can begin to grow', () => {
    const flow = new SpillFlow();
    flow.came(300, 0);
    expect(flow.abroadMs(0, GLOBAL_DEFAULTS, 0)).toBe(300);
  });

  test('is nothing where nothing comes any more', () => {
    const flow = steady(1_000);
    expect(flow.abroadMs(0.5, GLOBAL_DEFAULTS, 120_000)).toBe(0);
    expect(flow.requestMs(120_000)).toBeNull();
  });
});
