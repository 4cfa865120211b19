// What an engine leaves out of its figures: told in the report, to people and to metrics. Neither zero nor full
// stands for it anywhere; what is done instead is in docs/engines.md.

import type { RankScrape } from '../events.ts';

/** Figures whose absence changes how a replica is routed to. Not what one engine alone tells. */
export const ENGINE_FIGURES = [
  'running',
  'waiting',
  'kvUsageRatio',
  'kvCapacityTokens',
  'computedTokensTotal',
  'cachedTokensTotal',
  'generationTokensTotal',
  'preemptionsTotal',
  'firstTokensTotal',
  'itlCount',
] as const satisfies readonly (keyof RankScrape)[];

export type EngineFigure = (typeof ENGINE_FIGURES)[number];

/** Those that the last scrape had not; all of them before one. */
export function absentFigures(rank: RankScrape | null): readonly EngineFigure[] {
  return rank === null ? ENGINE_FIGURES : ENGINE_FIGURES.filter((name) => rank[name] === null);
}
