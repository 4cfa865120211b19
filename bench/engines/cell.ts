// One cell: an arm started afresh before engines that have forgotten everything, warmed up, then the conversations of one
// load and one seed through it. About a minute, most of it the load.

import { coresOfOthers, processGroup, readCpu, type CpuReading } from '../../test/engines/cpu.ts';
import { quantile } from '../../test/engines/quantile.ts';
import { delay } from '../../test/engines/wait.ts';
import type { Arm, RunningArm } from './arms.ts';
import type { EngineKind, EnginePair } from './engines.ts';
import { hold, type TurnResult } from './generator.ts';
import type { Load } from './loads.ts';
import { explainCell, type Explained } from './explained.ts';
import { watchStatus } from './status-watch.ts';
import { warmUpOf, workloadOf, type Workload } from './workload.ts';

export interface Cell {
  readonly load: Load;
  readonly arm: Arm;
  readonly seed: number;
}

export interface CellResult {
  readonly load: string;
  readonly arm: string;
  readonly seed: number;
  readonly engines: EngineKind;
  readonly measuredAt: string;
  readonly turns: readonly TurnResult[];
  /** From the first request to the end of the last answer. */
  readonly runMs: number;
  /** Seconds of processor over the load. */
  readonly cpuS: CpuUse;
  /** Requests of the load that each engine finished. */
  readonly perEngine: readonly number[];
  readonly lateMsP95: number;
  /** What makes its times doubtful. */
  readonly marks: readonly string[];
  /** From the routers' own log; null of arms that write none. */
  readonly explained: Explained | null;
}

export interface CpuUse {
  readonly router: number;
  readonly agent: number;
  readonly generator: number;
  readonly engines: readonly number[];
  readonly others: number;
}

export interface Bench {
  readonly kind: EngineKind;
  readonly engines: EnginePair;
  /** Path of the `spillway` that is measured. */
  readonly spillway: string;
  readonly settings: readonly string[];
  readonly longWarmUp: boolean;
}

/** Reports of the warm-up fade before the load begins. */
const SETTLE_MS = 1_500;
/** Turns sent later than that say that this program lacked the processor. */
const LATE_MS = 25;
/** Processors that other programs may use, on average. */
const OTHERS_CORES = 0.1;

export async function measureCell(cell: Cell, bench: Bench, folder: string): Promise<CellResult> {
  const { load, arm, seed } = cell;
  const { engines, spillway, settings, longWarmUp } = bench;
  await engines.reset();
  const running = await arm.start({ folder, engineUrls: engines.urls, spillway, settings });
  try {
    await hold(warmUpOf(`${load.name} ${seed}`, longWarmUp), running.doors);
    await engines.untilAtRest();
    await delay(SETTLE_MS);
    const seen = await underLoad(workloadOf(load, seed), { running, engines, folder });
    assertCold(seen.turns);
    return {
      load: load.name,
      arm: arm.name,
      seed,
      engines: bench.kind,
      measuredAt: new Date().toISOString(),
      ...seen,
      ...doubtsOf(seen),
      explained: await explainCell(seen.turns, running.requestLogs),
    };
  } finally {
    await running.stop();
  }
}

interface Stage {
  readonly running: RunningArm;
  readonly engines: EnginePair;
  readonly folder: string;
}

type Seen = Pick<CellResult, 'turns' | 'runMs' | 'cpuS' | 'perEngine'>;

async function underLoad(workload: Workload, stage: Stage): Promise<Seen> {
  const { running, engines, folder } = stage;
  const finishedBefore = await engines.finished();
  const unwatch = watchStatus(running.admins, folder);
  const before = readCpu();
  const { turns, runMs } = await hold(workload, running.doors);
  const after = readCpu();
  await unwatch();
  await engines.untilAtRest();
  const finished = await engines.finished();
  return {
    turns,
    runMs,
    cpuS: cpuBetween(before, after, stage),
    perEngine: finished.map((count, index) => count - (finishedBefore[index] ?? 0)),
  };
}

/** A first turn that shares nothing can find nothing: else caches were not empty, and the cell is void. */
function assertCold(turns: readonly TurnResult[]): void {
  const warm = turns.find(({ turn, shared, cachedTokens }) => {
    return turn === 0 && !shared && (cachedTokens ?? 0) > 0;
  });
  if (warm === undefined) return;
  const what = `conversation ${warm.conversation} found ${warm.cachedTokens} tokens on its first turn`;
  throw new Error(`caches were not empty: ${what}`);
}

function cpuBetween(before: CpuReading, after: CpuReading, { running, engines }: Stage): CpuUse {
  const used = (pid: number): number =>
    Math.max(0, (after.groups.get(pid) ?? 0) - (before.groups.get(pid) ?? 0));
  const sum = (pids: readonly number[]): number => pids.reduce((all, pid) => all + used(pid), 0);
  const routers = running.routers.map(({ pid }) => pid);
  const agents = running.agents.map(({ pid }) => pid);
  const enginePids = engines.engines.map(({ pid }) => pid);
  const own = processGroup();
  const others = coresOfOthers(before, after, [...routers, ...agents, ...enginePids, own]);
  return {
    router: sum(routers),
    agent: sum(agents),
    generator: used(own),
    engines: enginePids.map(used),
    others: Math.max(0, others) * ((after.atMs - before.atMs) / 1_000),
  };
}

function doubtsOf({ turns, cpuS, runMs }: Seen): Pick<CellResult, 'lateMsP95' | 'marks'> {
  const lateMsP95 =
    quantile(
      turns.map(({ lateMs }) => lateMs),
      0.95,
    ) ?? 0;
  const others = cpuS.others / (runMs / 1_000);
  const marks: string[] = [];
  if (lateMsP95 > LATE_MS) marks.push(`generator late: p95 ${lateMsP95.toFixed(0)} ms`);
  if (others > OTHERS_CORES) marks.push(`other programs used ${others.toFixed(2)} cores`);
  return { lateMsP95, marks };
}
