import { describe, expect, it } from 'vitest';
import { CELLS, IDLE_1000, JSON_16, STREAMS_64 } from './cells.ts';
import { startMs, streamMs } from './load.ts';

const starts = (shape: typeof STREAMS_64): number[] =>
  Array.from({ length: shape.concurrency }, (_, index) => startMs(shape, index));

/** The widest gap between neighbours on a circle, as a multiple of an even spread. */
function widest(points: readonly number[], around: number): number {
  const sorted = points.map((point) => point % around).toSorted((a, b) => a - b);
  const gaps = sorted.map((point, at) => (sorted[at + 1] ?? (sorted[0] ?? 0) + around) - point);
  return (Math.max(...gaps) * points.length) / around;
}

describe('the beginnings of a load', () => {
  it('lie evenly in the length of a stream, so that requests come one by one for ever', () => {
    for (const { shape } of CELLS) {
      if (shape.chunks === null || shape.concurrency === 1) continue;
      expect(widest(starts(shape), streamMs(shape))).toBeLessThan(3);
    }
  });

  it('lie evenly in the gap between two chunks, so that chunks come one by one', () => {
    expect(widest(starts(STREAMS_64), STREAMS_64.gapMs)).toBeLessThan(6);
  });

  it('are at once where answers are not paced', () => {
    expect(new Set(starts(JSON_16))).toEqual(new Set([0]));
  });

  it('all come within the length of a stream', () => {
    expect(Math.max(...starts(IDLE_1000))).toBeLessThan(streamMs(IDLE_1000));
  });
});
