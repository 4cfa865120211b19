// Time of a decision, by the clock, decision by decision: what else the machine does shows in the tail and hardly in the
// median.

import { decideOnce, fleetOf, nameOf, reportBefore, type Cell } from './cells.ts';
import type { Fleet } from './fleet.ts';
import { ARM, quantile, round, type Row } from './rows.ts';

const ROUNDS = 16_000;
const ROUNDS_LARGE = 6_000;
const WARM_SHARE = 0.5;
const LARGE = 1_000;

export function timedRow(cell: Cell): Row {
  const fleet = fleetOf(cell);
  const rounds = cell.replicas >= LARGE ? ROUNDS_LARGE : ROUNDS;
  timesOf(fleet, WARM_SHARE * rounds);
  const times = timesOf(fleet, rounds).sort();
  const { index } = fleet.state;
  return {
    ...{ cell: nameOf(cell), arm: ARM },
    decisionUsP50: round(quantile(times, 0.5)),
    decisionUsP99: round(quantile(times, 0.99)),
    indexChunks: index.rows,
  };
}

/** µs of each. */
function timesOf(fleet: Fleet, rounds: number): Float64Array {
  const times = new Float64Array(rounds);
  for (let k = 0; k < rounds; k += 1) {
    reportBefore(fleet, k);
    const begun = performance.now();
    decideOnce(fleet, k);
    times[k] = 1_000 * (performance.now() - begun);
  }
  return times;
}

/** Exponent e of time ~ replicas^e, by least squares over the cells' medians; null with fewer than two. */
export function growthExponent(points: readonly (readonly [number, number])[]): number | null {
  if (points.length < 2) return null;
  const logs = points.map(([replicas, us]) => [Math.log(replicas), Math.log(us)] as const);
  const meanX = logs.reduce((sum, [x]) => sum + x, 0) / logs.length;
  const meanY = logs.reduce((sum, [, y]) => sum + y, 0) / logs.length;
  let xy = 0;
  let xx = 0;
  for (const [x, y] of logs) {
    xy += (x - meanX) * (y - meanY);
    xx += (x - meanX) ** 2;
  }
  return xy / xx;
}
