import { describe, expect, test } from 'vitest';
import { Harness, REPLICA } from './core.harness.ts';
import type { LeaseId, LinkId } from '../shared/model/ids.ts';
import type { DrainView } from './core-drain.ts';

const LEASE = 'r1.1' as LeaseId;

/** Ready, with one router. */
function ready(options: { readonly echoes?: boolean } = {}): { h: Harness; link: LinkId } {
  const h = new Harness({ settings: { calibration: false } });
  const link = h.link('a', { features: options.echoes === false ? [] : ['heard'] });
  h.advance(3_000);
  expect(h.report(link).phase).toBe('ready');
  answer(h, link);
  return { h, link };
}

/** The router reads everything that was sent to it. */
function answer(h: Harness, link: LinkId): void {
  for (const { message } of h.sent.filter((each) => each.link === link)) {
    if (message.kind !== 'report' || message.echo !== true) continue;
    h.say(link, { kind: 'heard', replica: REPLICA, rank: 0, reportSeq: message.report.seq });
  }
}

function drain(h: Harness, on: boolean): void {
  h.deliver({ kind: 'drain', replica: REPLICA, on });
}

/** Told since, each once in a row. */
function phasesSince(h: Harness, from: number): string[] {
  const told = h.sent.slice(from).flatMap(({ message }) => {
    return message.kind === 'report' ? [message.report.phase] : [];
  });
  return told.filter((phase, at) => phase !== told[at - 1]);
}

function readyIncarnations(h: Harness, from: number): Set<string | null> {
  return new Set(
    h.sent.slice(from).flatMap(({ message }) => {
      const isReady = message.kind === 'report' && message.report.phase === 'ready';
      return isReady ? [message.report.incarnation] : [];
    }),
  );
}

function view(h: Harness): DrainView | null {
  return h.core.status(h.nowMs).engines[0]?.drain ?? null;
}

function send(h: Harness, link: LinkId): void {
  h.say(link, { kind: 'leases', replica: REPLICA, rank: 0, seq: 0, open: [] });
  h.say(link, {
    kind: 'sent',
    replica: REPLICA,
    rank: 0,
    seq: 1,
    agoMs: 0,
    lease: LEASE,
    incarnation: h.report(link).incarnation,
    promptTokens: 100,
    uncachedTokens: 100,
    matchedTokens: 0,
    promptBytes: 400,
    parts: {},
    streamed: true,
    maxTokens: 8,
    chains: [],
  });
}

