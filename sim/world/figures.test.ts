// The other figures of a report against the engine model: rates, slots, token times, KV, working set.

import { describe, expect, test } from 'vitest';
import type { EngineProfile } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import { H100 } from './derivation-loads.ts';
import { ForeignClients } from './foreign.ts';
import { quantile, sum } from './recorder.ts';
import { watchReports } from './report-watch.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

function reportOf(world: World) {
  return world.agents[0]!.core!.status(world.nowMs).engines[0]!.targets[0]!.report;
}

/** One replica under a closed loop, and tokens per second of its steps with prefill since 10 s after the load began. */
function busy(
  seed: number,
  of: { profile: EngineProfile; shape: ConversationShape; count: number },
) {
  const world = new World({ seed, profile: of.profile, replicas: 1 });
  const steps: { readonly tokens: number; readonly ms: number; readonly endMs: number }[] = [];
  world.engines[0]!.model.onStep = ({ prefillTokens: tokens, startMs, endMs }) => {
    if (tokens > 0) steps.push({ tokens, ms: endMs - startMs, endMs });
  };
  world.runUntilReady();
  const clients = world.clients(of.shape);
  clients.closedLoop(of.count, 2_000);
  const fromMs = world.nowMs + 10_000;
  world.run(40_000);
  const late = steps.filter(({ endMs }) => endMs >= fromMs);
  const tps = (1_000 * sum(late.map(({ tokens }) => tokens))) / sum(late.map(({ ms }) => ms));
  return { world, clients, tps };
}

const WARM: ConversationShape = {
  ...SMALL_TALK,
  turns: [6, 12],
  systemTokens: 2_000,
  systemShare: 1,
};
const MIXED: readonly (readonly [string, EngineProfile, ConversationShape, number])[] = [
  ['short conversations', DEMO, SMALL_TALK, 24],
  ['conversations that find most of their prompts cached', DEMO, WARM, 24],
  ['half not streamed', DEMO, { ...SMALL_TALK, streamShare: 0.5 }, 24],
  ['more prompts than it can prefill', DEMO, { ...SMALL_TALK, firstTokens: [1_000, 6_000] }, 24],
  ['long prompts', H100, { ...CHAT_SHAPE, firstTokens: [5_000, 60_000], turns: [1, 3] }, 12],
];

describe.each(MIXED)('prefill rate under %s', (_, profile, shape, count) => {
  test.each([1, 2])('is within 10 % of what steps computed (seed %i)', (seed) => {
    const { world, clients, tps } = busy(seed, { profile, shape, count });
    const told = reportOf(world).prefillTps!;
    expect(Math.abs(told / tps - 1)).toBeLessThan(0.1);
    clients.stop();
    world.run(20_000);
    const last = reportOf(world).prefillTps!;
    world.run(60_000);
    expect(reportOf(world).prefillTps).toBe(last);
  });
});

test('short prompts alone do not make an engine look slow', () => {
  const world = new World({ seed: 1, profile: DEMO, replicas: 1 });
  world.runUntilReady();
  const before = reportOf(world).prefillTps!;
  const shape = { ...SMALL_TALK, firstTokens: [20, 100], turns: [1, 1] } as const;
  world.clients(shape).closedLoop(3, 1_000);
  world.run(20_000);
  expect(reportOf(world).prefillTps! / before).toBeGreaterThan(0.9);
  expect(reportOf(world).prefillTps! / before).toBeLessThan(1.1);
});

describe('batch slots', () => {
  test.each([1, 2, 3])(
    'are learned, and the wait for one is told within one answer (seed %i)',
    (seed) => {
      const profile = { ...DEMO, maxNumSeqs: 8 };
      const world = new World({ seed, profile, replicas: 1, router: { holdMs: 60_000 } });
      world.runUntilReady();
      const shape = { ...SMALL_TALK, answerTokens: [100, 300], firstTokens: [100, 600] } as const;
      world.clients(shape).closedLoop(16, 2_000);
      world.run(15_000);
      const told: { readonly atMs: number; readonly waitMs: number }[] = [];
      watchReports(world, ({ atMs, report }) => {
        told.push({ atMs, waitMs: report.slotWaitMs ?? Number.NaN });
        expect([8, 9]).toContain(report.runningMax);
      });
      const fromMs = world.nowMs;
      world.run(30_000);
      const errors: number[] = [];
      for (const { sentMs, firstTokenMs, promptTokens } of world.recorder.complete(fromMs)) {
        const last = told.findLast(({ atMs }) => atMs <= sentMs!);
        if (last === undefined || firstTokenMs === null) continue;
        const prefillMs = profile.prefillStepMs + profile.linearMsPerToken * promptTokens;
        const waitedMs = Math.max(0, firstTokenMs - sentMs! - prefillMs);
        errors.push(Math.abs(last.waitMs - waitedMs));
      }
      const answerMs = 200 * reportOf(world).itlMs!;
      expect(errors.length).toBeGreaterThan(50);
      expect(quantile(errors, 0.5)).toBeLessThan(answerMs / 2);
      expect(quantile(errors, 0.9)).toBeLessThan(answerMs);
    },
  );
});

