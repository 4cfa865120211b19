// Everything at once: replicas of different speed and KV size, several routers, turns and single requests, priorities,
// tenants, deadlines, clients that leave, answers that are not streamed, embeddings, bursts, and faults of every kind.
// Nothing of it may outlast it, and nobody waits beyond the limit.

import { expect, test } from 'vitest';
import { ENGINE_PROFILES, type EngineProfile } from '../engine/profiles.ts';
import { CHAT_SHAPE } from '../workloads/conversations.ts';
import { Faults, type Fault } from './faults.ts';
import { FlowClients, type Flow } from './overload.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

const SMALL: EngineProfile = { ...DEMO, kvBlocks: 1_024 };
const SLOW: EngineProfile = { ...DEMO, linearMsPerToken: 0.4, kvBlocks: 2_048 };
const FEW_SLOTS: EngineProfile = { ...DEMO, maxNumSeqs: 4 };
const OTHER: EngineProfile = { ...ENGINE_PROFILES['cpu-tiny-llama']!, loadingMs: 500 };

const FAULTS: readonly Fault[] = [
  ...(['engineCrash', 'coreDeath', 'engineFreeze', 'engineSlow', 'engineUnreachable'] as const),
  ...(['linkCut', 'linkHold', 'agentRestart', 'routerRestart'] as const),
];
const FLOWS: readonly Flow[] = [
  {
    name: 'single',
    perS: 6,
    promptTokens: [200, 3_000],
    answerTokens: [2, 40],
    priority: 3,
    tries: 3,
  },
  {
    ...{ name: 'urgent', perS: 2, promptTokens: [100, 600], answerTokens: [2, 20] },
    ...{ priority: -1, tenant: 'urgent', clientDeadlineMs: 5_000 },
  },
  {
    ...{ name: 'embedding', perS: 1, promptTokens: [500, 4_000], answerTokens: [0, 0] },
    ...{ streamed: false, work: 'prefill', priority: 2 },
  },
];
const LOAD_MS = 20_000;
const QUEUE_MAX_WAIT_MS = 8_000;
/** Events of all cores in a second: several times what these worlds have. One that spins has more. */
const EVENTS_PER_S = 20_000;
/** ms of real time that a busy machine may take. */
const PATIENCE_MS = 120_000;

test.each([
  { seed: 1, routers: 2, profiles: [DEMO, SMALL, FEW_SLOTS], faults: true },
  { seed: 2, routers: 8, profiles: [SMALL, SLOW], faults: true },
  { seed: 3, routers: 4, profiles: [OTHER, DEMO], faults: false },
])(
  'nothing outlasts a region where all happens at once (seed $seed, $routers routers)',
  (options) => {
    const { seed, routers, profiles } = options;
    const world = new World({
      ...{ seed, routers, profile: DEMO, profiles, replicas: 6, enginesPerAgent: 2 },
      router: { queueMaxWaitMs: QUEUE_MAX_WAIT_MS },
    });
    world.runUntilReady();
    const patient = world.clients({
      ...{
        ...CHAT_SHAPE,
        systemTokens: 600,
        systemPrompts: 3,
        systemShare: 0.3,
        thinkMs: [500, 4_000],
      },
      ...{ streamShare: 0.7, abandonShare: 0.1, tenants: 3 },
    });
    patient.closedLoop(60, 4_000);
    const hurried = world.clients(SMALL_TALK, { clientDeadlineMs: 2_000 });
    hurried.closedLoop(18, 4_000);
    const single = new FlowClients(world);
    single.start(...FLOWS);
    const untilMs = world.nowMs + LOAD_MS;
    if (options.faults)
      new Faults(world, { kinds: FAULTS, everyMs: 1_500, lastMs: 4_000, untilMs });
    for (let leftMs = LOAD_MS; leftMs > 0; leftMs -= 1_000) {
      if (leftMs === LOAD_MS / 2) single.burst(FLOWS[0]!, 100);
      const before = world.context.log.lines;
      world.run(1_000);
      expect(world.context.log.lines - before).toBeLessThan(EVENTS_PER_S);
      expect(longestWaitMs(world)).toBeLessThan(QUEUE_MAX_WAIT_MS + 1_000);
    }
    for (const clients of [patient, hurried, single]) clients.stop();
    world.run(60_000);
    expect(world.recorder.ends()['open']).toBeUndefined();
    expect(world.recorder.complete().length).toBeGreaterThan(100);
    expect(single.rows.filter(({ end }) => end === null)).toEqual([]);
    expectQuiet(world);
  },
  PATIENCE_MS,
);

function longestWaitMs(world: World): number {
  const pools = world.routers.flatMap(({ core }) => core?.status(world.nowMs).pools ?? []);
  return Math.max(0, ...pools.map(({ queue }) => queue.oldestMs ?? 0));
}

function expectQuiet(world: World): void {
  world.run(1_500);
  // An agent's own probe is work, too: looked at is a moment that knows of none.
  for (let stillMs = 0, k = 0; stillMs < 500 && k < 1_000; k += 1) {
    world.run(10);
    stillMs = world.engines.some(({ openCalls }) => openCalls > 0) ? 0 : stillMs + 10;
  }
  for (const { core, openRequests } of world.routers) {
    expect([core?.leaseCount(), openRequests]).toEqual([0, 0]);
    for (const { queue, ready, replicas } of core!.status(world.nowMs).pools) {
      expect(queue).toMatchObject({ requests: 0, bytes: 0, prefillMs: 0 });
      expect(ready).toBe(world.engines.length);
      for (const { leases, unacked, report } of replicas.flatMap(({ targets }) => targets)) {
        expect([leases, unacked.requests]).toEqual([0, 0]);
        expect(report).toMatchObject({ running: 0, waitingPrefillTokens: 0 });
        expect(report?.queued).toMatchObject({ requests: 0, routersQueueing: 0 });
      }
    }
  }
  for (const { truth } of world.engines) {
    expect(truth).toMatchObject({ openRequests: 0, heldBlocks: 0 });
  }
}
