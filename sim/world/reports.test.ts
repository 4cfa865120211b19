// Reports and what a router adds to them: no request counted twice, none missed, whatever links do.

import { expect, test } from 'vitest';
import type { LinkId } from '../../shared/model/ids.ts';
import type { Clients } from './clients.ts';
import { Faults } from './faults.ts';
import { LedgerOracle } from './ledger-oracle.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World } from './world.ts';

const SEEDS = [1, 2, 3, 4, 5, 6];
/** Users' requests only: probes would count as work of the agent's own. */
const UNPROBED = { probeIntervalMs: 1e9, silentMinMs: 1e9 };

function worldOf(seed: number, routers: number): World {
  return new World({
    seed,
    profile: DEMO,
    replicas: 3,
    routers,
    links: { delayMs: 5, jitterMs: 60 },
    agent: UNPROBED,
    router: { holdMs: 400, firstTokenBaseMs: 60_000 },
  });
}

function begin(world: World): Clients {
  world.runUntilReady();
  const clients = world.clients({ ...SMALL_TALK, abandonShare: 0.2 });
  clients.closedLoop(40, 2_000);
  const untilMs = world.nowMs + 30_000;
  new Faults(world, { kinds: ['linkCut', 'linkHold'], everyMs: 300, lastMs: 3_000, untilMs });
  return clients;
}

test.each(SEEDS)('a report shows what the acknowledged messages add up to (seed %i)', (seed) => {
  const world = worldOf(seed, 1);
  const [router] = world.routers;
  const oracle = new LedgerOracle();
  let compared = 0;
  let busy = 0;
  router!.onSend = (link, message) => oracle.sent(link, message);
  router!.onReceive = (link, message) => {
    if (message.kind !== 'report') return;
    const expected = oracle.reportedTokens(link, message.report);
    if (expected === null || message.report.phase !== 'ready') return;
    const { waitingPrefillTokens, unattributedTokens } = message.report;
    expect((waitingPrefillTokens ?? 0) - (unattributedTokens ?? 0)).toBeCloseTo(expected, 6);
    compared++;
    if (expected > 0) busy++;
  };
  begin(world);
  world.run(35_000);
  expect(compared).toBeGreaterThan(500);
  expect(busy).toBeGreaterThan(100);
});

test.each(SEEDS)('a router adds to a report only what it has sent since (seed %i)', (seed) => {
  const world = worldOf(seed, 1);
  const router = world.routers[0]!;
  const oracle = new LedgerOracle();
  /** Of the link on which the replica's newest `leases` went out: what it has acknowledged. */
  const newest = new Map<string, { link: LinkId; ackedSeq: number }>();
  router.onSend = (link, message) => {
    oracle.sent(link, message);
    if (message.kind === 'leases') newest.set(message.replica, { link, ackedSeq: -1 });
  };
  router.onReceive = (link, message) => {
    const seen = message.kind === 'report' ? newest.get(message.report.replica) : undefined;
    if (message.kind === 'report' && seen?.link === link) seen.ackedSeq = message.report.ackedSeq;
  };
  let compared = 0;
  world.context.addCheck(() => {
    for (const { replica } of world.engines) {
      const seen = newest.get(replica);
      const target = router.target(replica);
      if (seen === undefined || seen.ackedSeq < 0) continue;
      if (target?.phase !== 'ready' || !router.connected(replica)) continue;
      const { waitingPrefillTokens, unattributedTokens } = target.report!;
      const reported = (waitingPrefillTokens ?? 0) - (unattributedTokens ?? 0);
      const expected = oracle.viewTokens(seen.link, replica, seen.ackedSeq);
      expect(reported + target.unacked.uncachedTokens).toBeCloseTo(expected, 6);
      compared++;
    }
  });
  begin(world);
  world.run(35_000);
  expect(compared).toBeGreaterThan(5_000);
});

test.each(SEEDS)(
  'when the links are quiet, every router sees the work of all (seed %i)',
  (seed) => {
    const world = worldOf(seed, 2);
    const clients = begin(world);
    world.run(31_000);
    for (const engine of world.engines) engine.freeze();
    clients.stop();
    world.run(3_500);
    for (const agent of world.agents) for (const link of agent.links) link.release();
    world.run(3_000);
    let total = 0;
    for (const engine of world.engines) {
      const views = world.routers.map((router) => {
        const target = router.target(engine.replica)!;
        const { waitingPrefillTokens, unattributedTokens } = target.report!;
        expect(target.unacked.requests).toBe(0);
        return (waitingPrefillTokens ?? 0) - (unattributedTokens ?? 0);
      });
      expect(views[0]).toBe(views[1]);
      const leases = world.routers.map((router) => router.target(engine.replica)!.leases);
      const held = world.agents
        .flatMap((agent) => agent.core!.status(world.nowMs).engines)
        .find(({ replica }) => replica === engine.replica)!;
      expect(held.targets[0]!.openLeases).toBe(leases[0]! + leases[1]!);
      total += held.targets[0]!.openLeases;
    }
    expect(total).toBeGreaterThan(0);
  },
);
