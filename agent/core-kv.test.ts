import { describe, expect, test } from 'vitest';
import { FakeEngine, Harness, leaseFacts, REPLICA } from './core.harness.ts';
import type { KvBatch, KvEvent } from './policy/kv-event.ts';
import type { LeaseId, LinkId } from '../shared/model/ids.ts';
import type { LeaseFacts, PrefixMessage } from '../shared/protocol/messages.ts';

const TO = { replica: REPLICA, rank: 0 } as const;
const BLOCK = 16;

function stored(from: number, count: number): KvEvent {
  return {
    kind: 'stored',
    keys: Array.from({ length: count }, (_, at) => (from + at).toString(16).padStart(16, '0')),
    parentKey: null,
    tokenIds: null,
    blockTokens: BLOCK,
    lora: null,
    salt: null,
    medium: 'GPU',
    group: 0,
    groupKind: 'full_attention',
  };
}

const batch = (seq: number, ...events: readonly KvEvent[]): KvBatch => ({ seq, events });

/** A ready engine that has told of batches 0 and 1, and one router. */
class Rig {
  readonly h: Harness;
  readonly link: LinkId;
  private seq = 0;

  constructor(engine = new FakeEngine()) {
    this.h = new Harness({ engine });
    this.link = this.h.link('a');
    this.publish(batch(0, stored(1, 4)), batch(1));
    this.h.advance(15_000);
    expect(this.phase).toBe('ready');
    this.h.say(this.link, { kind: 'leases', ...TO, seq: 0, open: [] });
    this.h.advance(1_100);
  }

  get phase(): string {
    return this.h.report(this.link).phase;
  }

  publish(...batches: readonly KvBatch[]): void {
    this.h.deliver({ kind: 'kvEvents', ...TO, batches });
  }

  replay(fromSeq: number, ...batches: readonly KvBatch[]): void {
    this.h.deliver({ kind: 'kvReplay', ...TO, fromSeq, batches, done: true });
  }

  sent(lease: string, change: Partial<LeaseFacts> = {}): void {
    this.seq += 1;
    const { incarnation } = this.h.report(this.link);
    const facts = { ...leaseFacts(lease, change), incarnation };
    this.h.say(this.link, { kind: 'sent', ...TO, seq: this.seq, agoMs: 0, ...facts });
  }

  first(lease: string): void {
    this.seq += 1;
    const id = lease as LeaseId;
    this.h.say(this.link, { kind: 'firstToken', ...TO, seq: this.seq, agoMs: 0, lease: id });
  }

  /** A request of three chunks that the index holds afterwards. */
  indexed(): void {
    const chain = {
      hashes: Uint32Array.of(1, 7, 2, 7, 3, 7),
      endLow: 9,
      endHigh: 9,
      turnEnds: new Uint32Array(0),
    };
    this.sent('indexed', { promptBytes: 2_000, chains: [chain] });
    this.first('indexed');
    this.h.advance(100);
    expect(this.lastPrefixes().runs).not.toEqual([]);
  }

  lastPrefixes(): PrefixMessage {
    const found = this.h.sent.findLast(({ message }) => message.kind === 'prefix');
    if (found?.message.kind !== 'prefix') throw new Error('no prefixes were told');
    return found.message;
  }

  get cached(): number | null {
    this.h.advance(1_100);
    return this.h.report(this.link).kvCachedTokens;
  }
}

test('an engine without KV events has no figure of what it caches', () => {
  const h = new Harness();
  const link = h.link('a');
  h.advance(15_000);
  expect(h.report(link).kvCachedTokens).toBeNull();
});

test('what the engine stores and removes is what it caches', () => {
  const rig = new Rig();
  expect(rig.cached).toBe(4 * BLOCK);
  rig.publish(batch(2, stored(9, 2)));
  rig.publish(batch(3, { kind: 'removed', keys: ['0000000000000001'], medium: null, group: 0 }));
  expect(rig.cached).toBe(5 * BLOCK);
});

describe('a gap', () => {
  test('is asked for and filled', () => {
    const rig = new Rig();
    rig.publish(batch(4, stored(30, 1)));
    expect(rig.h.replays).toEqual([2]);
    rig.replay(2, batch(2, stored(10, 1)), batch(3, stored(20, 1)), batch(4, stored(30, 1)));
    expect(rig.cached).toBe(7 * BLOCK);
    expect(rig.h.logs).not.toContain('kv_events_lost');
  });

  test('that nothing fills leaves the figure unknown and is told', () => {
    const rig = new Rig();
    rig.publish(batch(4, stored(30, 1)));
    rig.replay(2);
    expect(rig.cached).toBeNull();
    expect(rig.h.logs).toContain('kv_events_lost');
  });

  test('and many more are told once a minute, and counted each time', () => {
    const rig = new Rig();
    for (let seq = 4; seq < 24; seq += 2) {
      rig.publish(batch(seq, stored(30, 1)));
      rig.replay(rig.h.replays.at(-1) ?? 0);
      rig.h.advance(1_000);
    }
    const told = (): number => rig.h.logs.filter((code) => code === 'kv_events_lost').length;
    expect(told()).toBe(1);
    const [target] = rig.h.core.status(rig.h.nowMs).engines[0]?.targets ?? [];
    expect(target?.kvEvents.lostGaps).toBe(10);
    rig.h.advance(60_000);
    rig.publish(batch(30));
    rig.replay(rig.h.replays.at(-1) ?? 0);
    expect(told()).toBe(2);
  });
});

