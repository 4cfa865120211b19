import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { drain, firstTokens, request, SMALL, started } from './model-test-harness.ts';
import type { EngineEvent } from './events.ts';
import type { EngineModel } from './model.ts';
import type { EngineProfile } from './profiles.ts';

/** Who is inside an engine, and whose next token needs more than one computed. */
class Inside {
  readonly open = new Set<string>();
  readonly prefilling = new Set<string>();

  submit(id: string): void {
    this.open.add(id);
    this.prefilling.add(id);
  }

  leave(id: string): void {
    this.open.delete(id);
    this.prefilling.delete(id);
  }

  follow(events: readonly EngineEvent[]): void {
    for (const event of events) {
      if (event.kind === 'preempted') this.prefilling.add(event.id);
      else if (event.kind === 'finished') this.leave(event.id);
      else if ('id' in event) this.prefilling.delete(event.id);
    }
  }
}

/**
 * What really happens when the engine goes on with no new requests, until nobody inside is in prefill any more, nor
 * whoever was preempted meanwhile: steps with prefill, summed from `nowMs` on. One that comes back from preemption
 * with a single token missing decodes: where all decode, prefill is over, whatever a later preemption brings.
 */
function runOn(model: EngineModel, nowMs: number, inside: Inside): { tokens: number; ms: number } {
  let tokens = 0;
  let ms = 0;
  let over = false;
  model.onStep = ({ prefillTokens, decodes, startMs, endMs }) => {
    if (prefillTokens === 0) {
      if (startMs >= nowMs && decodes === inside.open.size) over = true;
      return;
    }
    if (over) return;
    tokens += prefillTokens;
    ms += endMs - Math.max(startMs, nowMs);
  };
  for (let next = model.nextEventMs(); next !== null && !over && inside.prefilling.size > 0;) {
    inside.follow(model.advance(next));
    next = model.nextEventMs();
  }
  return { tokens, ms };
}

/** Little KV and few slots, so that requests wait for both and preempt each other. */
const TIGHT: EngineProfile = {
  ...SMALL,
  kvBlocks: 33,
  frontMs: 1,
  contextMsPerToken2: 1e-4,
  decodeMsPerSequence: 0.3,
  decodeContextMsPerToken: 1e-3,
  coldSteps: 2,
  coldStepMs: 50,
  coldShapeMs: 20,
};

