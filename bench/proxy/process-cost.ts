// What a process group has used, read from /proc. CPU is the scheduler's own count of nanoseconds (`schedstat` of each
// thread), because the clock ticks of `stat` are 10 ms and a block of nginx is twenty of them. The threads of the arms
// live as long as they do; what a thread used that has ended is not in it.

import { readFileSync, readdirSync } from 'node:fs';

const NS_PER_S = 1e9;
const KIB_PER_MIB = 1_024;

/**
 * What tells the CPU seconds of all threads of the group's processes since they began. The processes are those of now: to look for
 * them takes milliseconds, in which the load would stand still.
 */
export function cpuMeter(group: number): () => number {
  const pids = processesOf(group);
  return () => {
    let ns = 0;
    for (const pid of pids) {
      for (const thread of entries(`/proc/${pid}/task`)) {
        ns += Number(text(`/proc/${pid}/task/${thread}/schedstat`).split(' ')[0] ?? 0);
      }
    }
    return ns / NS_PER_S;
  };
}

/** Resident memory of the group's processes, MiB. */
export function rssMiB(group: number): number {
  let kib = 0;
  for (const pid of processesOf(group)) {
    kib += Number(/^VmRSS:\s+(\d+)/m.exec(text(`/proc/${pid}/status`))?.[1] ?? 0);
  }
  return kib / KIB_PER_MIB;
}

function processesOf(group: number): string[] {
  return entries('/proc').filter((entry) => {
    if (!/^\d+$/.test(entry)) return false;
    const stat = text(`/proc/${entry}/stat`);
    // Behind the name in parentheses: state ppid pgrp …
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]) === group;
  });
}

function entries(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Empty where the process has ended meanwhile. */
function text(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
