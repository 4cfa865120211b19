import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { cellOf, turnOf } from './bench-cells.harness.ts';
import type { CellResult } from './cell.ts';
import { pairSeeds, ratioOf } from './pairing.ts';

/** Conversations of two turns; `ttft` says how long each took. */
function armOf(
  seeds: number,
  conversations: number,
  ttft: (at: { seed: number; conversation: number; turn: number }) => number | null,
): CellResult[] {
  return Array.from({ length: seeds }, (_, seed) =>
    cellOf(
      'arm',
      seed,
      Array.from({ length: conversations * 2 }, (__, index) => {
        const at = { seed, conversation: index >> 1, turn: index % 2 };
        return turnOf(at.conversation, at.turn, ttft(at));
      }),
    ),
  );
}

describe('pairing', () => {
  it('compares only seeds that both arms were measured with', () => {
    const ours = armOf(3, 2, () => 100);
    const theirs = armOf(5, 2, () => 100).slice(1);
    expect(pairSeeds(ours, theirs).map(({ seed }) => seed)).toEqual([1, 2]);
  });

  it('leaves out a turn that either arm failed, and keeps the others of its conversation', () => {
    const fails = (which: number) => (at: { conversation: number; turn: number }) =>
      at.conversation === which && at.turn === 1 ? null : 100;
    const [seed] = pairSeeds(armOf(1, 3, fails(0)), armOf(1, 3, fails(1)));
    expect(seed!.conversations.map((pairs) => pairs.length)).toEqual([1, 1, 2]);
  });
});

describe('the ratio of two arms', () => {
  const base = (at: { seed: number; conversation: number; turn: number }): number =>
    100 + at.conversation * 17 + at.turn * 5 + at.seed;

  it('is one with no width between equal arms, however unlike their conversations are', () => {
    const seeds = pairSeeds(armOf(4, 10, base), armOf(4, 10, base));
    const seen = ratioOf('ttftMsP95', seeds, seededRandom(1));
    expect(seen).toEqual({ ratio: 1, low: 1, high: 1, seeds: 4, turns: 80 });
  });

  it('is a half where every turn takes half as long, whatever is drawn', () => {
    const seeds = pairSeeds(
      armOf(4, 10, (at) => base(at) / 2),
      armOf(4, 10, base),
    );
    for (const figure of ['ttftMsMean', 'ttftMsP50', 'laterTtftMsP50'] as const) {
      const seen = ratioOf(figure, seeds, seededRandom(1))!;
      expect([seen.ratio, seen.low, seen.high].map((each) => each.toFixed(9))).toEqual(
        Array(3).fill('0.500000000'),
      );
    }
  });

  it('has an interval that holds it and is the same for the same randomness', () => {
    const noise = seededRandom(7);
    const ours = armOf(4, 10, (at) => base(at) * (0.6 + noise.next() * 0.6));
    const seeds = pairSeeds(ours, armOf(4, 10, base));
    const seen = ratioOf('ttftMsMean', seeds, seededRandom(1))!;
    expect(seen.low).toBeLessThan(seen.ratio);
    expect(seen.high).toBeGreaterThan(seen.ratio);
    expect(ratioOf('ttftMsMean', seeds, seededRandom(1))).toEqual(seen);
  });

  it('draws whole seeds: one in which we lose widens it as turns of one seed never would', () => {
    const worse = armOf(4, 40, (at) => base(at) * (at.seed === 0 ? 2 : 1));
    const mixed = armOf(4, 40, (at) => base(at) * (at.conversation % 4 === 0 ? 2 : 1));
    const theirs = armOf(4, 40, base);
    const width = (ours: readonly CellResult[]): number => {
      const { low, high } = ratioOf('ttftMsMean', pairSeeds(ours, theirs), seededRandom(1))!;
      return high - low;
    };
    expect(width(worse)).toBeGreaterThan(2 * width(mixed));
  });

  it('of run times pairs whole runs', () => {
    const ours = armOf(3, 2, () => 100).map((cell) => ({ ...cell, runMs: 30_000 }));
    const seen = ratioOf(
      'runS',
      pairSeeds(
        ours,
        armOf(3, 2, () => 100),
      ),
      seededRandom(1),
    )!;
    expect(seen.ratio).toBe(0.75);
  });

  it('of cached shares is of tokens together, not of shares', () => {
    const of = (first: number, second: number): CellResult[] => [
      cellOf('arm', 1, [
        turnOf(0, 0, 100, { promptTokens: 9_000, cachedTokens: first }),
        turnOf(1, 0, 100, { promptTokens: 1_000, cachedTokens: second }),
      ]),
    ];
    const seen = ratioOf('cachedShare', pairSeeds(of(4_500, 500), of(0, 1_000)), seededRandom(1));
    expect(seen!.ratio).toBe(5);
  });

  it('is nothing where nothing can be paired', () => {
    expect(ratioOf('ttftMsP95', [], seededRandom(1))).toBeNull();
    const failed = pairSeeds(
      armOf(1, 2, () => null),
      armOf(1, 2, () => 100),
    );
    expect(ratioOf('ttftMsP95', failed, seededRandom(1))).toBeNull();
  });
});
