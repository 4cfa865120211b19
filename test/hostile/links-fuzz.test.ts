// Spoilt frames of every kind, and what decodes of them on to the cores: nothing throws, every figure stays a number, and
// what a core says of itself afterwards is a message that its peers understand. Seeded: a failure is the same every time.

import { describe, expect, test } from 'vitest';
import { Harness, POOL, REPLICA as BESIDE } from '../../agent/core.harness.ts';
import { attemptsIn, COMPLETE, CoreRig } from '../../router/regional/core.harness.ts';
import type { RouterEffect } from '../../router/regional/events.ts';
import { seededRandom, type Random } from '../../shared/lib/random.ts';
import type { LinkId } from '../../shared/model/ids.ts';
import {
  decodeAgentMessage,
  decodeRouterMessage,
  encodeAgentMessage,
  encodeRouterMessage,
} from '../../shared/protocol/codec.ts';
import { AGENT_SAMPLES, ROUTER_SAMPLES } from '../fixtures/frames/samples.ts';
import { packed } from './links-peer.ts';

const ROUNDS = 2_000;
const VALUES: readonly unknown[] = [
  ...[0, -0, -1e-9, -1, 0.001, 1, 2, 255, 65_535, 0xffff_ffff, 2 ** 53 - 1, 1e18, 1e300],
  ...[Number.NaN, Number.POSITIVE_INFINITY, null, true, '', 'x', 'a'.repeat(600), [], {}],
];

function pick<T>(random: Random, from: readonly T[]): T {
  return from[Math.floor(random.next() * from.length)] as T;
}

/** A copy with one member, at any depth, replaced, left out or added. */
function spoiltValue(value: unknown, random: Random): unknown {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) {
    return pick(random, VALUES);
  }
  const keys = Object.keys(value);
  if (keys.length === 0 || random.next() < 0.03) return pick(random, VALUES);
  const key = pick(random, keys);
  const inner = (value as Record<string, unknown>)[key];
  const copy = (Array.isArray(value) ? [...value] : { ...value }) as Record<string, unknown>;
  if (random.next() < 0.05) delete copy[key];
  else copy[key] = spoiltValue(inner, random);
  return copy;
}

function spoiltBytes(frame: Uint8Array, random: Random): Uint8Array {
  const copy = Uint8Array.from(frame);
  const edits = 1 + Math.floor(random.next() * 4);
  for (let edit = 0; edit < edits; edit += 1) {
    copy[Math.floor(random.next() * copy.length)] = Math.floor(random.next() * 256);
  }
  const cut = random.next() < 0.1 ? Math.floor(random.next() * copy.length) : copy.length;
  return copy.subarray(0, cut);
}

/** The plain value that a message is on the wire: hash words are bytes there. */
function plain(value: unknown): unknown {
  if (value instanceof Uint32Array) return new Uint8Array(value.buffer);
  if (Array.isArray(value)) return value.map((each) => plain(each));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]));
}

/** No figure anywhere in it has become infinite or none at all. */
function expectNumbers(value: unknown, path: string): void {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new Error(`${path} is ${value}`);
  if (typeof value !== 'object' || value === null) return;
  for (const [key, inner] of Object.entries(value)) expectNumbers(inner, `${path}.${key}`);
}

describe('a router', () => {
  test.each([1, 2, 3])('keeps its books under spoilt frames of an agent (seed %i)', (seed) => {
    const random = seededRandom(seed);
    const rig = new CoreRig({ seed });
    rig.ready('a');
    const samples = AGENT_SAMPLES.filter(({ kind }) => kind === 'report' || kind === 'prefix');
    const open: string[] = [];
    const take = (effects: readonly RouterEffect[]): void => {
      open.push(...attemptsIn(effects).map(({ lease }) => lease));
    };
    let read = 0;
    let links = 0;
    const relink = (): void => {
      links += 1;
      const name = `x${links}`;
      take(rig.link(name, { replicas: ['10.0.0.7:8000'], ranks: 2 }));
    };
    relink();
    for (let round = 0; round < ROUNDS; round += 1) {
      const sample = pick(random, samples);
      const byBytes = sample.kind === 'prefix' || random.next() < 0.2;
      const frame = byBytes
        ? spoiltBytes(encodeAgentMessage(sample), random)
        : packed(spoiltValue(plain(sample), random));
      const decoded = decodeAgentMessage(frame);
      if (decoded.ok && decoded.message.kind !== 'hello') {
        read += 1;
        const link = `x${links}` as LinkId;
        take(rig.handle({ kind: 'message', link, message: decoded.message }));
      }
      if (round % 50 === 0) relink();
      if (round % 3 === 0) take(rig.arrive());
      if (round % 4 === 0 && open.length > 0) take(rig.end(open.shift() ?? ''));
      take(rig.pass(random.next() * 50));
      if (round % 10 === 0) take(rig.report('a'));
      if (round % 25 !== 0) continue;
      const status = rig.core.status(rig.nowMs);
      expect(status.leases).toBe(open.length);
      expectNumbers(status, 'status');
    }
    expect(read).toBeGreaterThan(ROUNDS / 10);
    for (let lease = open.shift(); lease !== undefined; lease = open.shift()) {
      take(rig.end(lease, COMPLETE, true));
    }
    rig.unlink(`x${links}`);
    expect(rig.core.leaseCount()).toBe(open.length);
  });
});

describe('an agent', () => {
  test.each([1, 2, 3])(
    'reports what routers understand under spoilt frames of one (seed %i)',
    (seed) => {
      const random = seededRandom(100 + seed);
      const harness = new Harness({ seed, settings: { calibration: false, linkGraceMs: 1_000 } });
      const good = harness.link('good');
      harness.advance(5_000);
      const samples = ROUTER_SAMPLES.map((message) => ({
        ...message,
        ...('replica' in message ? { replica: BESIDE, rank: 0 } : {}),
        ...('pool' in message ? { pool: POOL } : {}),
      }));
      let bad = harness.link('bad-0');
      let read = 0;
      for (let round = 0; round < ROUNDS; round += 1) {
        const sample = pick(random, samples) as (typeof ROUTER_SAMPLES)[number];
        const frame =
          random.next() < 0.2
            ? spoiltBytes(encodeRouterMessage(sample), random)
            : packed(spoiltValue(plain(sample), random));
        const decoded = decodeRouterMessage(frame);
        if (decoded.ok) {
          read += 1;
          harness.say(bad, decoded.message);
        }
        if (round % 10 === 0) harness.advance(random.next() * 200);
        if (round % 100 !== 99) continue;
        harness.deliver({ kind: 'linkDown', link: bad });
        bad = harness.link(`bad-${round}`);
      }
      expect(read).toBeGreaterThan(ROUNDS / 10);
      harness.deliver({ kind: 'linkDown', link: bad });
      harness.advance(10_000);
      const target = harness.core.status(harness.nowMs).engines[0]?.targets[0];
      expect(target).toMatchObject({ openLeases: 0, waitingRequests: 0 });
      for (const { link, message } of harness.sent.slice(-2_000)) {
        if (link === good)
          expect(decodeAgentMessage(encodeAgentMessage(message))).toMatchObject({ ok: true });
      }
      expect(harness.report(good)).toMatchObject({ phase: 'ready', waitingPrefillTokens: 0 });
    },
  );
});
