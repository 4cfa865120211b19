// Work that no router told of: none where there is none, however late the links are, and right where there is some.

import { describe, expect, test } from 'vitest';
import { ForeignTraffic } from '../../agent/policy/foreign.ts';
import { LedgerHistory } from '../../agent/policy/ledger-history.ts';
import type { LedgerEntry } from '../../agent/policy/ledger.ts';
import { BatchClients } from './batches.ts';
import { ForeignClients } from './foreign.ts';
import { watchReports, type Sample } from './report-watch.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { without } from './without.ts';
import { World, WORLD_MODEL, type WorldOptions } from './world.ts';

/** Requests wait in the engine: four slots, and routers that hold nothing back. */
const CROWDED = { ...DEMO, maxNumSeqs: 4 };
const EAGER = { holdMs: 60_000, firstTokenBaseMs: 60_000 };

/** The most unattributed tokens in any report of 30 s, and how many reports showed requests waiting in the engine. */
function mostUnattributed(seed: number, options: Partial<WorldOptions>) {
  const settings = { seed, profile: CROWDED, replicas: 2, routers: 2, router: EAGER };
  const world = new World({ ...settings, ...options });
  world.runUntilReady();
  let most = 0;
  let waited = 0;
  watchReports(world, ({ report, truth }) => {
    most = Math.max(most, report.unattributedTokens ?? 0);
    if (truth.waiting > 1) waited++;
  });
  const shape = { ...SMALL_TALK, abandonShare: 0.2, streamShare: 0.8 };
  world.clients(shape).closedLoop(24, 2_000);
  world.run(30_000);
  return { most, waited };
}

describe.each([1, 2])('without foreign traffic nothing is unattributed (seed %i)', (seed) => {
  test.each([
    ['with links as they are', { delayMs: 0.3, jitterMs: 0.5 }],
    ['with links that take half a scrape', { delayMs: 400, jitterMs: 200 }],
    ['with links that take two scrapes', { delayMs: 1_800, jitterMs: 200 }],
  ])('%s', (_, links) => {
    const { most, waited } = mostUnattributed(seed, { links });
    expect(waited).toBeGreaterThan(50);
    expect(most).toBe(0);
  });
});

test('the bound fails without asking how far routers have been heard', () => {
  const atOnce = { untilMs: Infinity, lateMs: 0, sure: true };
  const make = (heard: ForeignTraffic['heard']) =>
    function all(this: ForeignTraffic): boolean {
      return heard.call(this, atOnce);
    };
  without(ForeignTraffic.prototype, { name: 'heard', make }, () => {
    const links = { delayMs: 1_800, jitterMs: 200 };
    expect(mostUnattributed(1, { links }).most).toBeGreaterThan(0);
  });
});

/** The same of lists of prompts, each of which an engine counts as so many requests. */
function mostOfBatches(seed: number, streamed: boolean) {
  const world = new World({ seed, profile: CROWDED, replicas: 2, routers: 2, router: EAGER });
  world.runUntilReady();
  let most = 0;
  let waited = 0;
  let running = 0;
  watchReports(world, ({ report, truth }) => {
    most = Math.max(most, report.unattributedTokens ?? 0);
    running = Math.max(running, report.running ?? 0);
    if (truth.waiting > 4) waited++;
  });
  const shape = { prompts: 12, promptTokens: 200, answerTokens: 30, streamed };
  new BatchClients(world.context, world.routers, { model: WORLD_MODEL, ...shape }).closedLoop(
    6,
    500,
  );
  world.run(30_000);
  return { most, waited, running };
}

describe.each([true, false])('lists of prompts, streamed: %s', (streamed) => {
  test('are no foreign traffic', () => {
    const { most, waited, running } = mostOfBatches(1, streamed);
    expect(waited).toBeGreaterThan(50);
    expect(running).toBeGreaterThan(12);
    expect(most).toBe(0);
  });

  test('are where each counts as one request', () => {
    const make = (opened: LedgerHistory['opened']) =>
      function asOne(this: LedgerHistory, entry: LedgerEntry): void {
        Object.assign(entry, { facts: { ...entry.facts, requests: 1 } });
        opened.call(this, entry);
      };
    without(LedgerHistory.prototype, { name: 'opened', make }, () => {
      expect(mostOfBatches(1, streamed).most).toBeGreaterThan(1_000);
    });
  });
});

/** Prompts of about 1,000 tokens from strangers, as many as wait always replaced, beside our own conversations. */
function strangers(seed: number, own: number) {
  const world = new World({ seed, profile: { ...DEMO, maxNumSeqs: 8 }, replicas: 1 });
  world.runUntilReady();
  const [engine] = world.engines;
  const shape = { promptTokens: [900, 1_100], answerTokens: [50, 250] } as const;
  const clients = new ForeignClients(world.context, engine!, shape);
  if (own > 0) world.clients(SMALL_TALK).closedLoop(own, 2_000);
  return { world, clients };
}

const PROMPT = 1_000;

describe.each([
  [1, 0],
  [2, 0],
  [1, 4],
  [2, 4],
])('foreign traffic (seed %i, beside %i conversations of ours)', (seed, own) => {
  test('shows within two scrapes, right within one mean prompt, and is gone two scrapes after', () => {
    const { world, clients } = strangers(seed, own);
    world.run(5_000);
    const errors: number[] = [];
    let largest = 0;
    let settledMs = Infinity;
    let endedMs = Infinity;
    let late = 0;
    const look = ({ atMs, report, truth, inside }: Sample): void => {
      const told = report.unattributedTokens ?? 0;
      if (atMs > endedMs + 2_100) late = Math.max(late, told);
      if (atMs < settledMs || atMs > endedMs || (report.scrapeAgoMs ?? Infinity) > 60) return;
      // In the engine's queue: all that wait there less ours, which the ledger has.
      const ours = (report.waitingPrefillTokens ?? 0) - told;
      largest = Math.max(largest, told);
      const queued = Math.min(inside.tokens - ours, truth.waiting * PROMPT);
      errors.push(Math.abs(told - queued));
    };
    watchReports(world, look);
    clients.closedLoop(20, 500);
    settledMs = world.nowMs + 5_000;
    world.run(25_000);
    clients.leave();
    endedMs = world.nowMs;
    world.run(6_000);
    expect(errors.length).toBeGreaterThan(10);
    expect(largest).toBeGreaterThan(8 * PROMPT);
    errors.sort((a, b) => a - b);
    expect(errors[Math.floor(errors.length / 2)]).toBeLessThan(PROMPT);
    expect(late).toBe(0);
  });
});
