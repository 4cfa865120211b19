// Who used the machine's processors: a prediction of milliseconds means little where another program took a core.

import { readdirSync, readFileSync } from 'node:fs';

/** Clock ticks per second of `/proc`, the same on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

export interface CpuReading {
  readonly atMs: number;
  /** Seconds that the processors were busy, all programs together. */
  readonly busyS: number;
  /** Seconds by process group. */
  readonly groups: ReadonlyMap<number, number>;
}

export function readCpu(): CpuReading {
  return { atMs: performance.now(), busyS: busySeconds(), groups: secondsByGroup() };
}

/** Processors that a group kept busy between two readings, on average. */
export function coresOfGroup(before: CpuReading, after: CpuReading, group: number): number {
  const used = (after.groups.get(group) ?? 0) - (before.groups.get(group) ?? 0);
  return used / ((after.atMs - before.atMs) / 1_000);
}

/** Processors kept busy by everything but these groups. */
export function coresOfOthers(
  before: CpuReading,
  after: CpuReading,
  groups: readonly number[],
): number {
  const all = (after.busyS - before.busyS) / ((after.atMs - before.atMs) / 1_000);
  return groups.reduce((left, group) => left - coresOfGroup(before, after, group), all);
}

/** Of this process. */
export function processGroup(): number {
  const stat = statOf('self');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]);
}

function busySeconds(): number {
  const [first = ''] = readFileSync('/proc/stat', 'utf8').split('\n');
  // cpu user nice system idle iowait irq softirq steal
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = first
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user + nice + system + irq + softirq) / TICKS_PER_SECOND;
}

function secondsByGroup(): Map<number, number> {
  const groups = new Map<number, number>();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const stat = statOf(entry);
    // Behind the name in parentheses: state ppid pgrp … utime is the 12th, stime the 13th.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const group = Number(fields[2]);
    const seconds = (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
    if (Number.isFinite(seconds)) groups.set(group, (groups.get(group) ?? 0) + seconds);
  }
  return groups;
}

function statOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return '';
  }
}
