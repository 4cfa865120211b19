// Before anything counts, each arm serves until what a request costs it no longer falls: a router runs for weeks, and code that runs
// a hundred times a second is compiled late. The same for all arms, in the same steps.
//
//   a round   small JSON answers as fast as the arm goes, then streams as in the cells with their chunks ten times closer
//   settled   two rounds in a row whose streams' cost differs by less than 3 %, and three rounds at least
//
// Code that is compiled for one kind of answer is often thrown away at the first of the other: so each round has both, and an
// arm gets a moment of a cell's own requests before that cell.

import type { RunningArm } from './arms.ts';
import { JSON_16, WARM_STREAMS, type Cell } from './cells.ts';
import { cpuUs } from './compare.ts';
import type { LoadShape } from './load.ts';
import { measureBlock } from './measure.ts';

export interface WarmUpLimits {
  /** ms of a round's small answers, and of its streams. */
  readonly jsonMs: number;
  readonly streamsMs: number;
  /** No round begins behind this. */
  readonly mostMs: number;
}

export const WARM_UP: WarmUpLimits = { jsonMs: 1_000, streamsMs: 3_000, mostMs: 56_000 };
/** `--quick` has 50 s in all: one round, settled or not. */
export const QUICK_WARM_UP: WarmUpLimits = { jsonMs: 3_000, streamsMs: 4_000, mostMs: 0 };
/** Nothing in nginx is compiled: its rounds only show that. */
export const BRIEF_WARM_UP: WarmUpLimits = { jsonMs: 500, streamsMs: 500, mostMs: 0 };

export interface Warmed {
  readonly arm: string;
  readonly seconds: number;
  /** Streams and small answers served. */
  readonly streams: number;
  readonly answers: number;
  /** CPU µs of a stream, by round. */
  readonly costs: readonly number[];
  readonly settled: boolean;
}

const SETTLED_WITHIN = 0.03;
const ROUNDS_LEAST = 3;
const CELL_MS = 1_500;
const CELL_STREAMS = 64;

export async function warmUp(
  arm: RunningArm,
  { jsonMs, streamsMs, mostMs }: WarmUpLimits,
): Promise<Warmed> {
  const beganMs = performance.now();
  const costs: number[] = [];
  let streams = 0;
  let answers = 0;
  do {
    answers += (await measureBlock(arm, JSON_16, jsonMs)).completed;
    const block = await measureBlock(arm, WARM_STREAMS, streamsMs);
    streams += block.completed;
    costs.push(cpuUs(block));
  } while (!isSettled(costs) && performance.now() - beganMs < mostMs);
  const seconds = (performance.now() - beganMs) / 1_000;
  return { arm: arm.name, seconds, streams, answers, costs, settled: isSettled(costs) };
}

export function isSettled(costs: readonly number[]): boolean {
  const [before, last] = costs.slice(-2);
  if (costs.length < ROUNDS_LEAST || before === undefined || last === undefined) return false;
  return Math.abs(before - last) < SETTLED_WITHIN * before;
}

/** A moment of a cell's own requests, its chunks closer. */
export async function warmForCell(arm: RunningArm, { shape }: Cell): Promise<void> {
  await measureBlock(arm, closer(shape), CELL_MS);
}

function closer(shape: LoadShape): LoadShape {
  if (shape.chunks === null) return shape;
  const { gapMs, pauseMs = 0 } = WARM_STREAMS;
  return { ...shape, concurrency: Math.max(CELL_STREAMS, shape.concurrency), gapMs, pauseMs };
}

export function warmedLine({ arm, seconds, streams, costs, settled }: Warmed): string {
  const steps = costs.map((cost) => cost.toFixed(0)).join(', ');
  const note = settled ? '' : ': not settled';
  return `  ${arm.padEnd(26)} ${seconds.toFixed(1).padStart(5)} s, ${streams} streams at ${steps} µs${note}`;
}
