// The end of a soak in words and as rows for machines.

import { GOOD_BYTES_PER_REQUEST, type Slope } from './slope.ts';
import type { Ended, Kind } from './verdict.ts';

/** Counted while it runs; nothing of single requests is kept. */
export interface Tally {
  requests: number;
  readonly ends: Map<Ended['end'], number>;
  readonly kinds: Map<Kind, number>;
  readonly troubles: Map<string, { times: number; slowestBackS: number }>;
}

export interface ProcessMemory {
  readonly name: string;
  /** There were requests enough. */
  readonly judged: boolean;
  readonly residentMib: number;
  /** After a collection. */
  readonly liveMib: number;
  readonly resident: Slope | null;
  readonly live: Slope | null;
}

export interface SoakFacts {
  readonly machine: string;
  readonly seed: number;
  readonly seconds: number;
  readonly tally: Tally;
  readonly processes: readonly ProcessMemory[];
  readonly problems: readonly string[];
}

type Row = Readonly<Record<string, string | number | boolean | null>>;

export interface SoakReport {
  readonly text: string;
  readonly json: {
    readonly version: 1;
    readonly machine: string;
    readonly rows: readonly Row[];
    readonly problems: readonly string[];
  };
}

export function reportOf(facts: SoakFacts): SoakReport {
  const { machine, problems } = facts;
  return {
    text: textOf(facts),
    json: { version: 1, machine, rows: rowsOf(facts), problems },
  };
}

function rowsOf({ seed, seconds, tally, processes, problems }: SoakFacts): Row[] {
  const count = (end: Ended['end']) => tally.ends.get(end) ?? 0;
  return [
    {
      cell: 'soak',
      arm: 'requests',
      seed,
      seconds: Math.round(seconds),
      requests: tally.requests,
      streams: (tally.kinds.get('talk') ?? 0) + (tally.kinds.get('long') ?? 0),
      complete: count('complete'),
      interrupted: count('interrupted'),
      unconnected: count('unconnected'),
      refused: count('refused'),
      hung: count('hung'),
      wrong: count('wrong'),
      problems: problems.length,
    },
    ...[...tally.troubles].map(([name, { times, slowestBackS }]) => ({
      cell: 'trouble',
      arm: name,
      times,
      slowestBackS: Number(slowestBackS.toFixed(1)),
    })),
    ...processes.map(({ name, judged, residentMib, liveMib, resident, live }) => ({
      cell: 'memory',
      arm: name,
      judged,
      rssMiB: Number(residentMib.toFixed(1)),
      liveMiB: Number(liveMib.toFixed(1)),
      rssBytesPerRequest: rounded(resident?.bytesPerRequest),
      rssBytesPerRequestLower: rounded(resident?.lower),
      liveBytesPerRequest: rounded(live?.bytesPerRequest),
      liveBytesPerRequestLower: rounded(live?.lower),
    })),
  ];
}

function textOf({ seed, seconds, tally, processes, problems }: SoakFacts): string {
  const ends = [...tally.ends].map(([end, count]) => `${count} ${end}`).join(', ');
  const kinds = [...tally.kinds].map(([kind, count]) => `${count} ${kind}`).join(', ');
  const rate = (tally.requests / seconds).toFixed(0);
  const judged = processes.every((each) => each.judged);
  return [
    '',
    ...[...tally.troubles].map(
      ([name, { times, slowestBackS }]) =>
        `${name.padEnd(42)} ${String(times).padStart(4)} ×, back after ${slowestBackS.toFixed(1)} s at most`,
    ),
    '',
    `bytes a request in the second half (90 % lower bound); good below ${GOOD_BYTES_PER_REQUEST}, or bound ≤ 0`,
    ...processes.map(
      ({ name, residentMib, liveMib, resident, live }) =>
        `${name.padEnd(10)} resident ${residentMib.toFixed(0).padStart(4)} MiB, ${slopeText(resident)}; ` +
        `after collection ${liveMib.toFixed(1).padStart(6)} MiB, ${slopeText(live)}`,
    ),
    ...(judged ? [] : ['memory is not judged: too few requests in the second half']),
    '',
    ...problems.map((each) => `problem: ${each}`),
    `${tally.requests} requests (${kinds}) in ${seconds.toFixed(0)} s, ${rate} a second: ${ends}`,
    `${problems.length} problems, seed ${seed}`,
  ].join('\n');
}

function slopeText(slope: Slope | null): string {
  if (slope === null) return 'slope unknown';
  return `${slope.bytesPerRequest.toFixed(0).padStart(6)} (${slope.lower.toFixed(0)})`;
}

function rounded(value: number | undefined): number | null {
  return value === undefined ? null : Number(value.toFixed(1));
}