/** One comes back from preemption with one token missing, and is preempted again before it has it. */
const BACK_WITH_ONE_MISSING = [
  [0, 1, 34],
  [0, 132, 74],
  [4, 52, 55],
  [1, 169, 66],
  [3, 198, 12],
  [2, 272, 4],
  [2, 32, 3],
].map(([from = 0, tokens = 0, answer = 0]) => ({ gapMs: 0, from, tokens, answer }));

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

  it('counts a prefix that waiting requests share once', () => {
    const model = started();
    for (const id of ['a', 'b', 'c']) model.submit(request(id, { tokens: 100 }), 0);
    expect(model.truth(0).waitingPrefillTokens).toBe(100 + 4 + 4);
  });

  it('counts the wait for a slot as no prefill', () => {
    const model = started({ ...SMALL, maxNumSeqs: 1 });
    model.submit(request('a', { tokens: 16, from: 1, answer: 100 }), 0);
    model.advance(50);
    model.submit(request('b', { tokens: 32, from: 2 }), 50);
    expect(model.truth(50)).toMatchObject({ waitingPrefillTokens: 32 });
    expect(model.truth(50).waitingPrefillMs).toBeCloseTo(10 + 3.2, 9);
  });

  it('counts what a preempted request must compute again', () => {
    const model = started({ ...SMALL, kvBlocks: 21 });
    model.submit(request('a', { tokens: 120, from: 1, answer: 80 }), 0);
    model.submit(request('b', { tokens: 120, from: 2, answer: 80 }), 1);
    let preemptedMs: number | null = null;
    while (preemptedMs === null) {
      const events = model.advance(model.nextEventMs()!);
      preemptedMs = events.find(({ kind }) => kind === 'preempted')?.atMs ?? null;
    }
    const truth = model.truth(preemptedMs);
    expect(truth.waitingPrefillTokens).toBeGreaterThan(1);
    expect(truth).toMatchObject({ running: 1, waiting: 1 });
  });

  it('is the same while frozen as when it froze, and while asleep is what will be done on waking', () => {
    const model = started();
    model.submit(request('a', { tokens: 128, from: 1 }), 0);
    model.advance(20);
    const before = model.truth(20);
    model.freeze(20);
    expect(model.truth(5_000)).toEqual({ ...before, phase: 'frozen' });
    model.thaw(5_000);
    expect(model.truth(5_000).waitingPrefillMs).toBeCloseTo(before.waitingPrefillMs, 9);
    model.sleep({ level: 1, mode: 'wait' }, 5_000);
    drain(model);
    model.submit(request('b', { tokens: 128, from: 1 }), 6_000);
    model.advance(6_000);
    const asleep = model.truth(9_000);
    expect(asleep).toMatchObject({ sleepLevel: 1, waitingPrefillTokens: 128, running: 0 });
    expect(asleep.waitingPrefillMs).toBeCloseTo(2 * 16.4, 9);
    model.resume(9_000);
    const inside = new Inside();
    inside.submit('b');
    expect(runOn(model, 9_000, inside).ms).toBeCloseTo(asleep.waitingPrefillMs, 9);
  });

  it('knows what cold kernels will cost', () => {
    const cold = { ...SMALL, coldSteps: 1, coldStepMs: 100 };
    const model = started(cold);
    model.submit(request('a', { tokens: 64 }), 0);
    expect(model.truth(0).kernelsCold).toBe(true);
    expect(model.truth(0).waitingPrefillMs).toBeCloseTo(116.4, 9);
    drain(model);
    model.submit(request('b', { tokens: 64, from: 2 }), 1_000);
    expect(model.truth(1_000)).toMatchObject({ kernelsCold: false });
    expect(model.truth(1_000).waitingPrefillMs).toBeCloseTo(16.4, 9);
  });

  it('agrees with what then happens, under any load', () => {
    const load = fc.array(
      fc.record({
        gapMs: fc.nat(60),
        from: fc.nat(5),
        tokens: fc.integer({ min: 1, max: 400 }),
        answer: fc.integer({ min: 1, max: 120 }),
      }),
      { minLength: 1, maxLength: 25 },
    );
    let waiting = 0;
    fc.assert(
      fc.property(load, fc.nat(300), fc.boolean(), (list, restMs, abortsOne) => {
        const model = started(TIGHT);
        const inside = new Inside();
        let nowMs = 0;
        list.forEach(({ gapMs, from, tokens, answer }, at) => {
          nowMs += gapMs;
          inside.follow(model.advance(nowMs));
          inside.submit(`${at}`);
          model.submit(request(`${at}`, { from, tokens, answer }), nowMs);
        });
        nowMs += restMs;
        inside.follow(model.advance(nowMs));
        const gone = `${list.length >> 1}`;
        if (abortsOne && model.abort(gone)) inside.leave(gone);
        const truth = model.truth(nowMs);
        // Looking changes nothing, and looking twice shows the same.
        expect(model.truth(nowMs)).toEqual(truth);
        const really = runOn(model, nowMs, inside);
        expect(truth.waitingPrefillTokens).toBe(really.tokens);
        expect(truth.waitingPrefillMs).toBeCloseTo(really.ms, 6);
        if (truth.waitingPrefillMs > 0) waiting += 1;
      }),
      { numRuns: 200, examples: [[BACK_WITH_ONE_MISSING, 0, false]] },
    );
    expect(waiting).toBeGreaterThan(50);
  });
});
