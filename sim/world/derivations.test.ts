// What waits, as agents report it, against what the engine model knows at the same instant, under every kind of load;
// and each mechanism taken away, to see that the bound is one.

import { describe, expect, test } from 'vitest';
import { Admission, UNLIMITED } from '../../agent/policy/admission.ts';
import { Backlog } from '../../agent/policy/backlog.ts';
import { ForeignTraffic, type Foreign } from '../../agent/policy/foreign.ts';
import { Ledger } from '../../agent/policy/ledger.ts';
import { findings, LOADS, median, type Findings, type LoadName } from './derivation-loads.ts';
import { quantile } from './recorder.ts';
import { without } from './without.ts';

interface Bound {
  readonly seeds: readonly number[];
  /** The greatest median error of waiting prefill that was seen, with some room, ms. */
  readonly ms: number;
  /** Share of the reports that may be off by more than one prefill; `BEYOND` unless given. */
  readonly beyond?: number;
  /** Share of its true prefill that the largest prompt in flight is told with in 99 of 100 reports; 0.85 unless given. */
  readonly largest?: number;
}

/**
 * One report in 200. Over six seeds of six of these loads 4 reports in some 26,000 were, and never more than 2 of one run:
 * which requests shared a step is not seen. A bound of none would hold for some seeds and not for others.
 */
const BEYOND = 0.005;

/** Where nothing shows a first token, or a preempted request is computed again, the largest may be past or hidden. */
const HIDDEN = { largest: 0 };

const BOUNDS: Readonly<Record<LoadName, Bound>> = {
  'short conversations through two routers': { seeds: [1], ms: 8 },
  'half not streamed, answers of 2,000 tokens': { seeds: [1, 2], ms: 18, ...HIDDEN },
  'nothing streamed': { seeds: [1, 2], ms: 8, ...HIDDEN },
  // Nobody shows what a prefill takes: the curve stays that of calibration, and only counts correct it.
  'nothing streamed, by engines that become slower by 70 %': {
    seeds: [1, 2],
    ms: 100,
    beyond: 0.02,
    ...HIDDEN,
  },
  'bursts of 200-token prompts': { seeds: [1, 2], ms: 9 },
  'prompts of 100,000 tokens': { seeds: [1], ms: 600 },
  // A hit is foretold by the chunk, and this engine's prompts are hardly more than one.
  'conversations behind shared prompts': { seeds: [1], ms: 16, beyond: 0.01, largest: 0.6 },
  'too little KV: preemptions': { seeds: [1], ms: 200, ...HIDDEN },
  'aborts in mid-prefill': { seeds: [1], ms: 80, largest: 0.8 },
  'routers that die and come back': { seeds: [1, 2], ms: 9 },
  // Turns that ended while no agent was there are in no index: the next turn's prefix is taken for uncached.
  'agents that die and come back': { seeds: [1, 2], ms: 9, beyond: 0.01 },
  'engines that become slower by 70 %': { seeds: [1, 2], ms: 14 },
  'two data-parallel ranks': { seeds: [1, 2], ms: 8 },
  'more requests than batch slots': { seeds: [1, 2], ms: 14 },
};
const CASES = (Object.keys(LOADS) as LoadName[]).flatMap((name) =>
  BOUNDS[name].seeds.map((seed) => ({ name, seed })),
);

test.each(CASES)('under $name reports are within one prefill of the truth (seed $seed)', (of) => {
  const found = findings(of.name, of.seed);
  expect(found.busy).toBeGreaterThan(40);
  expect(found.unattributed).toBe(0);
  expect(found.absurd).toEqual([]);
  const { ms, beyond = BEYOND, largest = 0.85 }: Bound = BOUNDS[of.name];
  expect(found.beyond.slice(0, beyondOf(found, beyond) ? 5 : 0)).toEqual([]);
  expect(median(found.ms)).toBeLessThan(ms);
  expect(quantile(found.largest, 0.01)).toBeGreaterThanOrEqual(largest);
});

describe('the bound fails', () => {
  test("without the engine's count of first tokens", () => {
    // Tokens in reports just after a scrape, where the model alone runs ahead of the engine.
    const name = 'nothing streamed, by engines that become slower by 70 %';
    const fresh = (): number => {
      const errors = [1, 2, 3].flatMap((seed) => findings(name, seed).fresh);
      return quantile(errors, 0.75);
    };
    expect(fresh()).toBeLessThan(200);
    without(Backlog.prototype, { name: 'correct', make: () => () => {} }, () => {
      expect(fresh()).toBeGreaterThan(250);
    });
  });

  test('without knowing what the batch has room for', () => {
    without(Admission.prototype, { name: 'room', make: () => () => UNLIMITED }, () => {
      expect(beyondOf(findings('more requests than batch slots', 2), BEYOND)).toBe(true);
    });
  });

  test("without releasing a dead router's requests before the grace ends", () => {
    without(Ledger.prototype, { name: 'dropOrphans', make: () => () => {} }, () => {
      expect(beyondOf(findings('routers that die and come back', 2), BEYOND)).toBe(true);
    });
  });

  test('without the ledger: an engine shows requests in prefill as running, and no tokens', () => {
    const nothing = { waitingMs: 0, waitingTokens: 0, largestMs: 0 };
    without(Backlog.prototype, { name: 'figures', make: () => () => nothing }, () => {
      expect(beyondOf(findings('prompts of 100,000 tokens', 1), BEYOND)).toBe(true);
    });
  });

  test('of unattributed work, counting what waits alone: a preempted request of ours waits again', () => {
    without(ForeignTraffic.prototype, { name: 'estimate', make: () => queueAlone }, () => {
      expect(findings('too little KV: preemptions', 1).unattributed).toBeGreaterThan(0);
    });
  });
});

/** More than that share of its reports is off by more than one prefill. */
function beyondOf({ beyond, reports }: Findings, share: number): boolean {
  return beyond.length > share * reports;
}

function queueAlone(
  this: ForeignTraffic,
  ...[momentAt]: Parameters<ForeignTraffic['estimate']>
): Foreign | null {
  const scrape = this.lastSettled;
  if (scrape === null || scrape.waiting === null) return null;
  const { withoutFirstToken } = momentAt(scrape.atMs, scrape.lateMs);
  const waiting = Math.max(0, scrape.waiting - withoutFirstToken);
  return { waiting, open: waiting };
}
