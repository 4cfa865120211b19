// Figures of one arm under one load, over all its seeds together.

import { quantile } from '../../test/engines/quantile.ts';
import type { CellResult } from './cell.ts';

/** One turn of one arm; null where it failed. */
export interface Sample {
  readonly turn: number;
  readonly ttftMs: number | null;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
}

export const TURN_FIGURES = [
  'ttftMsMean',
  'ttftMsP50',
  'ttftMsP95',
  'laterTtftMsP50',
  'cachedShare',
] as const;
/** A figure that can be taken of any set of turns. */
export type TurnFigure = (typeof TURN_FIGURES)[number];
export type Figure = TurnFigure | 'runS';

export interface ArmFigures {
  readonly seeds: number;
  readonly turns: number;
  readonly failed: number;
  readonly ttftMsMean: number | null;
  readonly ttftMsP50: number | null;
  readonly ttftMsP95: number | null;
  readonly laterTtftMsP50: number | null;
  readonly cachedShare: number | null;
  /** Mean over the seeds. */
  readonly runS: number | null;
  readonly routerCpuMsPerRequest: number;
  readonly agentCores: number;
  readonly generatorCores: number;
  readonly markedCells: number;
}

export function figuresOf(cells: readonly CellResult[]): ArmFigures {
  const turns = cells.flatMap((cell) => cell.turns);
  const seconds = cells.reduce((sum, { runMs }) => sum + runMs / 1_000, 0);
  const cpu = (pick: (cell: CellResult) => number): number =>
    cells.reduce((sum, cell) => sum + pick(cell), 0);
  const taken = Object.fromEntries(
    TURN_FIGURES.map((figure) => [figure, figureOf(figure, turns)]),
  ) as Record<TurnFigure, number | null>;
  return {
    seeds: cells.length,
    turns: turns.length,
    failed: turns.filter(({ error }) => error !== null).length,
    ...taken,
    runS: runSeconds(cells.map(({ runMs }) => runMs)),
    routerCpuMsPerRequest: (cpu(({ cpuS }) => cpuS.router) * 1_000) / Math.max(1, turns.length),
    agentCores: cpu(({ cpuS }) => cpuS.agent) / Math.max(seconds, 1e-9),
    generatorCores: cpu(({ cpuS }) => cpuS.generator) / Math.max(seconds, 1e-9),
    markedCells: cells.filter(({ marks }) => marks.length > 0).length,
  };
}

/** Of turns that were answered; null of none. */
export function figureOf(figure: TurnFigure, samples: readonly Sample[]): number | null {
  switch (figure) {
    case 'ttftMsMean':
      return mean(ttfts(samples));
    case 'ttftMsP50':
      return quantile(ttfts(samples), 0.5);
    case 'ttftMsP95':
      return quantile(ttfts(samples), 0.95);
    case 'laterTtftMsP50':
      return quantile(ttfts(samples.filter(({ turn }) => turn > 0)), 0.5);
    case 'cachedShare':
      return cachedShare(samples);
  }
}

/** Mean, s. */
export function runSeconds(runsMs: readonly number[]): number | null {
  const ms = mean(runsMs);
  return ms === null ? null : ms / 1_000;
}

function ttfts(samples: readonly Sample[]): number[] {
  return samples.flatMap(({ ttftMs }) => ttftMs ?? []);
}

function mean(values: readonly number[]): number | null {
  if (values.length === 0) return null;
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Of all prompt tokens together, as the engines report them. */
function cachedShare(samples: readonly Sample[]): number | null {
  let prompt = 0;
  let cached = 0;
  for (const { promptTokens, cachedTokens } of samples) {
    if (promptTokens === null || cachedTokens === null) continue;
    prompt += promptTokens;
    cached += cachedTokens;
  }
  return prompt === 0 ? null : cached / prompt;
}
