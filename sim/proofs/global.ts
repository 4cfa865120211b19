// The global tier cannot do the wrong thing: flood a neighbour, herd, oscillate, move conversations for nothing, leave the
// allowed regions. Real global cores, real credit and away code of regions, modelled replicas.
//
//   peak       the documents' evening. Spill starts within 5 s of the queue's passing 400 ms; no share grows while the
//              neighbour is at 300 ms; none is left below 150 ms. An EU tenant's requests go to the EU alone
//   flood      2, 5, 20 global × 1, 4 regional routers, reports 1 to 5 s late: a neighbour's queue ≤ 400 ms + what one
//              second's grants add; ≤ 2 turns a controller in 10 min; no share above its ceiling
//   choice     of two equal neighbours neither gets nine tenths of a second's spills in more than 1 second of 50
//   sudden     reports 5 s late: one router notices a doubled load within 1 s, by what it has sent itself
//   affinity   two routers, turns by way of either: ≥ 95 % of later turns in place, also where both are started anew
//   histories  10,000 random ones of 250 events: no breach (history.ts)
//
// Controls that must fail: credits off (flood), softmax off (choice), own sends off (sudden), away reports off (affinity).

import { ConversationMemory } from '../../router/policy/affinity.ts';
import { OwnSends } from '../../router/policy/own-sends.ts';
import { CreditPurse } from '../../router/policy/spill-credit.ts';
import { GLOBAL_DEFAULTS } from '../../shared/model/global-settings.ts';
import { breachOf } from '../regions/history.ts';
import { without } from '../world/without.ts';
import {
  measureAffinity,
  measureFlood,
  measurePeak,
  measureSudden,
  type AffinityShape,
  type FloodFigures,
  type FloodShape,
  type PeakFigures,
  type PeakShape,
} from './global-worlds.ts';
import type { Proof, ProofOptions, ProofOutcome, ProofRow } from './proof.ts';

const START_MS = GLOBAL_DEFAULTS.spillStartMs;
const CEILING = GLOBAL_DEFAULTS.spillCeilingRatio;
const TURNS_MAX = 2;
const NOTICE_MS = 5_000;
const SUDDEN_MS = 1_000;
const ONE_SIDED_MAX = 0.02;
const IN_PLACE_MIN = 0.95;
/** Rounding of sums. */
const SLACK = 1e-6;

export const GLOBAL: Proof = {
  name: 'global',
  title:
    'spill starts, stops and comes back; no flood, no herd, no oscillation; conversations stay',
  run(options): ProofOutcome {
    const rows: ProofRow[] = [];
    const failures: string[] = [];
    const note = (row: ProofRow, failed: readonly string[]): void => {
      rows.push(row);
      failures.push(...failed);
      options.print(
        Object.entries(row)
          .map(([name, value]) => `${name} ${value}`)
          .join('  '),
      );
    };
    provePeak(options, note);
    proveFlood(options, note);
    proveChoice(options, note);
    proveSudden(note);
    proveAffinity(options, note);
    proveHistories(options, note);
    return { failures, rows };
  },
};

type Note = (row: ProofRow, failures: readonly string[]) => void;

// ── peak ──────────────────────────────────────────────────────────────────────────────────────────────

function provePeak({ quick }: ProofOptions, note: Note): void {
  const shape: PeakShape = quick
    ? { seed: 1, replicas: 12, promptTokens: 500, hotMs: 200_000, afterMs: 240_000 }
    : { seed: 1, replicas: 60, promptTokens: 2_000, hotMs: 600_000, afterMs: 700_000 };
  const figures = measurePeak(shape);
  const { hotAtMs, firstSpillMs, neighbourMostMs, shareMost, turns, boundAnswered } = figures;
  const row = { hotAtMs, firstSpillMs, neighbourMostMs: round(neighbourMostMs), turns };
  note(
    { proof: 'peak', ...row, shareMost: round(shareMost, 2), boundAnswered },
    peakFailures(figures),
  );
}

