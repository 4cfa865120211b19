import { describe, expect, test } from 'vitest';
import { leaseFacts } from '../core.harness.ts';
import { Echo } from './echo.ts';
import { ForeignTraffic } from './foreign.ts';
import { LedgerHistory } from './ledger-history.ts';
import type { LedgerEntry } from './ledger.ts';

const NOBODY = () => ({ open: 0, withoutFirstToken: 0 });

interface Load {
  readonly atMs: number;
  readonly running: number | null;
  readonly waiting: number | null;
}

function seen(loads: readonly Load[], sure = true): ForeignTraffic {
  const foreign = new ForeignTraffic();
  for (const load of loads) {
    foreign.scraped(load);
    foreign.heard({ untilMs: load.atMs, lateMs: 0, sure });
  }
  return foreign;
}

describe('foreign traffic', () => {
  test('is what the last scrape shows above the ledger at its time', () => {
    const known = (atMs: number) => ({ open: atMs < 500 ? 7 : 3, withoutFirstToken: 1 });
    const foreign = seen([{ atMs: 0, running: 3, waiting: 4 }]);
    expect(foreign.estimate(known, 0)).toEqual({ waiting: 0, open: 0 });
    foreign.scraped({ atMs: 1_000, running: 3, waiting: 3 });
    foreign.heard({ untilMs: 1_000, lateMs: 0, sure: true });
    expect(foreign.estimate(known, 1_000)).toEqual({ waiting: 2, open: 3 });
  });

  test('is the least of two scrapes where a router does not say what has been heard', () => {
    const known = (atMs: number) => ({ open: atMs < 500 ? 2 : 3, withoutFirstToken: 1 });
    const loads = [
      { atMs: 0, running: 3, waiting: 4 },
      { atMs: 1_000, running: 3, waiting: 3 },
    ];
    expect(seen(loads.slice(0, 1), false).estimate(known, 0)).toBeNull();
    expect(seen(loads, false).estimate(known, 1_000)).toEqual({ waiting: 2, open: 3 });
  });

  test('is not what waits again after a preemption: the requests inside are all ours', () => {
    const known = () => ({ open: 7, withoutFirstToken: 1 });
    const load = { running: 3, waiting: 4 };
    const foreign = seen([
      { atMs: 0, ...load },
      { atMs: 1_000, ...load },
    ]);
    expect(foreign.estimate(known, 1_000)).toEqual({ waiting: 0, open: 0 });
  });

  test('is not told from scrapes that a router could still explain', () => {
    const load = { running: 9, waiting: 9 };
    const foreign = seen([{ atMs: 0, running: 0, waiting: 0 }]);
    for (const atMs of [1_000, 2_000, 3_000]) foreign.scraped({ atMs, ...load });
    expect(foreign.estimate(NOBODY, 3_000)).toEqual({ waiting: 0, open: 0 });
    expect(foreign.heard({ untilMs: 2_500, lateMs: 500, sure: true })).toBe(true);
    expect(foreign.estimate(NOBODY, 3_000)).toEqual({ waiting: 9, open: 18 });
  });

  test('is unknown without the gauges, and long after the last router was heard', () => {
    const load = { running: 1, waiting: 1 };
    const blind = seen([{ atMs: 0, running: null, waiting: 4 }]);
    expect(blind.estimate(NOBODY, 1)).toBeNull();
    const foreign = seen([{ atMs: 0, ...load }]);
    expect(foreign.estimate(NOBODY, 1)).not.toBeNull();
    expect(foreign.estimate(NOBODY, 60_000)).toBeNull();
  });
});

test('an echo says that all which the router sent before the report is here', () => {
  const echo = new Echo();
  expect(echo.heard.untilMs).toBe(-Infinity);
  expect(echo.wants(null)).toBe(false);
  expect(echo.wants(90)).toBe(true);
  echo.ask({ seq: 4, scrapeMs: 90 }, 100);
  expect(echo.wants(90)).toBe(false);
  expect(echo.wants(190)).toBe(true);
  echo.ask({ seq: 9, scrapeMs: 190 }, 200);
  echo.answered(5, 210);
  expect(echo.heard.untilMs).toBe(-Infinity);
  echo.answered(4, 250);
  expect(echo.heard).toEqual({ untilMs: 100, lateMs: 150, sure: true });
  echo.answered(9, 260);
  expect(echo.heard).toEqual({ untilMs: 200, lateMs: 60, sure: true });
});

function entryOf(changes: Partial<LedgerEntry>): LedgerEntry {
  const facts = leaseFacts('x');
  return {
    lease: facts.lease,
    router: null,
    facts,
    sentMs: 100,
    firstTokenMs: null,
    prefillEndMs: null,
    endedMs: null,
    outcome: null,
    usage: null,
    ...changes,
  };
}

describe('the ledger of a past moment', () => {
  test('is told with what has become known since', () => {
    const history = new LedgerHistory();
    const entry = entryOf({});
    history.opened(entry);
    expect(history.momentAt(99)).toEqual({ open: 0, withoutFirstToken: 0 });
    expect(history.momentAt(150)).toEqual({ open: 1, withoutFirstToken: 1 });
    entry.prefillEndMs = 140;
    entry.endedMs = 200;
    history.closedAt(entry, 210);
    expect(history.momentAt(150)).toEqual({ open: 1, withoutFirstToken: 0 });
    expect(history.momentAt(130)).toEqual({ open: 1, withoutFirstToken: 1 });
    expect(history.momentAt(200)).toEqual({ open: 0, withoutFirstToken: 0 });
  });

  test('holds what is dated after it by no more than messages were late', () => {
    const history = new LedgerHistory();
    history.opened(entryOf({ sentMs: 100 }));
    expect(history.momentAt(60, { lateMs: 39, movedMs: 0 }).open).toBe(0);
    expect(history.momentAt(60, { lateMs: 40, movedMs: 0 }).open).toBe(1);
  });

  test.each([
    ['for a second', 1_150, 9_000, 1],
    ['and no longer', 1_250, 9_000, 0],
    ['and while the engine stands still', 9_000, 150, 1],
  ])('holds what was given up before it %s', (_, atMs, movedMs, open) => {
    const history = new LedgerHistory();
    const entry = entryOf({});
    history.opened(entry);
    entry.endedMs = 200;
    entry.outcome = 'aborted';
    history.closedAt(entry, 210);
    expect(history.momentAt(atMs, { lateMs: 0, movedMs }).open).toBe(open);
    entry.outcome = 'complete';
    expect(history.momentAt(atMs, { lateMs: 0, movedMs }).open).toBe(0);
  });
});