test.each([1, 2])("token time is that of the last seconds' tokens (seed %i)", (seed) => {
  const world = new World({ seed, profile: DEMO, replicas: 1 });
  world.runUntilReady();
  world.clients(SMALL_TALK).closedLoop(12, 2_000);
  world.run(10_000);
  const ratios: number[] = [];
  for (let index = 0; index < 6; index++) {
    const { sum: beforeS, count: before } = world.engines[0]!.model.stats.interTokenLatency;
    world.run(8_000);
    const { sum: afterS, count: after } = world.engines[0]!.model.stats.interTokenLatency;
    const trueMs = (1_000 * (afterS - beforeS)) / (after - before);
    ratios.push(reportOf(world).itlMs! / trueMs);
  }
  expect(Math.max(...ratios)).toBeLessThan(1.35);
  expect(Math.min(...ratios)).toBeGreaterThan(0.7);
});

test('KV use and preemptions are those of the engine, and begin anew with it', () => {
  const profile = { ...DEMO, kvBlocks: 600 };
  const world = new World({ seed: 1, profile, replicas: 1, router: { workingSetBound: null } });
  world.runUntilReady();
  const clients = world.clients({ ...SMALL_TALK, answerTokens: [200, 600] });
  clients.closedLoop(20, 2_000);
  const engine = world.engines[0]!;
  world.run(30_000);
  const { preemptionsPerMin, preemptionsTotal, kvUsageRatio } = reportOf(world);
  expect(preemptionsTotal).toBeGreaterThan(3);
  expect(Math.abs(preemptionsTotal! - engine.model.stats.preemptions)).toBeLessThanOrEqual(2);
  expect(preemptionsPerMin).toBe(preemptionsTotal);
  expect(kvUsageRatio).toBeGreaterThan(0.5);
  clients.stop();
  world.run(90_000);
  expect(reportOf(world).preemptionsPerMin).toBe(0);
  engine.restart(1_000);
  world.run(20_000);
  const anew = reportOf(world);
  expect(anew.phase).toBe('ready');
  expect([anew.preemptionsTotal, anew.preemptionsPerMin, anew.unattributedTokens]).toEqual([
    0, 0, 0,
  ]);
  expect(anew.waitingPrefillMs).toBe(0);
});

test.each([1, 2])(
  'the working set is the distinct tokens of the conversations that go on (seed %i)',
  (seed) => {
    const world = new World({ seed, profile: { ...DEMO, kvBlocks: 16_384 }, replicas: 1 });
    world.runUntilReady();
    const systemTokens = 1_500;
    const shape = { ...SMALL_TALK, systemTokens, systemShare: 1, turns: [200, 200] } as const;
    const clients = world.clients({ ...shape, thinkMs: [300, 1_000], answerTokens: [20, 60] });
    clients.closedLoop(10, 1_000);
    const ratios: number[] = [];
    for (let index = 0; index < 4; index++) {
      world.run(5_000);
      const held = new Map<number, number>();
      for (const row of world.recorder.rows) {
        const answered = row.end?.kind === 'complete' ? row.end.usage.completionTokens : 0;
        const tokens = row.promptTokens + answered - systemTokens;
        held.set(row.conversation, Math.max(tokens, held.get(row.conversation) ?? 0));
      }
      ratios.push(reportOf(world).workingSetTokens! / (sum([...held.values()]) + systemTokens));
    }
    expect(Math.min(...ratios.slice(1))).toBeGreaterThan(0.9);
    expect(Math.max(...ratios.slice(1))).toBeLessThan(1.1);
  },
);

test.each([1, 2])('a flood does not run away while slots are not learned yet (seed %i)', (seed) => {
  const world = new World({ seed, profile: DEMO, replicas: 2 });
  world.runUntilReady();
  const shape = { ...SMALL_TALK, firstTokens: [20, 100], answerTokens: [300, 600] } as const;
  world.clients({ ...shape, turns: [1, 1] }).openLoop(60);
  let most = 0;
  for (let index = 0; index < 40; index++) {
    world.run(500);
    for (const engine of world.engines) most = Math.max(most, engine.truth.openRequests);
  }
  expect(most).toBeGreaterThan(DEMO.maxNumSeqs);
  expect(most).toBeLessThan(2 * DEMO.maxNumSeqs);
  expect([DEMO.maxNumSeqs, DEMO.maxNumSeqs + 1]).toContain(reportOf(world).runningMax);
});

