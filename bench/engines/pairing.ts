// Two arms under the same load, turn by turn: only what both of them answered is compared, by (seed, conversation, turn).
//
// The interval of a ratio is a bootstrap over what was drawn at random: seeds are drawn with replacement, and within
// each its conversations, a conversation always with all its turns and in both arms alike (turns of one conversation, and
// the two arms' answers to it, are no independent measurements). The ratio is of the two pooled figures; the interval holds 95 % of
// the drawn ratios.

import type { Random } from '../../shared/lib/random.ts';
import { quantile } from '../../test/engines/quantile.ts';
import type { CellResult } from './cell.ts';
import { figureOf, runSeconds, type Figure, type Sample } from './figures.ts';

export interface Pair {
  readonly ours: Sample;
  readonly theirs: Sample;
}

export interface PairedSeed {
  readonly seed: number;
  /** Turns that both arms answered, by conversation. */
  readonly conversations: readonly (readonly Pair[])[];
  readonly oursRunMs: number;
  readonly theirsRunMs: number;
}

export interface Ratio {
  /** Ours ÷ theirs. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
  readonly seeds: number;
  readonly turns: number;
}

const ROUNDS = 1_000;
const OUTSIDE = 0.05;

/** Seeds that both arms were measured with. */
export function pairSeeds(
  ours: readonly CellResult[],
  theirs: readonly CellResult[],
): PairedSeed[] {
  const bySeed = new Map(theirs.map((cell) => [cell.seed, cell]));
  return ours.flatMap((cell): PairedSeed[] => {
    const other = bySeed.get(cell.seed);
    if (other === undefined) return [];
    const { seed, runMs: oursRunMs } = cell;
    return [{ seed, conversations: pairTurns(cell, other), oursRunMs, theirsRunMs: other.runMs }];
  });
}

function pairTurns(ours: CellResult, theirs: CellResult): Pair[][] {
  const others = new Map(theirs.turns.map((turn) => [`${turn.conversation}/${turn.turn}`, turn]));
  const conversations = new Map<number, Pair[]>();
  for (const turn of ours.turns) {
    const other = others.get(`${turn.conversation}/${turn.turn}`);
    if (other === undefined || turn.error !== null || other.error !== null) continue;
    const pairs = conversations.get(turn.conversation) ?? [];
    pairs.push({ ours: turn, theirs: other });
    conversations.set(turn.conversation, pairs);
  }
  return [...conversations.values()];
}

/** Null where the arms share no turn, or the other's figure is nothing. */
export function ratioOf(
  figure: Figure,
  seeds: readonly PairedSeed[],
  random: Random,
): Ratio | null {
  const ratio = pooledRatio(figure, seeds);
  if (ratio === null) return null;
  const drawn: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const value = pooledRatio(figure, redraw(seeds, random));
    if (value !== null) drawn.push(value);
  }
  return {
    ratio,
    low: quantile(drawn, OUTSIDE / 2) ?? ratio,
    high: quantile(drawn, 1 - OUTSIDE / 2) ?? ratio,
    seeds: seeds.length,
    turns: seeds.reduce((sum, seed) => sum + seed.conversations.flat().length, 0),
  };
}

function redraw(seeds: readonly PairedSeed[], random: Random): PairedSeed[] {
  return seeds.map(() => {
    const seed = drawOf(seeds, random);
    const conversations = seed.conversations.map(() => drawOf(seed.conversations, random));
    return { ...seed, conversations };
  });
}

function drawOf<T>(from: readonly T[], random: Random): T {
  const drawn = from[Math.floor(random.next() * from.length)];
  if (drawn === undefined) throw new Error('nothing to draw from');
  return drawn;
}

function pooledRatio(figure: Figure, seeds: readonly PairedSeed[]): number | null {
  const [ours, theirs] =
    figure === 'runS'
      ? [runSeconds(seeds.map((s) => s.oursRunMs)), runSeconds(seeds.map((s) => s.theirsRunMs))]
      : pooledFigures(figure, seeds);
  return ours === null || theirs === null || theirs <= 0 ? null : ours / theirs;
}

function pooledFigures(
  figure: Exclude<Figure, 'runS'>,
  seeds: readonly PairedSeed[],
): readonly [number | null, number | null] {
  const pairs = seeds.flatMap((seed) => seed.conversations.flat());
  const ours = pairs.map((pair) => pair.ours);
  const theirs = pairs.map((pair) => pair.theirs);
  return [figureOf(figure, ours), figureOf(figure, theirs)];
}
