// What ends, stops or delays the work: clients that leave, pauses, sleep, shutdown, faults.

import { describe, expect, it } from 'vitest';

import { drain, firstTokens, request, SMALL, started } from './model-test-harness.ts';
import type { EngineEvent } from './events.ts';

describe('faults', () => {
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

/** Ends in order: id, how it ended, tokens of the answer. */
function ends(events: readonly EngineEvent[]): [string, string, number][] {
  return events.flatMap((event): [string, string, number][] => {
    if (event.kind === 'failed') return [[event.id, 'failed', 0]];
    return event.kind === 'finished' ? [[event.id, event.reason, event.answerTokens]] : [];
  });
}

function atOf(events: readonly EngineEvent[], kind: EngineEvent['kind']): number | null {
  return events.find((event) => event.kind === kind)?.atMs ?? null;
}

describe('pause and sleep', () => {
  it('end every request with reason abort after the step under way, where that is the mode', () => {
    const model = started();
    model.submit(request('a', { tokens: 16, from: 1, answer: 20 }), 0);
    model.submit(request('b', { tokens: 200, from: 2, answer: 20 }), 0);
    model.advance(20);
    model.pause({ mode: 'abort', clearCache: true }, 20);
    expect(model.advance(20)).toEqual([]);
    const events = drain(model);
    // The step from 16.4 to 32.7 still gives `a` its second token.
    expect(ends(events)).toEqual([
      ['a', 'abort', 2],
      ['b', 'abort', 0],
    ]);
    expect(atOf(events, 'paused')).toBeCloseTo(32.7, 9);
    expect(model.truth(40)).toMatchObject({ running: 0, heldBlocks: 0, cachedBlocks: 0 });
    expect([model.stats.running, model.stats.finished.abort]).toEqual([0, 2]);
  });

  it('let what is in the batch finish and keep the others waiting, where that is the mode', () => {
    const model = started({ ...SMALL, maxNumSeqs: 1 });
    model.submit(request('a', { tokens: 16, from: 1, answer: 5 }), 0);
    model.submit(request('b', { tokens: 16, from: 2, answer: 5 }), 0);
    model.advance(12);
    model.sleep({ level: 1, mode: 'wait' }, 12);
    const events = drain(model);
    expect(ends(events)).toEqual([['a', 'length', 5]]);
    expect(atOf(events, 'paused')).toBeCloseTo(11.6 + 4 * 4, 9);
    expect([model.stats.sleepLevel, model.paused, model.openRequests]).toEqual([1, true, 1]);
    model.resume(1_000);
    expect(firstTokens(drain(model))['b']).toBeCloseTo(1_011.6, 9);
    expect(model.stats.sleepLevel).toBeNull();
  });

  it('keep every request, whose KV a sleep gives up and waking computes again', () => {
    const model = started();
    model.submit(request('a', { tokens: 64, answer: 5 }), 0);
    model.advance(21);
    model.sleep({ level: 2, mode: 'keep' }, 21);
    drain(model);
    expect(model.stats).toMatchObject({ sleepLevel: 2, running: 1, preemptions: 0 });
    expect(model.truth(50)).toMatchObject({ running: 0, waiting: 1, cachedBlocks: 0 });
    model.resume(100);
    const events = drain(model);
    expect(ends(events)).toEqual([['a', 'length', 5]]);
    const tokens = events.flatMap((event) => (event.kind === 'token' ? [event.index] : []));
    expect(tokens).toEqual([3, 4]);
    expect(model.stats.preemptions).toBe(1);
  });

  it('keep KV through a pause that clears nothing', () => {
    const model = started();
    model.submit(request('a', { tokens: 64 }), 0);
    drain(model);
    model.sleep({ level: 0, mode: 'abort' }, 100);
    expect(atOf(model.advance(100), 'paused')).toBe(100);
    expect([
      model.stats.sleepLevel,
      model.cachedTokens(request('?', { tokens: 65 }).sequence),
    ]).toEqual([0, 64]);
  });

  it('take requests meanwhile, which wait and show on no gauge', () => {
    const model = started();
    model.sleep({ level: 1, mode: 'abort' }, 0);
    model.advance(0);
    expect(model.submit(request('a', { tokens: 16 }), 10)).toEqual({ ok: true });
    expect(drain(model)).toEqual([]);
    expect(model.stats).toMatchObject({ running: 0, waiting: 0 });
    expect(model.truth(50)).toMatchObject({ waiting: 1, openRequests: 1 });
    expect(model.abort('a')).toBe(true);
    model.resume(60);
    expect(drain(model)).toEqual([]);
  });

  it('come to nothing where they are ended before the step under way is', () => {
    const model = started();
    model.submit(request('a', { tokens: 16, answer: 3 }), 0);
    model.advance(5);
    model.sleep({ level: 1, mode: 'wait' }, 5);
    model.resume(6);
    const events = drain(model);
    expect(ends(events)).toEqual([['a', 'length', 3]]);
    expect([atOf(events, 'paused'), model.paused, model.stats.sleepLevel]).toEqual([
      11.6,
      false,
      null,
    ]);
  });

  it('come after a thaw where the core stood still', () => {
    const model = started();
    model.freeze(10);
    model.sleep({ level: 1, mode: 'abort' }, 20);
    expect([model.nextEventMs(), model.stats.sleepLevel]).toEqual([null, null]);
    model.thaw(500);
    expect(atOf(model.advance(500), 'paused')).toBe(500);
  });
});

describe('cache reset', () => {
  it('forgets every prefix, but not while a request holds KV', () => {
    const model = started();
    model.submit(request('a', { tokens: 64, answer: 2 }), 0);
    model.advance(5);
    expect(model.resetPrefixCache()).toBe(false);
    drain(model);
    const again = request('?', { tokens: 65 }).sequence;
    expect(model.cachedTokens(again)).toBe(64);
    expect(model.resetPrefixCache()).toBe(true);
    expect(model.cachedTokens(again)).toBe(0);
  });
});

describe('shutdown', () => {
  it('drains what is inside, ends what comes with reason abort and no token, and then is gone', () => {
    const model = started({ ...SMALL, maxNumSeqs: 1 });
    for (const id of ['a', 'b']) model.submit(request(id, { tokens: 16, answer: 3 }), 0);
    model.advance(5);
    model.beginShutdown({ mode: 'drain', timeoutMs: 10_000 }, 5);
    expect(model.phase).toBe('draining');
    expect(model.submit(request('late', { tokens: 16 }), 6)).toEqual({ ok: true });
    const events = drain(model);
    expect(ends(events)).toEqual([
      ['late', 'abort', 0],
      ['a', 'length', 3],
      ['b', 'length', 3],
    ]);
    expect(events.at(-1)).toEqual({ kind: 'stopped', atMs: events.at(-2)!.atMs });
    expect([model.phase, model.nextEventMs()]).toEqual(['down', null]);
    expect(model.submit(request('z', { tokens: 1 }), 1e4)).toMatchObject({ reason: 'not_serving' });
  });

  it('fails what is left when its time is up', () => {
    const model = started();
    model.submit(request('a', { tokens: 16, answer: 100 }), 0);
    model.beginShutdown({ mode: 'drain', timeoutMs: 50 }, 0);
    const events = drain(model);
    expect(ends(events)).toEqual([['a', 'failed', 0]]);
    expect([atOf(events, 'failed'), atOf(events, 'stopped'), model.phase]).toEqual([
      50,
      50,
      'down',
    ]);
  });

  it('ends everything with reason abort after the step under way, where no time is given', () => {
    const model = started();
    model.submit(request('a', { tokens: 100, answer: 3 }), 0);
    model.advance(5);
    model.beginShutdown({ mode: 'abort' }, 5);
    const events = drain(model);
    expect(ends(events)).toEqual([['a', 'abort', 0]]);
    expect(atOf(events, 'stopped')).toBeCloseTo(16.4, 9);
    model.restart(1_000, 10);
    expect(model.advance(1_010)).toEqual([{ kind: 'serving', atMs: 1_010 }]);
  });

  it('is at once where nothing is inside, and waits for a frozen core until its time is up', () => {
    const idle = started();
    idle.beginShutdown({ mode: 'drain', timeoutMs: 1_000 }, 7);
    expect(idle.advance(7)).toEqual([{ kind: 'stopped', atMs: 7 }]);
    const frozen = started();
    frozen.freeze(0);
    frozen.beginShutdown({ mode: 'drain', timeoutMs: 1_000 }, 7);
    expect([frozen.phase, frozen.nextEventMs()]).toEqual(['frozen', 1_007]);
    expect(frozen.advance(1_007)).toEqual([{ kind: 'stopped', atMs: 1_007 }]);
    expect(frozen.phase).toBe('down');
  });
});

describe('cold kernels', () => {
  const profile = { ...SMALL, maxNumBatchedTokens: 2_048, maxModelLen: 4_096, kvBlocks: 400 };
  const cold = { ...profile, coldSteps: 2, coldStepMs: 300, coldShapeMs: 70 };

  it('cost the first prefill steps, and the first of each larger shape, once an incarnation', () => {
    const warm = started(profile);
    const model = started(cold);
    const extraMs = (tokens: number, at: number): number => {
      const first = [model, warm].map((each) => {
        each.submit(request(`${at}`, { tokens, from: at }), at * 10_000);
        return firstTokens(drain(each))[`${at}`]!;
      });
      return Math.round(first[0]! - first[1]!);
    };
    expect([20, 300, 20, 500, 700, 600, 2_000].map(extraMs)).toEqual([300, 370, 0, 0, 70, 0, 70]);
    for (const each of [model, warm]) {
      each.restart(1e5, 0);
      each.advance(1e5);
    }
    expect(extraMs(30, 11)).toBe(300);
  });
});