/** As an SGLang that counts waiting prefill, off by `off` tokens, and its busy time itself. */
function tells(world: World, off = 0): void {
  for (const engine of world.engines) {
    let prefillBusyTokens = 0;
    let prefillBusySeconds = 0;
    engine.model.onStep = ({ prefillTokens, startMs, endMs }) => {
      if (prefillTokens === 0) return;
      prefillBusyTokens += prefillTokens;
      prefillBusySeconds += (endMs - startMs) / 1_000;
    };
    const scrape = engine.scrape.bind(engine);
    engine.scrape = () => {
      const result = scrape();
      if (result.kind !== 'ok') return result;
      const waitingPrefillTokens = engine.truth.waitingPrefillTokens + off;
      const told = { waitingPrefillTokens, prefillBusyTokens, prefillBusySeconds };
      const ranks = result.scrape.ranks.map((rank) => ({ ...rank, ...told }));
      return { ...result, scrape: { ...result.scrape, ranks } };
    };
  }
}

describe('an engine that counts for itself', () => {
  test.each([1, 2])('is believed, within one prefill at every report (seed %i)', (seed) => {
    const world = new World({ seed, profile: DEMO, replicas: 2, routers: 2 });
    tells(world);
    world.runUntilReady();
    world.clients(SMALL_TALK).closedLoop(24, 2_000);
    world.run(4_000);
    let busy = 0;
    watchReports(world, ({ report, truth, largest, onTheWay }) => {
      expect(report.unattributedTokens).toBe(0);
      expect(report.derived).not.toContain('waitingPrefillTokens');
      const mostMs = Math.max(largest.ms, report.largestPrefillMs ?? 0) + onTheWay.ms + 1;
      const error = Math.abs(report.waitingPrefillMs! - truth.waitingPrefillMs);
      expect(error).toBeLessThanOrEqual(mostMs);
      if (truth.waitingPrefillMs > 5) busy++;
    });
    world.run(20_000);
    expect(busy).toBeGreaterThan(100);
    expect(reportOf(world).derived).not.toContain('prefillTps');
  });

  test.each([
    [0, undefined],
    [20_000, 1],
  ])('is said once to disagree with the ledger (off by %i tokens)', (off, times) => {
    const world = new World({ seed: 1, profile: DEMO, replicas: 1 });
    tells(world, off);
    world.runUntilReady();
    world.clients(SMALL_TALK).closedLoop(8, 1_000);
    world.run(10_000);
    expect(world.agents[0]!.counts.get('ledger_disagrees')).toBe(times);
    expect(reportOf(world).unattributedTokens).toBe(0);
  });

  test('tells of strangers by the token', () => {
    const world = new World({ seed: 1, profile: { ...DEMO, maxNumSeqs: 4 }, replicas: 1 });
    tells(world);
    world.runUntilReady();
    const shape = { promptTokens: [500, 3_000], answerTokens: 200 } as const;
    const strangers = new ForeignClients(world.context, world.engines[0]!, shape);
    strangers.closedLoop(16, 500);
    world.run(6_000);
    let checked = 0;
    watchReports(world, ({ report, truth, largest }) => {
      if (strangers.open === 0 || (report.scrapeAgoMs ?? 0) > 60) return;
      const error = Math.abs((report.unattributedTokens ?? 0) - truth.waitingPrefillTokens);
      expect(error).toBeLessThanOrEqual(2 * largest.tokens);
      checked++;
    });
    world.run(10_000);
    strangers.leave();
    world.run(4_000);
    expect(checked).toBeGreaterThan(5);
    expect(reportOf(world).unattributedTokens).toBe(0);
  });
});

test('prompts that nobody goes on from are no working set, and wait for no KV room', () => {
  const served = ([true, false] as const).map((on) => {
    const profile = { ...DEMO, kvBlocks: 2_048 };
    const router = on ? {} : { workingSetBound: null };
    const world = new World({ seed: 1, profile, replicas: 1, router });
    world.runUntilReady();
    world.clients({ ...SMALL_TALK, turns: [1, 1], thinkMs: [0, 100] }).closedLoop(12, 500);
    world.run(45_000);
    const { workingSetTokens } = reportOf(world);
    expect(workingSetTokens).toBeLessThan(0.8 * 32_768);
    return world.recorder.complete().length;
  });
  expect(served[0]! / served[1]!).toBeGreaterThan(0.97);
  expect(served[1]!).toBeGreaterThan(100);
});
