import { describe, expect, it } from 'vitest';
import { isHeldBack, regionTtftMs } from './probe-spacing.ts';

/** Events one after the other, each so many ms behind the one before. */
function after(...gaps: number[]): number[] {
  let atMs = 1_000;
  return gaps.map((gap) => (atMs += gap));
}

const TOKEN_BY_TOKEN = after(...Array.from({ length: 24 }, () => 20));
const ALL_AT_ONCE = after(...Array.from({ length: 24 }, () => 0));
const FAST_ENGINE = after(...Array.from({ length: 24 }, () => 1));
const BLOCKS = after(
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  1_200,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  1_200,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
);
const STALLED = after(20, 20, 20, 20, 20, 20, 2_000, 20, 20, 20, 20, 20);

describe('isHeldBack', () => {
  it.each([
    ['a stream that comes token by token', TOKEN_BY_TOKEN, 30, false],
    ['one that was held to its end, long after the region began', ALL_AT_ONCE, 480, true],
    ['a fast engine, all of whose tokens come within a moment', FAST_ENGINE, 30, false],
    ['one whose region is far away', FAST_ENGINE, 310, false],
    ['the same where the region does not say when it began', ALL_AT_ONCE, Number.NaN, null],
    ['blocks with long gaps between them', BLOCKS, 30, true],
    ['an engine that stood still once', STALLED, 30, false],
    ['too few events to tell', ALL_AT_ONCE.slice(0, 5), 2_000, null],
  ] as const)('%s', (_name, arrivals, lateMs, held) => {
    expect(isHeldBack(arrivals, { gapMs: 1_000, lateMs })).toBe(held);
  });
});

describe('regionTtftMs', () => {
  it.each([
    ['read;dur=4.4, decide;dur=5.65, queue;dur=0, engine;dur=82.86, ttft;dur=92.41', 92.41],
    ['ttft;dur=7', 7],
    ['read;dur=4.4, total;dur=9', Number.NaN],
    [undefined, Number.NaN],
    [['ttft;dur=7', 'ttft;dur=8'], Number.NaN],
  ])('%s', (header, ms) => {
    expect(regionTtftMs(header)).toBe(ms);
  });
});
