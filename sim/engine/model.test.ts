import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { seededRandom } from '../../shared/lib/random.ts';
import { prefillMs } from '../../shared/model/cost-curve.ts';
import type { EngineEvent } from './events.ts';
import { EngineModel } from './model.ts';
import { engineProfile, trueCostCurve, type EngineProfile } from './profiles.ts';
import type { EngineRequest } from './request.ts';
import { tokenSequence, unitSequence } from './sequence.ts';

const BLOCK = 16;

/** Small and round: 10 ms a step with prefill, 4 ms without, 0.1 ms a token; 40 usable blocks of 16. */
const SMALL: EngineProfile = {
  ...engineProfile('demo')!,
  blockTokens: BLOCK,
  kvBlocks: 41,
  maxModelLen: 512,
  maxNumSeqs: 4,
  maxNumBatchedTokens: 64,
  frontMs: 0,
  frontMsPerToken: 0,
  prefillStepMs: 10,
  decodeStepMs: 4,
  linearMsPerToken: 0.1,
  contextMsPerToken2: 0,
  decodeMsPerSequence: 0,
  decodeContextMsPerToken: 0,
  jitterRatio: 0,
};

function started(profile: EngineProfile = SMALL, seed = 1): EngineModel {
  const model = new EngineModel(profile, seededRandom(seed), { nowMs: 0, loadingMs: 0 });
  model.advance(0);
  return model;
}

/** `from` makes the content: equal numbers are equal prompts as far as they reach. */
function request(
  id: string,
  options: { tokens: number; from?: number; answer?: number },
): EngineRequest {
  const { tokens, from = 0, answer = 1 } = options;
  const ids = Uint32Array.from({ length: tokens }, (_, at) => from * 100_000 + at);
  return { id, sequence: tokenSequence(ids, BLOCK), answerTokens: answer, finishReason: 'length' };
}

function drain(model: EngineModel): EngineEvent[] {
  const events: EngineEvent[] = [];
  for (let next = model.nextEventMs(); next !== null; next = model.nextEventMs()) {
    events.push(...model.advance(next));
  }
  return events;
}

function firstTokens(events: readonly EngineEvent[]): Record<string, number> {
  const first: Record<string, number> = {};
  for (const event of events) {
    if (event.kind === 'token' && event.index === 0) first[event.id] = event.atMs;
  }
  return first;
}

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

describe('truth', () => {
  it('knows what prefill is left, in tokens and in ms, at any moment', () => {
    const model = started();
    model.submit(request('a', { tokens: 128, from: 1 }), 0);
    model.submit(request('b', { tokens: 64, from: 2 }), 0);
    model.advance(0);
    expect(model.truth(0)).toMatchObject({ waitingPrefillTokens: 192 });
    expect(model.truth(0).waitingPrefillMs).toBeCloseTo(3 * 16.4, 9);
    model.advance(20);
    expect(model.truth(20).waitingPrefillTokens).toBe(128);
    expect(model.truth(20).waitingPrefillMs).toBeCloseTo(3 * 16.4 - 20, 9);
    expect(firstTokens(drain(model))['b']).toBeCloseTo(3 * 16.4, 9);
    expect(model.truth(1e5)).toMatchObject({ waitingPrefillTokens: 0, waitingPrefillMs: 0 });
  });

  it('leaves out what the cache has', () => {
    const model = started();
    model.submit(request('a', { tokens: 100 }), 0);
    drain(model);
    model.submit(request('b', { tokens: 100 }), 1_000);
    expect(model.truth(1_000).waitingPrefillTokens).toBe(4);
  });
});

describe('invariants', () => {
  const step = fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        kind: fc.constant('submit' as const),
        from: fc.nat(4),
        tokens: fc.integer({ min: 1, max: 300 }),
        answer: fc.integer({ min: 1, max: 120 }),
      }),
    },
    { weight: 5, arbitrary: fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(200) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('abort' as const), at: fc.nat(50) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('freeze', 'thaw', 'crash') }) },
  );
  type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

  /** Runs the steps on a model with little KV; `check` sees it after each. */
  function run(steps: readonly Step[], check: (model: EngineModel) => void): EngineEvent[] {
    const model = started({ ...SMALL, kvBlocks: 33, jitterRatio: 0.1 }, 7);
    const events: EngineEvent[] = [];
    let nowMs = 0;
    let submitted = 0;
    for (const each of steps) {
      events.push(...model.advance(nowMs));
      switch (each.kind) {
        case 'submit': {
          const { from, tokens, answer } = each as Extract<Step, { kind: 'submit' }>;
          model.submit(request(`r${submitted}`, { from, tokens, answer }), nowMs);
          submitted += 1;
          break;
        }
        case 'advance':
          nowMs += (each as Extract<Step, { kind: 'advance' }>).ms;
          break;
        case 'abort':
          model.abort(`r${(each as Extract<Step, { kind: 'abort' }>).at % Math.max(1, submitted)}`);
          break;
        case 'freeze':
          model.freeze(nowMs);
          break;
        case 'thaw':
          model.thaw(nowMs);
          break;
        default:
          events.push(...model.crash(nowMs));
          model.restart(nowMs, 50);
      }
      events.push(...model.advance(nowMs));
      check(model);
    }
    model.thaw(nowMs);
    events.push(...drain(model));
    check(model);
    return events;
  }

  it('conserves KV blocks, bounds the batch, and leaves nothing held when idle', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        run(steps, (model) => {
          const truth = model.truth(0);
          expect(truth.freeBlocks + truth.heldBlocks).toBe(32);
          expect(truth.running).toBeLessThanOrEqual(SMALL.maxNumSeqs);
          expect(truth.running + truth.waiting).toBeGreaterThanOrEqual(truth.openRequests);
          expect(truth.waitingPrefillTokens).toBeGreaterThanOrEqual(0);
          expect(truth.waitingPrefillMs).toBeGreaterThanOrEqual(0);
          if (truth.running === 0) expect(truth.heldBlocks).toBe(0);
        });
      }),
      { numRuns: 200 },
    );
  });

  it('says the same for the same seed and calls', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        expect(run(steps, () => {})).toEqual(run(steps, () => {}));
      }),
      { numRuns: 50 },
    );
  });

  it('tells of every token once, in order, each request ending at most once', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const tokens = new Map<string, number>();
        const ended = new Set<string>();
        let lastMs = 0;
        for (const event of run(steps, () => {})) {
          expect(event.atMs).toBeGreaterThanOrEqual(lastMs);
          lastMs = event.atMs;
          if (!('id' in event) || event.kind === 'preempted') continue;
          expect(ended.has(event.id)).toBe(false);
          if (event.kind === 'token') {
            expect(event.index).toBe(tokens.get(event.id) ?? 0);
            tokens.set(event.id, event.index + 1);
          } else ended.add(event.id);
        }
      }),
      { numRuns: 100 },
    );
  });
});