describe('an engine that an operator has marked', () => {
  test('is said to drain at once, and is ready again when the mark is off', () => {
    const { h, link } = ready();
    drain(h, true);
    h.advance(60);
    expect(h.report(link)).toMatchObject({ phase: 'draining' });
    expect(h.report(link).phaseForMs).toBeLessThan(100);
    drain(h, false);
    h.advance(60);
    expect(h.report(link).phase).toBe('ready');
    expect(view(h)).toBeNull();
  });

  test('stays marked over a second word, and over a new life of its engine', () => {
    const { h, link } = ready();
    drain(h, true);
    h.advance(500);
    drain(h, true);
    expect(view(h)?.forMs).toBe(500);
    expect(h.logs.filter((code) => code === 'drain_begun')).toHaveLength(1);
    h.engine.startTimeSeconds = 2_000;
    h.advance(5_000);
    expect(h.logs).toContain('engine_restarted');
    expect(h.report(link).phase).toBe('draining');
    drain(h, false);
    h.advance(60);
    expect(h.report(link).phase).toBe('ready');
  });

  test('is not ready again before a scrape and a generation of after the mark', () => {
    const { h, link } = ready();
    drain(h, true);
    h.advance(1_500);
    const before = h.engine.orders.length;
    const from = h.sent.length;
    drain(h, false);
    h.advance(200);
    expect(phasesSince(h, from)).toEqual(['draining', 'ready']);
    expect(h.engine.orders.slice(before).map(({ purpose }) => purpose)).toEqual(['probe']);
    expect(h.report(link).phase).toBe('ready');
  });

  test('is never said to be ready between two lives, whenever the mark is taken off', () => {
    for (let offMs = 0; offMs <= 1_000; offMs += 50) {
      const { h, link } = ready();
      drain(h, true);
      h.advance(1_500 + offMs);
      h.engine.mode = 'refused';
      const from = h.sent.length;
      drain(h, false);
      h.advance(700);
      expect(phasesSince(h, from), `${offMs} ms`).not.toContain('ready');
      h.engine.mode = 'up';
      h.engine.startTimeSeconds = 2_000;
      const again = h.sent.length;
      h.advance(3_000);
      expect(readyIncarnations(h, again)).toEqual(new Set(['start-2000.000']));
      expect(h.report(link).phase).toBe('ready');
    }
  });

  test('is proved by no probe that was under way when the mark was taken off', () => {
    const { h, link } = ready();
    const known = h.engine.orders.length;
    h.engine.mode = 'frozen';
    while (h.engine.orders.length === known) h.advance(100);
    const underWay = h.engine.orders.at(-1)?.id ?? '';
    h.engine.mode = 'up';
    drain(h, true);
    h.advance(1_500);
    const from = h.sent.length;
    drain(h, false);
    h.engine.mode = 'frozen';
    h.advance(500);
    const outcome = { kind: 'ok', ttftMs: 5, promptTokens: 18, cachedTokens: 0 } as const;
    h.deliver({ kind: 'generated', replica: REPLICA, id: underWay, outcome });
    h.advance(500);
    expect(phasesSince(h, from)).not.toContain('ready');
    expect(h.report(link).phase).not.toBe('ready');
  });

  test('that is gone is said to be gone', () => {
    const { h, link } = ready();
    drain(h, true);
    h.engine.mode = 'refused';
    h.engine.evidence = 'absent';
    h.advance(3_000);
    expect(h.report(link).phase).toBe('dead');
  });

  test('says bye as drained', () => {
    const { h } = ready();
    drain(h, true);
    h.deliver({ kind: 'stop' });
    expect(h.sent.at(-1)?.message).toMatchObject({ kind: 'bye', reason: 'drained' });
  });
});

describe('is drained', () => {
  test('when its routers have read that it drains and no lease is open', () => {
    const { h, link } = ready();
    send(h, link);
    drain(h, true);
    h.advance(2_000);
    answer(h, link);
    expect(view(h)?.drained).toBe(false);
    const ended = { seq: 2, lease: LEASE, agoMs: 0, outcome: 'complete', usage: null } as const;
    h.say(link, { kind: 'ended', replica: REPLICA, rank: 0, ...ended });
    expect(view(h)?.drained).toBe(true);
  });

  test('not before: a router that has not read it may still send', () => {
    const { h, link } = ready();
    drain(h, true);
    h.advance(10_000);
    expect(view(h)?.drained).toBe(false);
    answer(h, link);
    expect(view(h)?.drained).toBe(true);
  });

  test('a while later where the router answers no echo', () => {
    const { h } = ready({ echoes: false });
    drain(h, true);
    h.advance(1_500);
    expect(view(h)?.drained).toBe(false);
    h.advance(1_000);
    expect(view(h)?.drained).toBe(true);
  });

  test('not while others than routers have work in it', () => {
    const { h, link } = ready();
    drain(h, true);
    h.engine.add({ running: 1 });
    h.advance(3_000);
    answer(h, link);
    expect(view(h)?.drained).toBe(false);
    h.engine.add({ running: -1 });
    h.advance(1_100);
    expect(view(h)?.drained).toBe(true);
  });

  test('not while what the engine does was last seen before', () => {
    const { h } = ready({ echoes: false });
    h.engine.mode = 'strange';
    drain(h, true);
    h.advance(3_000);
    expect(view(h)?.drained).toBe(false);
    h.engine.mode = 'up';
    h.advance(1_500);
    expect(view(h)?.drained).toBe(true);
  });
});
