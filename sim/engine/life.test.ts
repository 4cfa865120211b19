// What ends, stops or delays the work: clients that leave, pauses, sleep, shutdown, faults.

import { describe, expect, it } from 'vitest';

import { drain, firstTokens, request, SMALL, started } from './model-test-harness.ts';

describe('failure', () => {
  it('frees what an aborted request held, in whatever state it was, when the step under way ends', () => {
    const model = started();
    for (let at = 0; at < 6; at += 1) {
      model.submit(request(`${at}`, { tokens: 100, from: at, answer: 20 }), 0);
    }
    model.advance(30);
    for (let at = 0; at < 6; at += 1) expect(model.abort(`${at}`)).toBe(true);
    expect(model.truth(30)).toMatchObject({ openRequests: 0, running: 2, waiting: 4 });
    expect(model.truth(30).heldBlocks).toBeGreaterThan(0);
    expect(model.stats.running).toBe(1);
    expect(drain(model)).toEqual([]);
    expect(model.truth(60)).toMatchObject({ heldBlocks: 0, running: 0, waiting: 0 });
    expect([model.stats.running, model.stats.waiting]).toEqual([0, 0]);
    expect(model.abort('0')).toBe(false);
  });

  it('stands still while frozen, gauges too, and goes on where it was', () => {
    const model = started();
    model.submit(request('a', { tokens: 128, answer: 3 }), 0);
    model.advance(20);
    model.freeze(20);
    const running = model.stats.running;
    expect(running).toBe(1);
    expect(model.nextEventMs()).toBeNull();
    expect(model.advance(10_000)).toEqual([]);
    expect(model.submit(request('b', { tokens: 16, from: 9 }), 10_000)).toEqual({ ok: true });
    expect(model.stats.running).toBe(running);
    model.thaw(10_000);
    const first = firstTokens(drain(model));
    expect(first['a']).toBeCloseTo(10_000 + 2 * 16.4 - 20, 9);
    expect(first['b']!).toBeGreaterThan(first['a']!);
  });

  it('fails every open request when its core dies, and takes no more', () => {
    const model = started();
    model.submit(request('a', { tokens: 100 }), 0);
    model.submit(request('b', { tokens: 100, from: 1 }), 0);
    const events = model.killCore(5);
    expect(events.map((event) => [event.kind, 'id' in event && event.id])).toEqual([
      ['failed', 'a'],
      ['failed', 'b'],
    ]);
    expect(model.submit(request('c', { tokens: 10 }), 6)).toEqual({
      ok: false,
      reason: 'core_dead',
    });
    expect(model.truth(6)).toMatchObject({ phase: 'dead', heldBlocks: 0 });
  });

  it('comes back from a crash as a new incarnation with nothing of the old one', () => {
    const model = started();
    model.submit(request('a', { tokens: 100 }), 0);
    drain(model);
    model.crash(1_000);
    expect(model.submit(request('b', { tokens: 10 }), 1_001)).toEqual({
      ok: false,
      reason: 'not_serving',
    });
    model.restart(2_000, 500);
    expect([model.incarnation, model.startedMs, model.nextEventMs()]).toEqual([2, 2_000, 2_500]);
    expect(model.advance(2_500)).toEqual([{ kind: 'serving', atMs: 2_500 }]);
    expect(model.stats.promptTokens).toBe(0);
    expect(model.cachedTokens(request('a', { tokens: 100 }).sequence)).toBe(0);
  });

  it('takes as many times as long as it is told', () => {
    const model = started();
    model.slow(3);
    model.submit(request('a', { tokens: 64 }), 0);
    expect(firstTokens(drain(model))['a']).toBeCloseTo(3 * 16.4, 9);
  });

  it('refuses beyond the limit of requests inside, running ones counted, where it has one', () => {
    const model = started({ ...SMALL, maxQueuedRequests: 2 });
    model.submit(request('a', { tokens: 100 }), 0);
    model.advance(0);
    expect(model.submit(request('b', { tokens: 10, from: 1 }), 1)).toEqual({ ok: true });
    expect(model.submit(request('c', { tokens: 10, from: 2 }), 1)).toEqual({
      ok: false,
      reason: 'queue_full',
    });
    expect(model.stats.queueRejections).toBe(1);
  });
});
