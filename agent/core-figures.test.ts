// What a report makes of figures that only some engines tell, and of those that they do not.

import { describe, expect, test } from 'vitest';
import { FakeEngine, Harness, leaseFacts, REPLICA } from './core.harness.ts';
import { ENGINE_FIGURES } from './policy/engine-figures.ts';
import { AGENT_DEFAULTS } from '../shared/model/settings.ts';
import type { LeaseId, LinkId } from '../shared/model/ids.ts';
import type { ReplicaReport } from '../shared/model/report.ts';

/** An agent whose engine is ready, and a router that has sent its empty snapshot. */
function ready(change: Partial<FakeEngine['rank']> = {}): { h: Harness; link: LinkId } {
  const engine = new FakeEngine();
  engine.rank = { ...engine.rank, ...change };
  const h = new Harness({ engine });
  const link = h.link('a');
  h.advance(15_000);
  h.say(link, { kind: 'leases', replica: REPLICA, rank: 0, seq: 0, open: [] });
  h.advance(1_100);
  return { h, link };
}

function tell(h: Harness, change: Partial<FakeEngine['rank']>): void {
  h.engine.rank = { ...h.engine.rank, ...change };
}

function now(h: Harness): ReplicaReport {
  const report = h.core.status(h.nowMs).engines[0]?.targets[0]?.report;
  if (report === undefined) throw new Error('no target');
  return report;
}

test('a request that came and went between two scrapes tells a token time', () => {
  const { h, link } = ready();
  const { incarnation } = now(h);
  const of = { replica: REPLICA, rank: 0, agoMs: 0 } as const;
  h.say(link, { kind: 'sent', ...of, seq: 1, ...leaseFacts('r1'), incarnation });
  const usage = { promptTokens: 10, cachedTokens: 0, completionTokens: 51 };
  const lease = 'r1' as LeaseId;
  h.say(link, { kind: 'ended', ...of, seq: 2, lease, outcome: 'complete', usage });
  tell(h, { itlSumSeconds: 1, itlCount: 50 });
  h.advance(1_100);
  expect(now(h).itlMs).toBeCloseTo(20);
  tell(h, { itlSumSeconds: 9, itlCount: 60 });
  h.advance(1_100);
  expect(now(h).itlMs).toBeCloseTo(20);
});

describe('waiting prefill that the engine itself counts', () => {
  test('is measured, and what is above the ledger on two scrapes is unattributed', () => {
    const { h } = ready({ waitingPrefillTokens: 0 });
    expect(now(h)).toMatchObject({ waitingPrefillTokens: 0, unattributedTokens: 0 });
    tell(h, { waitingPrefillTokens: 6_000, waiting: 3 });
    h.advance(1_100);
    expect(now(h).waitingPrefillTokens).toBe(0);
    h.advance(1_100);
    const report = now(h);
    expect(report).toMatchObject({ waitingPrefillTokens: 6_000, unattributedTokens: 6_000 });
    expect(report.waitingPrefillMs).toBeGreaterThan(0);
    expect(report.derived).not.toContain('waitingPrefillTokens');
  });

  test('goes on from the ledger between scrapes', () => {
    const { h, link } = ready({ waitingPrefillTokens: 0 });
    const facts = leaseFacts('r1', { promptTokens: 30_000, uncachedTokens: 30_000 });
    const { incarnation } = now(h);
    const sent = { kind: 'sent', replica: REPLICA, rank: 0, seq: 1, agoMs: 0 } as const;
    h.say(link, { ...sent, ...facts, incarnation });
    expect(now(h)).toMatchObject({ waitingPrefillTokens: 30_000, unattributedTokens: 0 });
  });

  test('is derived where the engine does not count it', () => {
    const { h } = ready();
    expect(now(h).derived).toContain('waitingPrefillTokens');
  });
});