export function peakFailures(figures: PeakFigures): string[] {
  const { hotAtMs, firstSpillMs, grewAboveMs, shareAtEnd, outside, boundAnswered } = figures;
  const failures: string[] = [];
  if (hotAtMs === null || firstSpillMs === null || firstSpillMs - hotAtMs > NOTICE_MS) {
    failures.push(`peak: hot at ${hotAtMs} ms, spilling at ${firstSpillMs} ms`);
  }
  if (grewAboveMs > SLACK) failures.push('peak: a share grew with the neighbour at 300 ms');
  if (shareAtEnd > 0) failures.push(`peak: a share of ${shareAtEnd} is left in a quiet region`);
  if (figures.shareMost > CEILING + SLACK) failures.push('peak: a share above its ceiling');
  if (figures.turns > TURNS_MAX) failures.push(`peak: ${figures.turns} turns`);
  if (outside > 0 || boundAnswered === 0) {
    failures.push(`peak: of a bound tenant ${outside} elsewhere, ${boundAnswered} answered`);
  }
  return failures;
}

// ── flood ─────────────────────────────────────────────────────────────────────────────────────────────

export const FLOOD: FloodShape = {
  ...{ seed: 1, globals: 5, routers: 1, lateMs: [1_000, 1_000], forMs: 600_000, neighbours: 10 },
};

export const QUICK_FLOOD = { forMs: 60_000, settings: { spillIntervalMs: 10_000 } } as const;

function proveFlood({ quick }: ProofOptions, note: Note): void {
  const shapes: FloodShape[] = [];
  for (const globals of quick ? [5] : [2, 5, 20]) {
    for (const routers of quick ? [1] : [1, 4]) {
      for (const lateMs of quick ? [1_000] : [1_000, 5_000]) {
        shapes.push({ ...FLOOD, globals, routers, lateMs: [1_000, lateMs] });
      }
    }
  }
  // A faster ramp shows the same in less time.
  const pace = quick ? QUICK_FLOOD : {};
  for (const shape of shapes) {
    const figures = measureFlood({ ...shape, ...pace });
    note(
      floodRow('flood', shape, figures),
      floodFailures(figures).map((each) => `${each} ${JSON.stringify(shape)}`),
    );
  }
  const figures = withoutCredits(() => measureFlood({ ...FLOOD, ...pace }));
  const passes = floodFailures(figures).length === 0;
  note(
    floodRow('control: credits off', FLOOD, figures),
    passes ? ['the control passes: nothing is flooded without credits'] : [],
  );
}

export function floodFailures({
  neighbourMostMs,
  grantsMs,
  shareMost,
  turns,
  spills,
}: FloodFigures): string[] {
  const failures: string[] = [];
  if (neighbourMostMs > START_MS + grantsMs) {
    failures.push(
      `flood: a neighbour at ${round(neighbourMostMs)} ms, grants of ${round(grantsMs)}`,
    );
  }
  if (shareMost > CEILING + SLACK) failures.push(`flood: a share of ${shareMost}`);
  if (turns > TURNS_MAX) failures.push(`flood: ${turns} turns`);
  if (spills === 0) failures.push('flood: nothing went abroad');
  return failures;
}

function floodRow(proof: string, shape: FloodShape, figures: FloodFigures): ProofRow {
  const { globals, routers, lateMs } = shape;
  return {
    ...{
      proof,
      globals,
      routers,
      lateMs: lateMs[1],
      neighbourMostMs: round(figures.neighbourMostMs),
    },
    ...{ grantsMs: round(figures.grantsMs), shareMost: round(figures.shareMost, 2) },
    ...{ turns: figures.turns, spills: figures.spills },
  };
}

export function withoutCredits<T>(run: () => T): T {
  let result: T | null = null;
  without(CreditPurse.prototype, { name: 'balanceMs', make: () => () => 1e9 }, () => {
    without(CreditPurse.prototype, { name: 'spend', make: () => () => true }, () => {
      result = run();
    });
  });
  return result as T;
}

// ── choice ────────────────────────────────────────────────────────────────────────────────────────────

export const CHOICE: FloodShape = {
  ...{ seed: 1, globals: 20, routers: 1, lateMs: [1_000, 5_000], forMs: 120_000, neighbours: 40 },
  settings: { spillIntervalMs: 20_000 },
};

