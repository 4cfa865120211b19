import { describe, expect, it } from 'vitest';

import { prefillMs } from '../../shared/model/cost-curve.ts';
import { BLOCK, drain, firstTokens, request, SMALL, started } from './model-test-harness.ts';
import { trueCostCurve } from './profiles.ts';
import { tokenSequence, unitSequence } from './sequence.ts';

describe('engine step', () => {
  it('computes a lone prompt in chunks of the budget, as the cost curve says', () => {
    const model = started({ ...SMALL, contextMsPerToken2: 0.001, frontMsPerToken: 0.05 });
    model.submit(request('a', { tokens: 200 }), 0);
    const expected = prefillMs(trueCostCurve(model.profile), 200, 0);
    expect(expected).toBeCloseTo(4 * 10 + 0.05 * 200 + 0.1 * 200 + 0.001 * 200 * 100, 9);
    expect(firstTokens(drain(model))['a']).toBeCloseTo(expected, 9);
  });

  it('serves prompts in order of arrival, the head filling the budget first', () => {
    const model = started();
    for (const [at, id] of ['a', 'b', 'c'].entries()) {
      model.submit(request(id, { tokens: 100, from: at }), at * 0.1);
    }
    const first = firstTokens(drain(model));
    expect(first['a']!).toBeLessThan(first['b']!);
    expect(first['b']!).toBeLessThan(first['c']!);
  });

  it('gives a decoding request its token in every step of a long prefill', () => {
    const model = started();
    model.submit(request('a', { tokens: 16, from: 1, answer: 8 }), 0);
    model.submit(request('b', { tokens: 256, from: 2 }), 11);
    const tokens = drain(model).filter((event) => event.kind === 'token' && event.id === 'a');
    const gaps = tokens.slice(1).map((event, at) => event.atMs - tokens[at]!.atMs);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(10 + 0.1 * 63 + 1e-9);
    expect(gaps.filter((gap) => gap > 10).length).toBeGreaterThanOrEqual(4);
  });

  it('leaves the head waiting for a batch slot and passes nobody over it', () => {
    const model = started();
    for (let at = 0; at < 6; at += 1)
      model.submit(request(`${at}`, { tokens: 16, from: at, answer: 5 }), 0);
    model.advance(12);
    expect(model.truth(12)).toMatchObject({ running: 4, waiting: 2 });
    const first = firstTokens([...model.advance(12), ...drain(model)]);
    expect(first['4']!).toBeLessThanOrEqual(first['5']!);
  });

  it('holds a request in the front end before the scheduler sees it', () => {
    const model = started({ ...SMALL, frontMs: 5 });
    model.submit(request('a', { tokens: 16, from: 1 }), 0);
    model.submit(request('b', { tokens: 16, from: 2 }), 0);
    expect(model.nextEventMs()).toBe(5);
    expect(firstTokens(drain(model))).toEqual({ a: 5 + 11.6, b: 5 + 11.6 + 11.6 });
  });
});

describe('prefix cache', () => {
  it('reuses full blocks only and computes the last token again', () => {
    const model = started();
    let nowMs = 0;
    const cached = (id: string, tokens: number): number => {
      nowMs += 1_000;
      model.submit(request(id, { tokens }), nowMs);
      const end = drain(model).find((event) => event.kind === 'finished');
      return end?.kind === 'finished' ? end.cachedTokens : -1;
    };
    expect(cached('cold', 100)).toBe(0);
    expect(cached('warm', 100)).toBe(96);
    expect(cached('longer', 120)).toBe(96);
    expect(cached('exact', 96)).toBe(80);
  });

  it("finds a prompt's answer in the next turn's prompt", () => {
    const model = started();
    const first = request('a', { tokens: 40, answer: 30 });
    model.submit(first, 0);
    const answer = drain(model).flatMap((event) => (event.kind === 'token' ? [event.tokenId] : []));
    const next = [...Array.from({ length: 40 }, (_, at) => at), ...answer, 7, 8, 9];
    expect(model.cachedTokens(tokenSequence(Uint32Array.from(next), BLOCK))).toBe(64);
  });

  it('shares a prefix between requests that run at the same time', () => {
    const model = started();
    model.submit(request('a', { tokens: 64, answer: 4 }), 0);
    model.submit(request('b', { tokens: 64, answer: 4 }), 0);
    model.advance(20);
    expect(model.truth(20).heldBlocks).toBeLessThan(8);
    const cached = drain(model).flatMap((event) =>
      event.kind === 'finished' ? [event.cachedTokens] : [],
    );
    expect(cached).toEqual([0, 48]);
  });

  it('forgets the least recently used prompt when it needs room', () => {
    const model = started();
    for (const from of [1, 2, 3]) {
      model.submit(request(`${from}`, { tokens: 256, from }), from * 1000);
      drain(model);
    }
    const cachedOf = (from: number): number =>
      model.cachedTokens(request('?', { tokens: 256, from }).sequence);
    expect(cachedOf(3)).toBe(240);
    expect(cachedOf(2)).toBe(240);
    expect(cachedOf(1)).toBeLessThan(240);
  });

  it('serves prompts known by their units alone', () => {
    const model = started();
    const unitWords = Uint32Array.from({ length: 8 }, (_, at) => at * 77_777_777);
    const turn = (promptTokens: number) =>
      unitSequence(
        { promptTokens, unitTokens: 64, unitWords: unitWords.subarray(0, promptTokens / 32 + 2) },
        BLOCK,
      );
    model.submit({ id: 'a', sequence: turn(128), answerTokens: 64, finishReason: 'length' }, 0);
    drain(model);
    expect(model.cachedTokens(turn(192))).toBe(176);
  });
});

