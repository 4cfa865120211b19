// An agent with a good credential that says what cannot be, or too much of it.

import { describe, expect, test } from 'vitest';
import type { PoolId } from '../../shared/model/ids.ts';
import {
  attemptIn,
  attemptsIn,
  chainOf,
  CoreRig,
  MODEL,
  refusalIn,
  sentTo,
  targetStatus,
} from './core.harness.ts';
import type { RouterEffect } from './events.ts';

const limitsIn = (effects: readonly RouterEffect[]): string[] =>
  effects.flatMap((effect) => (effect.kind === 'limit' ? [effect.limit] : []));
const closesIn = (effects: readonly RouterEffect[]): string[] =>
  effects.flatMap((effect) => (effect.kind === 'close' ? [`${effect.link} ${effect.reason}`] : []));

describe('a hello', () => {
  test('brings as many targets as a machine may have, and the rest is counted', () => {
    const rig = new CoreRig();
    const replicas = Array.from({ length: 10 }, (_, at) => `r${at}`);
    const effects = rig.link('a', { replicas, ranks: 64 });
    expect(limitsIn(effects)).toEqual(['link_targets']);
    const ids = rig.core.status(rig.nowMs).pools[0]?.replicas.map(({ id }) => id);
    expect(ids).toEqual(['r0', 'r1', 'r2', 'r3']);
  });
});

describe('a replica of another pool', () => {
  const pools = [
    { id: 'pool' as PoolId, models: [MODEL], aliases: {} },
    { id: 'other' as PoolId, models: ['other'], aliases: {} },
  ];

  test('stays while its agent is linked, and is given over when that one has left', () => {
    const rig = new CoreRig({ pools });
    rig.ready('a');
    const effects = rig.link('b', { replicas: ['a'], pool: 'other' });
    expect(limitsIn(effects)).toEqual(['pool_move']);
    expect(sentTo(effects, 'b').map(({ kind }) => kind)).toEqual(['welcome', 'fence']);
    expect(targetStatus(rig, 'a').link).toBe('fresh');
    expect(limitsIn(rig.report('a', { phase: 'dead' }, 'b'))).toEqual(['foreign_report']);
    expect(closesIn(rig.unlink('a'))).toEqual(['b fenced']);
    rig.unlink('b');
    rig.link('b2', { replicas: ['a'], pool: 'other' });
    const found = rig.core.status(rig.nowMs).pools.map(({ replicas }) => replicas.length);
    expect(found).toEqual([0, 1]);
  });

  test('is asked for again while its requests end', () => {
    const rig = new CoreRig({ pools });
    rig.ready('a');
    const { lease } = attemptIn(rig.arrive());
    rig.unlink('a');
    const effects = rig.link('b', { replicas: ['a'], pool: 'other' });
    expect(closesIn(effects)).toEqual(['b fenced']);
    rig.unlink('b');
    rig.end(lease);
    expect(closesIn(rig.link('b2', { replicas: ['a'], pool: 'other' }))).toEqual([]);
    expect(rig.core.leaseCount()).toBe(0);
  });
});

