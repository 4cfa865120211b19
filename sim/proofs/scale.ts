// What a router of a large region hears and says over its links, a second: bounded, whatever the
// number of agents, by the interval at which they are told to report. Counted in virtual time with real
// cores and the real codec, so the same on every machine; what it costs is `npm run bench:scale`.
//
//   reports   ≤ 1,000 agents' worth · 1.25 (an interval is told again when it is a quarter off)
//   prefixes  ≤ reports: deltas go out at the same interval
//   heard     ≤ 2 an agent: one a scrape
//   ledger    3 messages an attempt
//   bytes     of a report ≤ 1,400, of a delta ≤ 400, of an attempt's three ≤ 1,200
//   siblings  51 messages a second to each, and as many from each; 250 bytes of an attempt to each
//
// Control: agents that go on at the interval of a small region.

import type { Proof, ProofOutcome, ProofRow } from './proof.ts';
import { measureVolume, type Kind, type Volume, type VolumeFigures } from './scale-volume.ts';

export interface ScaleShape {
  readonly replicas: number;
  readonly routers: number;
  readonly warmMs: number;
  readonly forMs: number;
  /** At each replica. */
  readonly requestsPerS: number;
}

/** Reports a second that a router means to hear, and by how much agents may be off what was told. */
const REPORTS_PER_S = 1_000;
const SLACK = 1.25;
const REPORT_BYTES = 1_400;
const PREFIX_BYTES = 400;
const ATTEMPT_BYTES = 1_200;
/** To one sibling: a send and its end, and the message around them. */
const SIBLING_ATTEMPT_BYTES = 250;
/** One each 20 ms, and one more in the seconds that are counted. */
const SIBLING_MESSAGES_PER_S = 51;

export const SCALE_PROOF: Proof = {
  name: 'scale',
  title: 'messages and bytes of a router of a large region are bounded, and counted',
  run({ quick, print }): ProofOutcome {
    const shape = quick
      ? { replicas: 200, routers: 2, warmMs: 5_000, forMs: 4_000, requestsPerS: 1.25 }
      : { replicas: 1_000, routers: 8, warmMs: 15_000, forMs: 10_000, requestsPerS: 1.25 };
    const figures = measureVolume({ ...shape, seed: 1 });
    const rows = rowsOf(shape, figures);
    for (const row of rows) print(lineOf(row));
    const failures = failuresOf(shape, figures);
    const small = { replicas: 280, routers: 1, warmMs: 2_000, forMs: 2_000, requestsPerS: 4 };
    if (failuresOf(small, controlOf(small)).length === 0) {
      failures.push('the control passes: agents of a small region’s pace stay within the bounds');
    }
    return { failures, rows };
  },
};

/** Agents that keep the interval of a region of 50. */
export function controlOf(shape: ScaleShape): VolumeFigures {
  return measureVolume({ ...shape, seed: 1, paceMs: 50 });
}

/** What does not hold. */
export function failuresOf(shape: ScaleShape, figures: VolumeFigures): string[] {
  const perS = (kind: Kind): number => perSecond(shape, figures, kind);
  const each = (kind: Kind): number => bytesEach(figures, kind);
  const attempts = perS('sent');
  const attemptBytes = each('sent') + each('firstToken') + each('ended');
  const bounds: Bound[] = [
    ['reports a second', perS('report'), SLACK * REPORTS_PER_S],
    ['prefix messages a second', perS('prefix'), SLACK * REPORTS_PER_S],
    ['echoes a second', perS('heard'), 2 * shape.replicas],
    ['ledger messages a second', perS('firstToken') + perS('ended'), 2.2 * attempts],
    ['bytes of a report', each('report'), REPORT_BYTES],
    ['bytes of a prefix message', each('prefix'), PREFIX_BYTES],
    ['ledger bytes of an attempt', attemptBytes, ATTEMPT_BYTES],
    ...siblingBounds(shape, figures, attempts),
  ];
  return bounds
    .filter(([, value, most]) => !(value <= most))
    .map(([what, value, most]) => `${what}: ${value.toFixed(1)}, at most ${most.toFixed(1)}`);
}

type Bound = [what: string, value: number, most: number];

function siblingBounds(shape: ScaleShape, figures: VolumeFigures, attempts: number): Bound[] {
  const others = shape.routers - 1;
  const { messages, bytes } = siblingsPerS(shape, figures);
  return [
    ['messages of siblings a second', messages, 2 * SIBLING_MESSAGES_PER_S * others],
    ['sibling bytes of attempts', bytes, 2 * SIBLING_ATTEMPT_BYTES * others * attempts],
  ];
}

/** Sent and heard by one router. */
function siblingsPerS({ routers }: ScaleShape, { siblings, seconds }: VolumeFigures): Volume {
  const each = 2 / seconds / routers;
  return { messages: each * siblings.messages, bytes: each * siblings.bytes };
}

export function rowsOf(shape: ScaleShape, figures: VolumeFigures): ProofRow[] {
  const { replicas, routers } = shape;
  const kinds = [...figures.wire.volumes.keys()].toSorted();
  const rows = kinds.map((kind): ProofRow => {
    const messagesPerS = perSecond(shape, figures, kind);
    const bytes = bytesEach(figures, kind);
    return {
      ...{ replicas, routers, kind },
      messagesPerSPerRouter: round(messagesPerS),
      bytesEach: Math.round(bytes),
      bytesPerSPerRouter: Math.round(messagesPerS * bytes),
      bytesPerSPerLink: Math.round((messagesPerS * bytes) / replicas),
    };
  });
  const siblings = siblingsPerS(shape, figures);
  const { wire, seconds } = figures;
  const all = {
    messages: wire.total.messages / seconds / routers + siblings.messages,
    bytes: wire.total.bytes / seconds / routers + siblings.bytes,
  };
  return [...rows, rowOf(shape, 'siblings', siblings), rowOf(shape, 'all', all)];
}

/** Of what one router sends and hears in a second. */
function rowOf({ replicas, routers }: ScaleShape, kind: string, perS: Volume): ProofRow {
  return {
    ...{ replicas, routers, kind },
    messagesPerSPerRouter: round(perS.messages),
    bytesEach: perS.messages === 0 ? 0 : Math.round(perS.bytes / perS.messages),
    bytesPerSPerRouter: Math.round(perS.bytes),
    bytesPerSPerLink: Math.round(perS.bytes / replicas),
  };
}

function perSecond(shape: ScaleShape, { wire, seconds }: VolumeFigures, kind: Kind): number {
  return (wire.volumes.get(kind)?.messages ?? 0) / seconds / shape.routers;
}

function bytesEach({ wire }: VolumeFigures, kind: Kind): number {
  const volume = wire.volumes.get(kind);
  return volume === undefined ? 0 : volume.bytes / volume.messages;
}

function lineOf(row: ProofRow): string {
  const cell = (name: string): string => String(row[name]).padStart(10);
  return [
    String(row['kind']).padEnd(10),
    `${cell('messagesPerSPerRouter')} /s a router`,
    `${cell('bytesEach')} B each`,
    `${cell('bytesPerSPerRouter')} B/s a router`,
    `${cell('bytesPerSPerLink')} B/s a link`,
  ].join(' ');
}

function round(value: number): number {
  return Math.round(10 * value) / 10;
}