describe('the rate of prefill', () => {
  test('is the engine’s own where it counts busy time', () => {
    const { h } = ready({ prefillBusyTokens: 0, prefillBusySeconds: 0 });
    tell(h, { prefillBusyTokens: 12_000, prefillBusySeconds: 2 });
    h.advance(1_100);
    expect(now(h).prefillTps).toBe(6_000);
    expect(now(h).derived).not.toContain('prefillTps');
  });

  test('is the engine’s own rather than what first tokens show, and that rather than a bound', () => {
    const tpsWith = (derived: readonly string[]): number => {
      const { h, link } = ready({ prefillBusyTokens: 0, prefillBusySeconds: 0, derived });
      const { incarnation } = now(h);
      const of = { replica: REPLICA, rank: 0, agoMs: 0 } as const;
      const tokens = { promptTokens: 1_000, cachedTokens: 0, completionTokens: 1 };
      for (let i = 0; i < 5; i += 1) {
        const lease = `r${i}` as LeaseId;
        const facts = leaseFacts(lease, { promptTokens: 1_000, uncachedTokens: 1_000 });
        h.say(link, { kind: 'sent', ...of, seq: 3 * i + 1, ...facts, incarnation });
        h.advance(500);
        h.say(link, { kind: 'firstToken', ...of, seq: 3 * i + 2, lease });
        const ended = { kind: 'ended', outcome: 'complete', usage: tokens } as const;
        h.say(link, { ...ended, ...of, seq: 3 * i + 3, lease });
        h.advance(500);
      }
      tell(h, { prefillBusyTokens: 12_000, prefillBusySeconds: 2 });
      h.advance(3_000);
      return now(h).prefillTps ?? 0;
    };
    expect(tpsWith([])).toBe(6_000);
    expect(tpsWith(['prefillBusyTokens'])).toBeCloseTo(2_000, -2);
  });

  test('is said to be derived where the engine counts cached tokens too', () => {
    const derived = ['prefillBusyTokens'];
    const { h } = ready({ prefillBusyTokens: 0, prefillBusySeconds: 0, derived });
    tell(h, { prefillBusyTokens: 12_000, prefillBusySeconds: 2 });
    h.advance(1_100);
    expect(now(h).prefillTps).toBe(6_000);
    expect(now(h).derived).toContain('prefillTps');
  });
});

describe('limits', () => {
  test('batch slots that the engine tells are measured', () => {
    const { h } = ready({ runningMax: 4 });
    expect(now(h).runningMax).toBe(4);
    expect(now(h).derived).not.toContain('runningMax');
  });

  test('a bound in place of the KV capacity is said to be derived', () => {
    const { h } = ready({ derived: ['kvCapacityTokens'] });
    expect(now(h).derived).toContain('kvCapacityTokens');
  });
});

describe('what the engine does not tell', () => {
  test('is named, and neither zero nor full', () => {
    const { h } = ready({ kvUsageRatio: null, preemptionsTotal: null });
    expect(now(h).absent).toEqual(['kvUsageRatio', 'preemptionsTotal']);
    expect(now(h)).toMatchObject({ kvUsageRatio: null, preemptionsPerMin: null });
  });

  test('is everything before the first scrape', () => {
    const engine = new FakeEngine();
    engine.mode = 'refused';
    const h = new Harness({ engine });
    h.advance(5_000);
    expect(now(h).absent).toEqual([...ENGINE_FIGURES]);
  });
});

describe('an engine that says that it does not serve', () => {
  test('is loading while it says so, and then another life', () => {
    const engine = new FakeEngine();
    engine.mode = 'loading';
    engine.startTimeSeconds = null;
    const h = new Harness({ engine });
    h.link('a');
    h.advance(5_000);
    expect(now(h).phase).toBe('loading');
    engine.mode = 'up';
    h.advance(15_000);
    expect(now(h).phase).toBe('ready');
    const { incarnation } = now(h);
    engine.mode = 'loading';
    h.advance(AGENT_DEFAULTS.scrapeIntervalMs + 100);
    expect(now(h).phase).toBe('loading');
    engine.mode = 'up';
    h.advance(15_000);
    expect(now(h).phase).toBe('ready');
    expect(now(h).incarnation).not.toBe(incarnation);
  });

  test('is unfit while it stops, and fit again only after good probes, the same life', () => {
    const { h } = ready();
    const { incarnation } = now(h);
    h.engine.mode = 'stopping';
    h.advance(60_000);
    expect(now(h)).toMatchObject({ phase: 'degraded', incarnation });
    expect(h.logs.filter((code) => code === 'engine_unready')).toHaveLength(1);
    h.engine.mode = 'up';
    h.advance(60_000);
    expect(now(h)).toMatchObject({ phase: 'ready', incarnation });
  });
});