describe('a report', () => {
  test('older than one before it on its link is dropped; a new link counts anew', () => {
    const rig = new CoreRig();
    rig.ready('a', { seq: 7 });
    expect(limitsIn(rig.report('a', { seq: 6, phase: 'dead' }))).toEqual(['report_order']);
    expect(targetStatus(rig, 'a').phase).toBe('ready');
    rig.unlink('a');
    rig.link('a2', { replicas: ['a'] });
    expect(limitsIn(rig.report('a', { seq: 1 }, 'a2'))).toEqual([]);
  });

  test('that has seen what was never sent acknowledges nothing', () => {
    const rig = new CoreRig();
    rig.ready('a');
    attemptIn(rig.arrive());
    expect(limitsIn(rig.report('a', { ackedSeq: 2 }))).toEqual(['ack_beyond']);
    expect(targetStatus(rig, 'a').unacked.requests).toBe(1);
    expect(limitsIn(rig.report('a', { ackedSeq: 1 }))).toEqual([]);
    expect(targetStatus(rig, 'a').unacked.requests).toBe(0);
  });

  test('with more names than are kept is counted once', () => {
    const rig = new CoreRig();
    rig.link('a');
    const loras = Array.from({ length: 4_000 }, (_, at) => `l${at}`);
    const effects = rig.report('a', { models: [{ id: 'm', maxModelLen: null, loras }] });
    expect(limitsIn(effects)).toEqual(['model_names']);
  });

  test('finds room for its names once older ones are reported no more', () => {
    const rig = new CoreRig({ pools: [{ id: 'pool' as PoolId, models: [], aliases: {} }] });
    const loaded = (...loras: string[]) => ({ models: [{ id: MODEL, maxModelLen: null, loras }] });
    const many = (first: number) => Array.from({ length: 600 }, (_, at) => `lora-${first + at}`);
    rig.ready('a', loaded(...many(0)));
    rig.pass(1_000);
    expect(limitsIn(rig.report('a', loaded(...many(600))))).toEqual([]);
    expect(attemptsIn(rig.arrive({ model: 'lora-1199' }))).toHaveLength(1);
    expect(refusalIn(rig.arrive({ model: 'lora-0' }))?.code).toBe('model_not_found');
    // All reports are looked through for that, so not at once again.
    expect(limitsIn(rig.report('a', loaded(...many(1_200))))).toEqual(['model_names']);
    rig.pass(10_000);
    expect(limitsIn(rig.report('a', loaded(...many(1_200))))).toEqual([]);
    expect(attemptsIn(rig.arrive({ model: 'lora-1799' }))).toHaveLength(1);
  });
});

describe('prefixes', () => {
  test('in snapshot after snapshot end the link, and only that one', () => {
    const rig = new CoreRig();
    rig.ready('a');
    rig.ready('b');
    const closed = Array.from({ length: 11 }, () => closesIn(rig.holds('a', chainOf([1]))));
    expect(closed.flat()).toEqual(['a flooded']);
    expect(closesIn(rig.holds('b', chainOf([1])))).toEqual([]);
  });

  test('in a snapshot now and then never do', () => {
    const rig = new CoreRig();
    rig.ready('a');
    for (let count = 0; count < 60; count += 1) {
      expect(closesIn(rig.holds('a', chainOf([1])))).toEqual([]);
      rig.pass(10_000);
      rig.report('a');
    }
  });

  test('whose parents form a ring end: each ancestor is one less deep', () => {
    const rig = new CoreRig();
    rig.ready('a');
    const [low = 0, high = 0] = chainOf([1]).hashes;
    const ring = { parentLow: low, parentHigh: high, hashes: Uint32Array.of(low, high) };
    const runs = Array.from({ length: 50_000 }, () => ({ ...ring, depth: 131_072 }));
    rig.prefixes('a', 0, runs);
    expect(targetStatus(rig, 'a').indexChunks).toBe(1);
  });

  test('of which thousands hang at the end of one long chain cost a bounded walk', () => {
    const rig = new CoreRig();
    rig.ready('a');
    const chain = chainOf(Array.from({ length: 20_000 }, (_, at) => at));
    const { hashes } = chain;
    const [parentLow = 0, parentHigh = 0] = hashes.slice(-2);
    const long = { parentLow: 0, parentHigh: 0, depth: 0, hashes };
    const leaves = Array.from({ length: 20_000 }, (_, at) => ({
      ...{ parentLow, parentHigh, depth: 20_000 },
      hashes: Uint32Array.of(at, 0xffff_0000),
    }));
    rig.prefixes('a', 0, [long, ...leaves]);
    expect(targetStatus(rig, 'a').indexChunks).toBe(40_000);
  });
});
