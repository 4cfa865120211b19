// `npm run soak -- --minutes 10 [--seed N]`: a region of real processes under a load of real clients, with one trouble after
// the other drawn by a seed. Ends with a table, and with 1 where something was wrong:
//
//   an answer that looks complete and is not
//   a request that failed before its first token for another reason than that its own router was gone, or that hung
//   a replica that is not back within a minute after its trouble
//   a lease, an open request or work that is left at the end; memory that a router has kept

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { seededRandom, type Random } from '../../shared/lib/random.ts';
import { FaultRegion, MODEL } from '../e2e/fault-region.ts';
import { Load, type Outcome } from '../e2e/load.ts';
import { TROUBLES, type Trouble } from './troubles.ts';

const LASTS_MS: readonly [number, number] = [2_000, 9_000];
const CALM_MS = 1_500;
/** Of a router, above what it had after the first minute, MiB. */
const MEMORY_GROWTH_MIB = 200;

interface Row {
  times: number;
  complete: number;
  interrupted: number;
  failed: number;
  wrong: number;
  slowestBackS: number;
}

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string', default: '1' } },
});
const minutes = Number(values.minutes);
const random = seededRandom(Number(values.seed));
const problems: string[] = [];
const rows = new Map<string, Row>();

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

function rowOf(name: string): Row {
  const row = rows.get(name) ?? {
    times: 0,
    complete: 0,
    interrupted: 0,
    failed: 0,
    wrong: 0,
    slowestBackS: 0,
  };
  rows.set(name, row);
  return row;
}

function count(row: Row, trouble: Trouble, outcomes: readonly Outcome[]): void {
  for (const outcome of outcomes) {
    row[outcome.end] += 1;
    const failed = outcome.end === 'failed' && trouble.costs === 'nothing';
    const bad = outcome.end === 'wrong' || failed || /time.?out/i.test(outcome.detail);
    if (bad) problems.push(`${trouble.name}: ${JSON.stringify(outcome)}`);
  }
}

async function suffer(region: FaultRegion, load: Load, trouble: Trouble): Promise<void> {
  const row = rowOf(trouble.name);
  const mark = load.mark();
  row.times += 1;
  const [least, most] = LASTS_MS;
  const lasts = () => pause(least + random.next() * (most - least));
  await trouble.run(region, { random, lasts });
  const mended = performance.now();
  await region.allReady().catch((error: unknown) => {
    problems.push(`${trouble.name}: not back: ${String(error)}`);
  });
  row.slowestBackS = Math.max(row.slowestBackS, (performance.now() - mended) / 1_000);
  await pause(CALM_MS);
  count(row, trouble, load.since(mark));
}

/** Resident, MiB; null where the machine does not tell. */
function memoryMib(pid: number | undefined): number | null {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    const kib = /VmRSS:\s+(\d+) kB/.exec(status)?.[1];
    return kib === undefined ? null : Number(kib) / 1_024;
  } catch {
    // Another system.
    return null;
  }
}

/** All of them in an order of chance, and then again. */
function* drawn(of: Random): Generator<Trouble, never> {
  for (;;) {
    const keys = new Map(TROUBLES.map((trouble) => [trouble, of.next()]));
    yield* TROUBLES.toSorted((a, b) => (keys.get(a) ?? 0) - (keys.get(b) ?? 0));
  }
}

interface Sample {
  readonly pid: number | undefined;
  readonly mib: number;
}

interface Soaked {
  readonly memory: readonly Sample[];
  readonly outcomes: readonly Outcome[];
}

/** One trouble after the other until the time is over; what the routers' memory was after each. */
async function soak(region: FaultRegion): Promise<Soaked> {
  const load = new Load({
    model: MODEL,
    urls: region.routers.map((router) => () => router.clients),
    clientsPerUrl: 6,
    retries: 0,
  });
  const end = performance.now() + minutes * 60_000;
  const memory: Sample[] = [];
  for (const trouble of drawn(random)) {
    if (performance.now() >= end || problems.length >= 20) break;
    console.log(`${trouble.name} …`);
    await suffer(region, load, trouble);
    for (const { running } of region.routers) {
      const mib = memoryMib(running?.child.pid);
      if (mib !== null) memory.push({ pid: running?.child.pid, mib });
    }
  }
  await load.stop();
  await region.nothingLeft().catch((error: unknown) => problems.push(`left: ${String(error)}`));
  return { memory, outcomes: load.outcomes };
}

/** Whatever happens, the region's processes end with this one. */
async function soaked(): Promise<Soaked> {
  const region = await FaultRegion.open();
  try {
    return await soak(region);
  } finally {
    await region.close();
  }
}

const { memory, outcomes } = await soaked();
for (const [pid, samples] of Map.groupBy(memory, (sample) => sample.pid)) {
  const [first = 0] = samples.slice(2).map(({ mib }) => mib);
  const last = samples.at(-1)?.mib ?? 0;
  if (first > 0 && last - first > MEMORY_GROWTH_MIB) {
    problems.push(`router ${pid} has grown from ${first.toFixed(0)} to ${last.toFixed(0)} MiB`);
  }
}

console.table(
  Object.fromEntries(
    [...rows]
      .toSorted(([a], [b]) => a.localeCompare(b))
      .map(([name, row]) => [name, { ...row, slowestBackS: Number(row.slowestBackS.toFixed(1)) }]),
  ),
);
for (const problem of problems) console.error(problem);
console.log(
  `${outcomes.length} requests, ${outcomes.filter(({ end: how }) => how === 'complete').length} complete, ` +
    `${problems.length} problems, seed ${values.seed}`,
);
process.exit(problems.length > 0 ? 1 : 0);
