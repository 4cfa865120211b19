// `python_*` and `process_*` of an exposition: what Python's client tells of its process. Python's own counts stand at
// 0: there is no Python.

import { readdirSync, readFileSync } from 'node:fs';

import { familyLines, sampleLine } from './text-format.ts';

const GENERATIONS = ['0', '1', '2'];
const PYTHON = { implementation: 'CPython', major: '3', minor: '11', patchlevel: '7' };
const PAGE_BYTES = 4_096;
const FDS_MAX = 20_000;

const COUNTERS: readonly (readonly [string, string])[] = [
  ['python_gc_objects_collected_total', 'Objects collected during gc'],
  ['python_gc_objects_uncollectable_total', 'Uncollectable objects found during GC'],
  ['python_gc_collections_total', 'Number of times this generation was collected'],
];

export function processLines(startTimeSeconds: number): string[] {
  const python = COUNTERS.flatMap(([name, help]) => [
    ...familyLines(name, 'counter', help),
    ...GENERATIONS.map((generation) => sampleLine(name, { generation }, 0)),
  ]);
  const info = sampleLine('python_info', { ...PYTHON, version: '3.11.7' }, 1);
  return [
    ...python,
    ...familyLines('python_info', 'gauge', 'Python platform information'),
    info,
    ...processRows(startTimeSeconds).flatMap(([name, type, help, value]) => [
      ...familyLines(name, type, help),
      sampleLine(name, {}, value),
    ]),
  ];
}

type ProcessRow = readonly [string, 'gauge' | 'counter', string, number];

function processRows(startTimeSeconds: number): readonly ProcessRow[] {
  const { user, system } = process.cpuUsage();
  const residentBytes = process.memoryUsage.rss();
  return [
    [
      'process_virtual_memory_bytes',
      'gauge',
      'Virtual memory size in bytes.',
      virtualBytes() ?? residentBytes,
    ],
    ['process_resident_memory_bytes', 'gauge', 'Resident memory size in bytes.', residentBytes],
    [
      'process_start_time_seconds',
      'gauge',
      'Start time of the process since unix epoch in seconds.',
      startTimeSeconds,
    ],
    [
      'process_cpu_seconds_total',
      'counter',
      'Total user and system CPU time spent in seconds.',
      (user + system) / 1e6,
    ],
    ['process_open_fds', 'gauge', 'Number of open file descriptors.', openFds()],
    ['process_max_fds', 'gauge', 'Maximum number of open file descriptors.', FDS_MAX],
  ];
}

/** Null where there is no /proc. */
function virtualBytes(): number | null {
  try {
    const pages = Number(readFileSync('/proc/self/statm', 'utf8').split(' ')[0]);
    return Number.isFinite(pages) ? pages * PAGE_BYTES : null;
  } catch {
    return null;
  }
}

function openFds(): number {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return 0;
  }
}
