// The machine's processors and memory, for people. Read without a process or a library: a look every 10 s must not hold up
// what the agent tells routers in between.
//
//   cpu ratio = processor time that was not idle ÷ all of it, between two looks; unknown at the first

import { cpus, freemem, totalmem } from 'node:os';

export interface MachineFacts {
  /** All of its processors, 0..1. */
  readonly cpuRatio: number | null;
  readonly memoryTotalBytes: number | null;
  /** What programs cannot have any more. */
  readonly memoryUsedBytes: number | null;
}

/** Since the machine started, ms of all processors together. */
export interface ProcessorTime {
  readonly busyMs: number;
  readonly allMs: number;
}

export interface MachineSources {
  readonly processorTime: () => ProcessorTime;
  readonly totalBytes: () => number;
  /** That programs could have. */
  readonly freeBytes: () => number;
}

const MACHINE: MachineSources = {
  processorTime,
  totalBytes: totalmem,
  freeBytes: freemem,
};

/** Looks at the machine; each look compares with the one before. */
export function machineWatch(sources: MachineSources = MACHINE): () => MachineFacts {
  let before: ProcessorTime | null = null;
  return () => {
    const now = sources.processorTime();
    const cpuRatio = before === null ? null : busyRatio(before, now);
    before = now;
    const total = sources.totalBytes();
    const known = Number.isFinite(total) && total > 0;
    return {
      cpuRatio,
      memoryTotalBytes: known ? total : null,
      memoryUsedBytes: known ? Math.max(0, total - sources.freeBytes()) : null,
    };
  };
}

/** Null where no time has passed, or the counts began anew. */
function busyRatio(before: ProcessorTime, now: ProcessorTime): number | null {
  const allMs = now.allMs - before.allMs;
  const busyMs = now.busyMs - before.busyMs;
  return allMs > 0 && busyMs >= 0 ? Math.min(1, busyMs / allMs) : null;
}

function processorTime(): ProcessorTime {
  let [busyMs, allMs] = [0, 0];
  for (const { times } of cpus()) {
    const mine = times.user + times.nice + times.sys + times.irq;
    busyMs += mine;
    allMs += mine + times.idle;
  }
  return { busyMs, allMs };
}
