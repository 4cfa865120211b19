// `npm run bench:decide`: what one decision costs, without parsing, canonicalisation and hashing.
//
// A cell is REPLICASxTOKENS. Between two decisions as many reports come as a busy region has, so that nothing that a
// report invalidates stays cached for free. Time is the clock's, decision by decision: what else the machine does
// shows in the tail and hardly in the median.

import { cpus } from 'node:os';
import { decide } from '../../router/regional/core-decide.ts';
import { enter } from '../../router/regional/core-requests.ts';
import { VERSION } from '../../shared/runtime/version.ts';
import { Fleet } from './fleet.ts';
import { indexFigures } from './index-cell.ts';

interface Row {
  readonly cell: string;
  readonly arm: string;
  readonly decisionUsP50: number;
  readonly decisionUsP99: number;
  readonly bytesPerDecision: number;
  readonly indexChunks: number;
  readonly bytesPerBlock: number;
}

const CELLS = [
  [8, 8_192],
  [8, 32_768],
  [64, 8_192],
  [64, 32_768],
  [1_000, 8_192],
  [1_000, 32_768],
] as const;
/** Reports that reach a router between two decisions. */
const REPORTS_BETWEEN = 4;

const args = new Set(process.argv.slice(2));
const quick = args.has('--quick');
const rows = CELLS.map(([replicas, tokens]) => measure(replicas, tokens));
const index = indexFigures(1_000, quick ? 200_000 : 1_000_000);
const indexRow = {
  ...{ cell: 'index', arm: 'spillway' },
  bytesPerBlock: round(index.bytesPerBlock),
  deltaEntriesPerS: Math.round(index.deltaEntriesPerS),
};
if (args.has('--json')) {
  const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, Node ${process.version}`;
  console.log(JSON.stringify({ version: VERSION, machine, rows: [...rows, indexRow] }));
} else {
  console.table(rows);
  console.table([indexRow]);
}

function measure(replicas: number, tokens: number): Row {
  const conversations = Math.max(64, Math.min(2 * replicas, 40_000_000 / tokens));
  const fleet = new Fleet({ replicas, promptTokens: tokens, conversations, seed: 7 });
  const rounds = (quick ? 0.25 : 1) * (replicas >= 1_000 ? 2_000 : 8_000);
  for (let k = 0; k < rounds / 4; k += 1) one(fleet, k);
  const times = new Float64Array(rounds);
  const heapBefore = process.memoryUsage().heapUsed;
  for (let k = 0; k < rounds; k += 1) {
    for (let r = 0; r < REPORTS_BETWEEN; r += 1) fleet.report((k * 37 + r * 11) % replicas);
    const before = performance.now();
    one(fleet, k);
    times[k] = 1_000 * (performance.now() - before);
  }
  const heap = process.memoryUsage().heapUsed - heapBefore;
  times.sort();
  const { index } = fleet.state;
  return {
    cell: `${replicas}x${tokens / 1_024}k`,
    arm: 'spillway',
    decisionUsP50: round(times[Math.floor(rounds / 2)] ?? 0),
    decisionUsP99: round(times[Math.floor(rounds * 0.99)] ?? 0),
    bytesPerDecision: Math.round(heap / rounds),
    indexChunks: index.rows,
    bytesPerBlock: round(index.bytes / index.rows),
  };
}

function one(fleet: Fleet, k: number): void {
  const request = fleet.requests[(k * 7) % fleet.requests.length];
  if (request === undefined) throw new Error('no request');
  fleet.state.nowMs += 0.5;
  const entered = enter(fleet.state, request);
  if ('decision' in entered) throw new Error('refused');
  const { decision } = decide(fleet.state, entered, { draw: true });
  if (decision.kind !== 'send') throw new Error(`${decision.kind}/${decision.reason}`);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