function proveChoice({ quick }: ProofOptions, note: Note): void {
  const shape = quick ? { ...CHOICE, forMs: 60_000 } : CHOICE;
  const { oneSidedRatio, spills } = measureFlood(shape);
  note(
    { proof: 'choice', oneSidedRatio: round(oneSidedRatio, 3), spills },
    choiceFailures(oneSidedRatio),
  );
  const settings = { ...shape.settings, temperatureMs: 0 };
  const control = measureFlood({ ...shape, settings });
  const passes = choiceFailures(control.oneSidedRatio).length === 0;
  note(
    {
      proof: 'control: softmax off',
      oneSidedRatio: round(control.oneSidedRatio, 3),
      spills: control.spills,
    },
    passes ? ['the control passes: nobody herds without the draw'] : [],
  );
}

export function choiceFailures(oneSidedRatio: number): string[] {
  return oneSidedRatio <= ONE_SIDED_MAX
    ? []
    : [`choice: in ${round(100 * oneSidedRatio)} % of seconds one neighbour got nearly all`];
}

// ── sudden ────────────────────────────────────────────────────────────────────────────────────────────

function proveSudden(note: Note): void {
  const noticedMs = measureSudden(1);
  note({ proof: 'sudden', noticedMs }, suddenFailures(noticedMs));
  let control: number | null = null;
  without(OwnSends.prototype, { name: 'backlogMs', make: () => () => 0 }, () => {
    control = measureSudden(1);
  });
  const passes = suddenFailures(control).length === 0;
  note(
    { proof: 'control: own sends off', noticedMs: control },
    passes ? ['the control passes: reports alone tell soon enough'] : [],
  );
}

export function suddenFailures(noticedMs: number | null): string[] {
  return noticedMs !== null && noticedMs <= SUDDEN_MS
    ? []
    : [`sudden: noticed after ${noticedMs} ms`];
}

// ── affinity ──────────────────────────────────────────────────────────────────────────────────────────

function proveAffinity({ quick }: ProofOptions, note: Note): void {
  const forMs = quick ? 120_000 : 600_000;
  for (const restartMs of [null, forMs / 2]) {
    const shape = { seed: 1, forMs, restartMs };
    const { row, inPlace } = affinityOf(shape);
    note(
      { proof: 'affinity', ...row },
      inPlace >= IN_PLACE_MIN ? [] : [`affinity: ${inPlace} in place`],
    );
  }
  let control = { row: {}, inPlace: 1 };
  without(ConversationMemory.prototype, { name: 'reported', make: () => () => {} }, () => {
    control = affinityOf({ seed: 1, forMs, restartMs: null });
  });
  note(
    { proof: 'control: away reports off', ...control.row },
    control.inPlace >= IN_PLACE_MIN
      ? ['the control passes: nobody has to tell of conversations']
      : [],
  );
}

function affinityOf(shape: AffinityShape): { row: ProofRow; inPlace: number } {
  const { laterTurns, inPlace, spills } = measureAffinity(shape);
  const ratio = inPlace / Math.max(1, laterTurns);
  const { restartMs } = shape;
  return { row: { restartMs, laterTurns, spills, inPlace: round(ratio, 3) }, inPlace: ratio };
}

// ── histories ─────────────────────────────────────────────────────────────────────────────────────────

function proveHistories({ quick }: ProofOptions, note: Note): void {
  const histories = quick ? 1_000 : 10_000;
  const breaches = breachesOf({ from: 1, histories, events: 250 });
  note({ proof: 'histories', histories, breaches: breaches.length }, breaches.slice(0, 10));
}

export function breachesOf(of: { from: number; histories: number; events: number }): string[] {
  const breaches: string[] = [];
  for (let seed = of.from; seed < of.from + of.histories; seed += 1) {
    const breach = breachOf(seed, of.events);
    if (breach !== null) breaches.push(breach);
  }
  return breaches;
}

function round(figure: number, digits = 0): number {
  return Number(figure.toFixed(digits));
}
