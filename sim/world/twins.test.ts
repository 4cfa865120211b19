// Two worlds with the same seed, in one of which an agent or a router restarts: once it is back, nobody can tell.

import { expect, test } from 'vitest';
import type { RequestId } from '../../shared/model/ids.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import { chainOf, segmentOf } from '../workloads/synthetic-prompt.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World, WORLD_MODEL, type WorldOptions } from './world.ts';

const SEEDS = [1, 2, 3];

/** No jitter and nothing held back: what is sent where does not depend on what is known meanwhile. */
function worldOf(seed: number, options: Partial<WorldOptions>): World {
  const world = new World({
    seed,
    profile: { ...DEMO, jitterRatio: 0 },
    replicas: 1,
    routers: 1,
    links: { delayMs: 0.5, jitterMs: 0 },
    router: { holdMs: 1e9 },
    ...options,
  });
  world.runUntilReady();
  world.clients(SMALL_TALK, { routers: world.routers.slice(0, 1) }).closedLoop(12, 2_000);
  world.run(20_000);
  return world;
}

function reportOf(world: World, index = 0) {
  return world.agents[index]!.core!.status(world.nowMs).engines[0]!.targets[0]!.report;
}

function near(value: number | null, twin: number | null, slack: number): void {
  expect(Math.abs(value! - twin!)).toBeLessThanOrEqual(slack);
}

const AGENT_CASES = SEEDS.flatMap((seed) => [
  { seed, tellsStartTime: true },
  { seed, tellsStartTime: false },
]);

test.each(AGENT_CASES)(
  'a restarted agent changes no figure: $seed, start time $tellsStartTime',
  (given) => {
    const world = worldOf(given.seed, { tellsStartTime: given.tellsStartTime });
    const twin = worldOf(given.seed, { tellsStartTime: given.tellsStartTime });
    world.agents[0]!.stop();
    world.run(300);
    world.agents[0]!.start();
    world.run(3_700);
    twin.run(4_000);
    let waited = 0;
    for (let look = 0; look < 20; look++) {
      world.run(150);
      twin.run(150);
      const [report, other] = [reportOf(world), reportOf(twin)];
      expect(report.phase).toBe('ready');
      expect(report.incarnation).toBe(other.incarnation);
      expect(report.running).toBe(other.running);
      expect(report.unattributedTokens).toBe(0);
      near(report.waitingPrefillTokens, other.waitingPrefillTokens, 64);
      near(report.waitingPrefillMs, other.waitingPrefillMs, 5 + 0.12 * other.waitingPrefillMs!);
      near(report.kappa, other.kappa, 0.03);
      near(report.bytesPerToken!.mean, other.bytesPerToken!.mean, 0.01);
      const [curve, otherCurve] = [report.prefillCost!, other.prefillCost!];
      near(curve.linearMsPerToken, otherCurve.linearMsPerToken, 0.1 * otherCurve.linearMsPerToken);
      const { replica } = world.engines[0]!;
      const chunks = world.routers[0]!.target(replica)!.indexChunks;
      near(chunks, twin.routers[0]!.target(replica)!.indexChunks, 2);
      waited += other.waitingPrefillTokens! > 0 ? 1 : 0;
    }
    expect(waited).toBeGreaterThan(2);
    // No calibration: the restarted agent took the curve from the router.
    expect(world.agents[0]!.counts.get('engine_resumed')).toBe(1);
  },
);

/** A prompt that extends nothing. */
function question(id: number): RouteRequest {
  const segment = segmentOf({ id, tokens: 900, bytesPerToken: 4.3, assistant: false });
  const chain = chainOf([segment], 0);
  return {
    id: `question-${id}` as RequestId,
    tenant: 'tenant-0',
    model: WORLD_MODEL,
    stream: true,
    priority: 0,
    maxTokens: 50,
    clientDeadlineMs: null,
    bodyBytes: chain.bytes,
    prompts: [chain],
  };
}

test.each(SEEDS)('a restarted router has the whole picture again (seed %i)', (seed) => {
  const options = { replicas: 3, routers: 2 } as const;
  const world = worldOf(seed, options);
  const twin = worldOf(seed, options);
  world.routers[1]!.stop();
  world.run(500);
  world.routers[1]!.start();
  world.run(3_500);
  twin.run(4_000);
  for (let look = 0; look < 20; look++) {
    world.run(150);
    twin.run(150);
    const [router, other] = [world.routers[1]!, twin.routers[1]!];
    for (const { replica } of world.engines) {
      const [target, its] = [router.target(replica)!, other.target(replica)!];
      expect(target.phase).toBe(its.phase);
      expect(target.incarnation).toBe(its.incarnation);
      near(target.indexChunks, its.indexChunks, 3);
      near(target.report!.kappa, its.report!.kappa, 1e-9);
      expect(target.report!.prefillCost).toEqual(its.report!.prefillCost);
    }
    for (let index = 0; index < 3; index++) {
      near(reportOf(world, index).waitingPrefillMs, reportOf(twin, index).waitingPrefillMs, 1e-9);
    }
  }
  const decision = world.routers[1]!.core!.explain(question(1), world.nowMs);
  expect(decision).toMatchObject({ kind: 'send' });
  expect(decision.candidates).toHaveLength(3);
  const expected = twin.routers[1]!.core!.explain(question(1), twin.nowMs);
  decision.candidates.forEach(({ costMs }, at) => near(costMs, expected.candidates[at]!.costMs, 2));
});