describe('KV room', () => {
  it('preempts the one admitted last, computes it again and finishes both', () => {
    const model = started({ ...SMALL, kvBlocks: 21 });
    model.submit(request('a', { tokens: 120, from: 1, answer: 80 }), 0);
    model.submit(request('b', { tokens: 120, from: 2, answer: 80 }), 1);
    const events = drain(model);
    expect(events.filter((event) => event.kind === 'preempted').map((event) => event.id)).toContain(
      'b',
    );
    const ends = events.filter((event) => event.kind === 'finished');
    expect(ends.map((event) => [event.id, event.answerTokens])).toEqual([
      ['a', 80],
      ['b', 80],
    ]);
    expect(model.stats.preemptions).toBe(
      events.filter((event) => event.kind === 'preempted').length,
    );
    const indices = events.flatMap((event) =>
      event.kind === 'token' && event.id === 'b' ? [event.index] : [],
    );
    expect(indices).toEqual(Array.from({ length: 80 }, (_, at) => at));
  });

  it('takes a preempted request up again before all that wait, with what is still cached of it', () => {
    const model = started({ ...SMALL, kvBlocks: 21 });
    model.submit(request('a', { tokens: 120, from: 1, answer: 80 }), 0);
    model.submit(request('b', { tokens: 120, from: 2, answer: 80 }), 1);
    model.submit(request('c', { tokens: 120, from: 3, answer: 80 }), 2);
    const computed: number[] = [];
    model.onStep = ({ prefillTokens }) => computed.push(prefillTokens);
    const events = drain(model);
    const first = events.findIndex((event) => event.kind === 'preempted');
    const after = events.slice(first).flatMap((event) => ('id' in event ? [event.id] : []));
    expect(after.indexOf('b', 1)).toBeLessThan(after.indexOf('c'));
    const again = computed.reduce((sum, tokens) => sum + tokens, 0) - 3 * 120;
    const preemptions = events.filter((event) => event.kind === 'preempted').length;
    expect(again).toBeGreaterThanOrEqual(preemptions);
    expect(again).toBeLessThan(preemptions * 120);
  });

  it('does not admit a prompt that has no room as a whole', () => {
    const model = started({ ...SMALL, kvBlocks: 21 });
    model.submit(request('a', { tokens: 200, from: 1, answer: 20 }), 0);
    model.submit(request('b', { tokens: 200, from: 2, answer: 20 }), 0);
    model.advance(60);
    expect(model.truth(60)).toMatchObject({ running: 1, waiting: 1 });
    expect(drain(model).filter((event) => event.kind === 'preempted')).toEqual([]);
  });

  it('cuts an answer where prompt and answer fill the longest sequence', () => {
    const model = started();
    model.submit(request('a', { tokens: 500, answer: 100 }), 0);
    expect(drain(model).at(-1)).toMatchObject({
      kind: 'finished',
      reason: 'length',
      answerTokens: 12,
    });
    expect(model.submit(request('b', { tokens: 512 }), 1e4)).toEqual({
      ok: false,
      reason: 'too_long',
    });
  });

  it('never promises a longer sequence than the cache holds', () => {
    expect(started({ ...SMALL, kvBlocks: 11 }).maxModelLen).toBe(160);
  });
});
