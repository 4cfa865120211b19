import { describe, expect, test } from 'vitest';
import { WARM_UP_DEFAULTS, WarmUp, type WarmUpStep } from './warm-up.ts';

function warmUp(change: { calibration?: boolean; budgetTokens?: number } = {}): WarmUp {
  let nonce = 0;
  const settings = { calibration: true, budgetTokens: 64_000, ...WARM_UP_DEFAULTS, ...change };
  return new WarmUp(settings, () => `n${(nonce += 1)}`);
}

/** Runs it to the end on an engine that makes `tokensPerWord`. */
function steps(warm: WarmUp, limitTokens: number | null, tokensPerWord = 1.3): WarmUpStep[] {
  const done: WarmUpStep[] = [];
  for (let i = 0; i < 50 && !warm.done; i += 1) {
    const step = warm.next({ idle: true, limitTokens }, i);
    if (step === null) continue;
    done.push(step);
    warm.ended(true, Math.round(step.prompt.split(' ').length * tokensPerWord), i);
  }
  expect(warm.done).toBe(true);
  return done;
}

const shape = (all: readonly WarmUpStep[]): string[] =>
  all.map(
    ({ uncached, cached, measured }) => `${uncached}|${cached}${measured ? '' : ' unmeasured'}`,
  );

test('one generation, every size unmeasured, then u {256, 2k, 8k} × c {0, 8k}', () => {
  expect(shape(steps(warmUp(), 131_072))).toEqual([
    '16|0 unmeasured',
    '256|0 unmeasured',
    '2048|0 unmeasured',
    '8192|0 unmeasured',
    '256|0 unmeasured',
    '256|0',
    '2048|0',
    '8192|0',
    '256|8192',
    '2048|8192',
    '8192|8192',
  ]);
});

test('nothing is measured after a prefix where nobody tells what was cached', () => {
  const warm = warmUp();
  warm.withoutPrefixes();
  const all = shape(steps(warm, 131_072));
  expect(all.filter((each) => !each.includes('unmeasured'))).toEqual(['256|0', '2048|0', '8192|0']);
});

describe('sizes that do not fit are left out', () => {
  test.each([
    [16_384, '2048|8192', '8192|8192'],
    [8_192, '256|2048', '2048|8192'],
    [4_224, '2048|2048', '8192|0'],
  ])('at a limit of %i tokens', (limit, has, lacks) => {
    const all = shape(steps(warmUp(), limit));
    expect(all).toContain(has);
    expect(all).not.toContain(lacks);
    for (const each of all) {
      const [u = 0, c = 0] = each.split(/[| ]/).map(Number);
      expect(u + c).toBeLessThan(limit);
    }
  });

  test('nor what exceeds the budget', () => {
    const all = steps(warmUp({ budgetTokens: 5_000 }), 131_072);
    expect(shape(all)).toEqual([
      '16|0 unmeasured',
      '256|0 unmeasured',
      '2048|0 unmeasured',
      '256|0 unmeasured',
      '256|0',
      '2048|0',
    ]);
  });

  test('nor anything where the budget is below a measurement', () => {
    expect(shape(steps(warmUp({ budgetTokens: 700 }), 131_072))).toEqual(['16|0 unmeasured']);
  });

  test('and nothing is measured where calibration is off', () => {
    expect(shape(steps(warmUp({ calibration: false }), 131_072))).toEqual(['16|0 unmeasured']);
  });
});

describe('the smallest size goes again until it takes as long as before', () => {
  /** Runs it where the first `cold` generations take 5 s more; how often the smallest went unmeasured. */
  function smallRuns(cold: number, budgetTokens = 64_000): number {
    const warm = warmUp({ budgetTokens });
    let nowMs = 0;
    let sent = 0;
    let small = 0;
    while (!warm.done) {
      const step = warm.next({ idle: true, limitTokens: 131_072 }, nowMs);
      if (step === null) throw new Error('nothing to do');
      sent += 1;
      if (step.uncached === 256 && !step.measured) small += 1;
      nowMs += step.uncached / 10 + (sent <= cold ? 5_000 : 0);
      warm.ended(true, Math.round(step.prompt.split(' ').length * 1.3), nowMs);
    }
    return small;
  }

  test.each([
    ['a warm engine', 0, 2],
    ['one whose first generation is slow', 1, 2],
    ['one whose first smallest is slow', 2, 3],
    ['one that is slow up to the largest', 4, 3],
  ])('%s', (_, cold, runs) => {
    expect(smallRuns(cold)).toBe(runs);
  });

  test('never beyond the budget', () => {
    expect(smallRuns(2, 256 + 2 * (256 + 2_048))).toBe(2);
  });
});

test('cached prompts extend the measured prefix; all others begin with a nonce of their own', () => {
  const all = steps(warmUp(), 131_072);
  const prefix = all.find((step) => step.measured && step.uncached === 8_192)?.prompt ?? '';
  for (const step of all) {
    expect(step.prompt.startsWith(`${prefix} `)).toBe(step.cached > 0);
  }
  const starts = all.filter((step) => step.cached === 0).map((step) => step.prompt.split(' ')[0]);
  expect(new Set(starts).size).toBe(starts.length);
});

test('sizes follow the tokenizer once the first generation has told', () => {
  const all = steps(warmUp(), 131_072, 3);
  const big = all.find((step) => step.uncached === 2_048);
  expect(big?.prompt.split(' ').length).toBeCloseTo(2_048 / 3, -2);
});

test('waits for an idle engine, but not for ever', () => {
  const warm = warmUp();
  const busy = { idle: false, limitTokens: 8_192 };
  expect(warm.next(busy, 0)?.purpose).toBe('probe');
  warm.ended(true, 16, 0);
  expect(warm.next(busy, 10)).toBeNull();
  expect(warm.done).toBe(false);
  expect(warm.nextWakeMs(10)).toBe(10 + WARM_UP_DEFAULTS.idleWaitMs);
  expect(warm.next(busy, 10 + WARM_UP_DEFAULTS.idleWaitMs)).toBeNull();
  expect(warm.done).toBe(true);
});

test('a failed calibration ends it, and a generation must prove the engine again', () => {
  const warm = warmUp();
  const idle = { idle: true, limitTokens: 8_192 };
  warm.next(idle, 0);
  warm.ended(true, 16, 0);
  expect(warm.next(idle, 1)?.purpose).toBe('calibration');
  warm.ended(false, null, 2);
  expect(warm.done).toBe(false);
  expect(warm.next(idle, 3)).toBeNull();
  expect(warm.next(idle, 2 + WARM_UP_DEFAULTS.retryMs)?.purpose).toBe('probe');
  warm.ended(true, 16, 2_000);
  expect(warm.done).toBe(true);
});
