// Which candidate gets the request: the least cost, drawn among near ties.
//
//   tie = max(tieMs, tieRatio · least)
//   weight = exp(−gap / tie) for gaps up to the tie, 8 candidates at most
//
// The draw keeps several routers that see the same reports from all choosing the same target.

import type { Random } from '../../shared/lib/random.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';

export type PickSettings = Pick<RegionalSettings, 'tieMs' | 'tieRatio' | 'tieCandidates'>;

/** Probability of each cost to be drawn, in the order given. All 0 for no costs. */
export function drawProbabilities(costs: readonly number[], settings: PickSettings): number[] {
  const probabilities: number[] = [];
  let least = Number.POSITIVE_INFINITY;
  for (let k = 0; k < costs.length; k += 1) {
    probabilities.push(0);
    least = Math.min(least, cost(costs, k));
  }
  const tie = Math.max(settings.tieMs, settings.tieRatio * least);
  let sum = 0;
  for (let n = 0; n < settings.tieCandidates; n += 1) {
    const k = cheapest(costs, probabilities);
    if (k < 0) break;
    const gap = cost(costs, k) - least;
    if (gap > tie) break;
    const weight = tie > 0 ? Math.exp(-gap / tie) : 1;
    probabilities[k] = weight;
    sum += weight;
  }
  if (sum > 0)
    for (let k = 0; k < costs.length; k += 1) probabilities[k] = (probabilities[k] ?? 0) / sum;
  return probabilities;
}

/** Index of the least cost without a weight yet, the first of equal ones; -1 for none. A weight is above 0. */
function cheapest(costs: readonly number[], weights: readonly number[]): number {
  let best = -1;
  for (let k = 0; k < costs.length; k += 1) {
    if (weights[k] === 0 && (best < 0 || cost(costs, k) < cost(costs, best))) best = k;
  }
  return best;
}

/** Index of the drawn one; -1 when all probabilities are 0. */
export function draw(probabilities: readonly number[], random: Random): number {
  let left = random.next();
  let last = -1;
  for (let k = 0; k < probabilities.length; k += 1) {
    const probability = probabilities[k] ?? 0;
    if (probability <= 0) continue;
    last = k;
    left -= probability;
    if (left < 0) return k;
  }
  return last;
}

/** Index of the most probable one, which is the least cost; -1 for none. */
export function mostProbable(probabilities: readonly number[]): number {
  let best = -1;
  for (let k = 0; k < probabilities.length; k += 1) {
    const probability = probabilities[k] ?? 0;
    if (probability > 0 && probability > (probabilities[best] ?? 0)) best = k;
  }
  return best;
}

function cost(costs: readonly number[], k: number): number {
  return costs[k] ?? Number.POSITIVE_INFINITY;
}
