// What is asked of each arm. The shapes are those for which other routers were measured, too.

import { streamMs, type LoadShape } from './load.ts';

export interface Cell {
  readonly name: string;
  readonly about: string;
  readonly shape: LoadShape;
  /** Part of `--quick`. */
  readonly quick: boolean;
}

const KIB = 1_024;
const CHUNKS = 32;
const GAP_MS = 20;

function streams(concurrency: number, promptBytes: number): LoadShape {
  return { concurrency, promptBytes, chunks: CHUNKS, gapMs: GAP_MS, holdMs: 0, pauseMs: GAP_MS };
}

export const JSON_16: LoadShape = {
  concurrency: 16,
  promptBytes: KIB,
  chunks: null,
  gapMs: 0,
  holdMs: 0,
};
export const STREAMS_64: LoadShape = streams(64, KIB);
/** Compiles in a second what `STREAMS_64` would in ten. */
export const WARM_STREAMS: LoadShape = { ...STREAMS_64, gapMs: 2, pauseMs: 2 };
export const BODIES_1M: LoadShape = { ...JSON_16, concurrency: 2, promptBytes: KIB * KIB };
export const PROMPTS_100K: LoadShape = { ...JSON_16, concurrency: 4, promptBytes: 100 * KIB };
/** Opened once, held for the length of the look. */
export const IDLE_1000: LoadShape = { ...streams(1_000, KIB), chunks: 4, holdMs: 15_000 };

export const CELLS: readonly Cell[] = [
  cell('streams-1', streams(1, KIB)),
  cell('streams-64', STREAMS_64, true),
  cell('streams-256', streams(256, KIB)),
  cell('streams-1-100k', streams(1, 100 * KIB)),
  cell('streams-64-100k', streams(64, 100 * KIB), true),
  cell('streams-256-100k', streams(256, 100 * KIB)),
  cell('json-16', JSON_16, true),
];

/** Of small requests: with one tier, the load and the replicas beside each other core 1 is busy for half of the time. */
const TWO_TIERS_PER_SECOND = 1_000;

export interface TwoTiersCell extends Cell {
  /** Each tier has a core to itself in its turn, as it has a machine in production; or both share one. */
  readonly apart: boolean;
}

/**
 * The first tier's router and a second before it, beside the first alone. Apart, both arms get the same requests a second:
 * what a request costs depends on it. Streams do by themselves: they take most of their time with the engine.
 */
export const TWO_TIERS_CELLS: readonly TwoTiersCell[] = [
  {
    ...cell('two-tiers-json-16', { ...JSON_16, perSecond: TWO_TIERS_PER_SECOND }),
    apart: true,
  },
  { ...cell('two-tiers-streams-64', STREAMS_64), apart: true },
  { ...cell('two-tiers-one-core-json-16', JSON_16), apart: false },
  { ...cell('two-tiers-one-core-streams-64', STREAMS_64), apart: false },
];

/** ms that a block of a cell is measured for: one stream at a time needs longer for a handful of requests. */
export function blockMs({ shape }: Cell, quick: boolean): number {
  if (quick) return 1_200;
  return Math.max(2_500, (10 * streamMs(shape)) / shape.concurrency);
}

function cell(name: string, shape: LoadShape, quick = false): Cell {
  const prompts = `${shape.promptBytes / KIB} KiB prompts`;
  const what =
    shape.chunks === null
      ? `small JSON answers, ${paceOf(shape)}`
      : `${shape.concurrency} streams at once, ${shape.chunks} chunks ${shape.gapMs} ms apart`;
  return { name, about: `${what}, ${prompts}`, shape, quick };
}

function paceOf({ concurrency, perSecond }: LoadShape): string {
  if (perSecond === undefined) return `${concurrency} at once`;
  return `${perSecond} a second over ${concurrency} connections`;
}
