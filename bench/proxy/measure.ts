// One block: a load for some seconds, the CPU that the proxy's processes used in it, and what the clients saw.
//
//   cpuUs = (utime + stime of the process group over the block) / requests completed in it
//
// Blocks come in ABBA groups, the arm and nginx in turn, so that a drift of the machine falls on both; what is compared is
// the ratio within a group.

import { readFileSync, readdirSync } from 'node:fs';
import { readCpu } from '../../test/engines/cpu.ts';
import { quantile } from '../../test/engines/quantile.ts';
import { delay } from '../../test/engines/wait.ts';
import type { RunningArm } from './arms.ts';
import { Load, type LoadShape } from './load.ts';

export interface Block {
  readonly cpuUs: number;
  readonly requests: number;
  readonly ttftMsP50: number;
  readonly ttftMsP99: number;
  readonly wrong: number;
  readonly fault: string | null;
}

/** ms from the start of a load until its requests are spread over their pace. */
const SETTLE_MS = 700;

export async function measureBlock(
  arm: RunningArm,
  shape: LoadShape,
  blockMs: number,
): Promise<Block> {
  const load = new Load(arm.url, shape);
  load.start();
  await delay(SETTLE_MS);
  load.take();
  const before = cpuSeconds(arm);
  await delay(blockMs);
  const used = cpuSeconds(arm) - before;
  const seen = load.take();
  await load.stop();
  const last = load.take();
  return {
    cpuUs: (used * 1e6) / Math.max(1, seen.completed),
    requests: seen.completed,
    ttftMsP50: quantile(seen.ttftMs, 0.5) ?? Number.NaN,
    ttftMsP99: quantile(seen.ttftMs, 0.99) ?? Number.NaN,
    wrong: seen.wrong + last.wrong,
    fault: seen.fault ?? last.fault,
  };
}

export interface Compared {
  readonly cpuUs: number;
  /** Median over the groups, and the least and greatest of one. */
  readonly timesBase: number;
  readonly timesBaseMin: number;
  readonly timesBaseMax: number;
  readonly ttftMsP50: number;
  readonly ttftMsP99: number;
  readonly wrong: number;
  readonly fault: string | null;
}

/** `groups` times base, arm, arm, base. */
export async function compare(
  arm: RunningArm,
  base: RunningArm,
  plan: { readonly shape: LoadShape; readonly blockMs: number; readonly groups: number },
): Promise<{ readonly arm: Compared; readonly base: Compared }> {
  const { shape, blockMs } = plan;
  const ours: Block[] = [];
  const theirs: Block[] = [];
  const ratios: number[] = [];
  for (let group = 0; group < plan.groups; group += 1) {
    const first = await measureBlock(base, shape, blockMs);
    const one = await measureBlock(arm, shape, blockMs);
    const two = await measureBlock(arm, shape, blockMs);
    const last = await measureBlock(base, shape, blockMs);
    ours.push(one, two);
    theirs.push(first, last);
    ratios.push((one.cpuUs + two.cpuUs) / (first.cpuUs + last.cpuUs));
  }
  return { arm: summary(ours, ratios), base: summary(theirs, [1]) };
}

function summary(blocks: readonly Block[], ratios: readonly number[]): Compared {
  const of = (pick: (block: Block) => number): number =>
    quantile(blocks.map(pick), 0.5) ?? Number.NaN;
  return {
    cpuUs: of((block) => block.cpuUs),
    timesBase: quantile(ratios, 0.5) ?? Number.NaN,
    timesBaseMin: Math.min(...ratios),
    timesBaseMax: Math.max(...ratios),
    ttftMsP50: of((block) => block.ttftMsP50),
    ttftMsP99: of((block) => block.ttftMsP99),
    wrong: blocks.reduce((sum, block) => sum + block.wrong, 0),
    fault: blocks.find((block) => block.fault !== null)?.fault ?? null,
  };
}

export function cpuSeconds(arm: RunningArm): number {
  return arm.group === null ? 0 : (readCpu().groups.get(arm.group.pid) ?? 0);
}

/** Resident memory of the arm's processes, MiB. */
export function rssMiB(arm: RunningArm): number {
  const { group } = arm;
  if (group === null) return 0;
  let kib = 0;
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, 'utf8');
      if (Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]) !== group.pid) continue;
      const status = readFileSync(`/proc/${entry}/status`, 'utf8');
      kib += Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0);
    } catch {
      // It ended while it was looked at.
    }
  }
  return kib / 1024;
}