test('an engine whose beginning nobody keeps any more is no loss; its cache is unknown', () => {
  const h = new Harness();
  const link = h.link('a');
  h.deliver({ kind: 'kvEvents', ...TO, batches: [batch(900, stored(30, 1))] });
  h.deliver({ kind: 'kvReplay', ...TO, fromSeq: 0, batches: [batch(800)], done: false });
  h.deliver({ kind: 'kvReplay', ...TO, fromSeq: 0, batches: [], done: true });
  h.advance(15_000);
  expect(h.report(link).kvCachedTokens).toBeNull();
  expect(h.logs).not.toContain('kv_events_lost');
});

describe('a cleared cache', () => {
  test('empties the index', () => {
    const rig = new Rig();
    rig.indexed();
    rig.publish(batch(2, { kind: 'cleared' }));
    rig.h.advance(1_100);
    expect(rig.lastPrefixes()).toMatchObject({ seq: 0, runs: [], leaves: [] });
    expect(rig.cached).toBe(0);
  });

  test('from before the agent listened does not: it was filled since', () => {
    const h = new Harness();
    const link = h.link('a');
    h.deliver({ kind: 'kvEvents', ...TO, batches: [batch(2, stored(30, 1))] });
    expect(h.replays).toEqual([0]);
    h.advance(15_000);
    const { life } = { life: h.sent.filter(({ message }) => message.kind === 'prefix').length };
    const batches = [batch(0, { kind: 'cleared' }), batch(1), batch(2, stored(30, 1))];
    h.deliver({ kind: 'kvReplay', ...TO, fromSeq: 0, batches, done: true });
    h.advance(1_100);
    expect(h.sent.filter(({ message }) => message.kind === 'prefix')).toHaveLength(life);
    expect(h.report(link).kvCachedTokens).toBe(BLOCK);
  });
});

describe('events that begin anew', () => {
  test('are another life of the engine, seen before the next scrape was due', () => {
    const engine = new FakeEngine();
    engine.startTimeSeconds = null;
    const rig = new Rig(engine);
    rig.indexed();
    const { incarnation } = rig.h.report(rig.link);
    rig.publish(batch(0));
    rig.h.advance(100);
    expect(rig.h.report(rig.link)).toMatchObject({ phase: 'warming', running: 0 });
    expect(rig.h.report(rig.link).incarnation).not.toBe(incarnation);
    expect(rig.lastPrefixes()).toMatchObject({ seq: 0, runs: [], leaves: [] });
  });

  test('go on being counted after the scrape has said so too', () => {
    const engine = new FakeEngine();
    engine.startTimeSeconds = null;
    const rig = new Rig(engine);
    rig.publish(batch(0, stored(1, 2)));
    rig.h.advance(100);
    rig.publish(batch(1, stored(5, 1)));
    expect(rig.h.replays).toEqual([]);
    expect(rig.cached).toBe(3 * BLOCK);
  });

  test('of a process that goes on say nothing of its next life', () => {
    const rig = new Rig();
    rig.publish(batch(0, stored(1, 2)));
    rig.h.advance(2_000);
    rig.h.engine.startTimeSeconds = 2_000;
    rig.h.advance(1_100);
    expect(rig.cached).toBeNull();
  });

  test('and where a scrape was first, count from 0 as well', () => {
    const rig = new Rig();
    rig.h.engine.startTimeSeconds = 2_000;
    rig.h.advance(1_100);
    rig.publish(batch(0, stored(1, 2)), batch(1, stored(5, 1)));
    expect(rig.h.replays).toEqual([]);
    expect(rig.cached).toBe(3 * BLOCK);
  });
});

test('an engine that tells of KV blocks is not silent', () => {
  const rig = new Rig();
  rig.sent('w');
  rig.first('w');
  const probes = rig.h.engine.orders.length;
  rig.sent('x', { promptTokens: 100, uncachedTokens: 100 });
  for (let seq = 2; seq < 14; seq += 1) {
    rig.h.advance(1_000);
    rig.publish(batch(seq));
  }
  expect(rig.h.engine.orders).toHaveLength(probes);
  rig.h.advance(11_000);
  expect(rig.h.engine.orders.length).toBeGreaterThan(probes);
});

test('a rank that is not there is no rank', () => {
  const rig = new Rig();
  rig.h.deliver({ kind: 'kvEvents', replica: REPLICA, rank: 7, batches: [batch(0)] });
  expect(rig.cached).toBe(4 * BLOCK);
});

test('an engine that falls asleep caches nothing, before its events say so', () => {
  const rig = new Rig();
  expect(rig.cached).toBe(4 * BLOCK);
  rig.h.engine.rank = { ...rig.h.engine.rank, asleep: true };
  expect(rig.cached).toBe(0);
  rig.publish(batch(2, { kind: 'cleared' }));
  expect(rig.cached).toBe(0);
});

test('events that tell of more than the cache holds tell nothing, which is said once', () => {
  const rig = new Rig();
  const blocks = Math.ceil(100_000 / BLOCK);
  rig.publish(batch(2, stored(1_000, blocks)));
  rig.publish(batch(3, stored(50_000, 1)));
  expect(rig.cached).toBeNull();
  expect(rig.h.logs.filter((code) => code === 'kv_events_impossible')).toHaveLength(1);
});
