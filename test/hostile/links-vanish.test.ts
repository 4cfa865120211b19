// One side of a link vanishes with ten thousand requests open, in virtual time: what the other holds of them is released
// once, when it is time, and what it says in the meantime is true.

import { describe, expect, test } from 'vitest';
import { Harness, leaseFacts, REPLICA } from '../../agent/core.harness.ts';
import { Ledger } from '../../agent/policy/ledger.ts';
import {
  attemptsIn,
  COMPLETE,
  CoreRig,
  sentTo,
  targetStatus,
} from '../../router/regional/core.harness.ts';
import type { LinkId, RouterId } from '../../shared/model/ids.ts';
import type { OpenLease } from '../../shared/protocol/messages.ts';

const MANY = 10_000;
const GRACE_MS = 10_000;

const leases = (): OpenLease[] =>
  Array.from({ length: MANY }, (_, at) => ({
    ...leaseFacts(`r${at}.1`, { promptTokens: 20, uncachedTokens: 20 }),
    ...{ sentAgoMs: 0, firstTokenAgoMs: null },
  }));
const snapshot = () =>
  ({ kind: 'leases', replica: REPLICA, rank: 0, seq: 0, open: leases() }) as const;

describe('a router that vanishes', () => {
  test('leaves its requests to the agent for the grace, and every report says what is held', () => {
    const harness = new Harness({ settings: { calibration: false, linkGraceMs: GRACE_MS } });
    const good = harness.link('good');
    harness.advance(5_000);
    const gone = harness.link('gone');
    harness.say(gone, snapshot());
    const open = () => harness.core.status(harness.nowMs).engines[0]?.targets[0]?.openLeases;
    harness.advance(100);
    expect(open()).toBe(MANY);
    expect(harness.report(good).waitingPrefillTokens).toBeGreaterThan(MANY * 10);
    // The engine shows that it still holds them: the grace is for a router that only lost its link.
    harness.engine.add({ running: MANY });
    harness.deliver({ kind: 'linkDown', link: gone });
    harness.advance(GRACE_MS - 200);
    expect(open()).toBe(MANY);
    harness.advance(400);
    expect(open()).toBe(0);
    expect(harness.report(good).waitingPrefillTokens).toBe(0);
  });

  test('has each of them released exactly once, whatever comes after', () => {
    const closed = new Map<string, number>();
    const ledger = new Ledger({
      linkGraceMs: GRACE_MS,
      listener: {
        opened: () => undefined,
        firstToken: () => undefined,
        closed: ({ lease }) => void closed.set(lease, (closed.get(lease) ?? 0) + 1),
        full: () => undefined,
      },
    });
    const from = { link: 'a' as LinkId, order: 1, router: 'r' as RouterId };
    ledger.leases(from, snapshot(), 0);
    ledger.linkDown(from.link, 100);
    ledger.expire(100 + GRACE_MS - 1);
    expect(closed.size).toBe(0);
    ledger.expire(100 + GRACE_MS);
    ledger.expire(200 + GRACE_MS);
    ledger.dropOrphans(Infinity, 300 + GRACE_MS);
    ledger.leases(
      { ...from, link: 'b' as LinkId, order: 2 },
      { ...snapshot(), open: [] },
      400 + GRACE_MS,
    );
    expect(closed.size).toBe(MANY);
    expect([...closed.values()].every((times) => times === 1)).toBe(true);
    expect(ledger.openCount()).toBe(0);
  });
});

describe('an agent that vanishes', () => {
  test('leaves the requests with their engines: they end one by one, and a new agent is told of those that are left', () => {
    const settings = { holdMs: 60_000, queueMaxRequests: MANY };
    const rig = new CoreRig({ settings });
    rig.ready('a', { waitingPrefillMs: 0 });
    const open: string[] = [];
    for (let count = 0; count < 2_000; count += 1) {
      for (const { lease } of attemptsIn(rig.arrive())) open.push(lease);
      rig.report('a', { waitingPrefillMs: 0 });
    }
    expect(rig.core.leaseCount()).toBe(open.length);
    rig.unlink('a');
    expect(rig.core.leaseCount()).toBe(open.length);
    for (const lease of open.splice(0, 500)) rig.end(lease, COMPLETE, true);
    const told = sentTo(rig.link('a2', { replicas: ['a'] }), 'a2');
    const held = told.find(({ kind }) => kind === 'leases');
    expect(held?.kind === 'leases' && held.open.length).toBe(open.length);
    for (const lease of open) rig.end(lease, COMPLETE, true);
    expect(rig.core.leaseCount()).toBe(0);
    expect(targetStatus(rig, 'a').leases).toBe(0);
  });
});
