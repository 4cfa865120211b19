// One block: a load for some seconds, the CPU that the proxy's processes used in it, and what the clients saw.

import type { ProcessGroup } from '../../test/engines/process-group.ts';
import { delay } from '../../test/engines/wait.ts';
import type { RunningArm } from './arms.ts';
import type { Block } from './compare.ts';
import { Load, streamMs, type LoadShape } from './load.ts';
import { cpuMeter } from './process-cost.ts';

/** ms behind the last beginning of a load before it is looked at. */
const SETTLE_MS = 150;

export async function measureBlock(
  arm: RunningArm,
  shape: LoadShape,
  blockMs: number,
): Promise<Block> {
  const cpuOf = meterOf(arm.group);
  const cpuBehind = meterOf(arm.behind);
  const load = new Load(arm.url, shape);
  load.start();
  await delay(streamMs(shape) + SETTLE_MS);
  load.take();
  const before = cpuOf();
  const beforeBehind = cpuBehind();
  await delay(blockMs);
  const cpuSBehind = cpuBehind() - beforeBehind;
  const cpuS = cpuOf() - before + cpuSBehind;
  const seen = load.take();
  await load.stop();
  const last = load.take();
  return {
    cpuS,
    ...(arm.behind === undefined ? {} : { cpuSBehind }),
    completed: seen.completed,
    ttftMs: seen.ttftMs,
    wrong: seen.wrong + last.wrong,
    fault: seen.fault ?? last.fault,
  };
}

function meterOf(group: ProcessGroup | null | undefined): () => number {
  return group ? cpuMeter(group.pid) : () => 0;
}
