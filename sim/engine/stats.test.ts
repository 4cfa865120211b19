// When the engine's counters move: what an agent can and cannot see of the work.

import { describe, expect, it } from 'vitest';

import type { EngineModel } from './model.ts';
import { SMALL, started } from './model-test-harness.ts';
import { tokenSequence } from './sequence.ts';
import { Histogram } from './stats.ts';

const PROFILE = { ...SMALL, kvBlocks: 101, frontMs: 2 };

function submit(
  model: EngineModel,
  id: string,
  options: { tokens: number; answer: number; nowMs?: number; from?: number; lora?: string },
): void {
  const { tokens, answer, nowMs = 0, from = 0, lora } = options;
  const ids = Uint32Array.from({ length: tokens }, (_, at) => from * 10_000 + at);
  const sequence = tokenSequence(ids, 16, { lora });
  model.submit({ id, sequence, answerTokens: answer, finishReason: 'length' }, nowMs);
}

/** Ends of the first prompt's chunks: 2 + 16.4 each, of 200 tokens in 64, 64, 64 and 8. */
const CHUNK_ENDS_MS = [18.4, 34.8, 51.2, 62];

describe('counters', () => {
  it('jump at the first token and hide the chunks before it', () => {
    const model = started(PROFILE);
    submit(model, 'a', { tokens: 200, answer: 3 });
    for (const [at, endMs] of CHUNK_ENDS_MS.entries()) {
      model.advance(endMs + 0.001);
      const { promptTokens, computedTokens, timeToFirstToken, generationTokens } = model.stats;
      const expected = at === 3 ? [200, 200, 1, 1] : [0, 0, 0, 0];
      expect([promptTokens, computedTokens, timeToFirstToken.count, generationTokens]).toEqual(
        expected,
      );
    }
    expect(model.stats.timeToFirstToken.sum).toBeCloseTo(0.062, 9);
    expect(model.stats.iterationTokens.sum).toBe(201);
  });

  it('show cache queries and hits once the admitting step is done, before any first token', () => {
    const model = started(PROFILE);
    submit(model, 'a', { tokens: 200, answer: 1 });
    model.advance(1_000);
    submit(model, 'b', { tokens: 264, answer: 1, nowMs: 1_000 });
    model.advance(1_003);
    expect(model.stats.prefixCacheQueries).toBe(200);
    model.advance(1_020);
    expect([model.stats.prefixCacheQueries, model.stats.prefixCacheHits]).toEqual([464, 192]);
    expect(model.stats.cachedTokens).toBe(0);
    model.advance(1_040);
    expect([model.stats.promptTokens, model.stats.cachedTokens]).toEqual([464, 192]);
  });

  it('put a request into its histograms when it ends', () => {
    const model = started(PROFILE);
    submit(model, 'a', { tokens: 200, answer: 4 });
    model.advance(70);
    expect([model.stats.prefillTime.count, model.stats.requestPromptTokens.count]).toEqual([0, 0]);
    model.advance(1_000);
    const { stats } = model;
    expect(stats.finished).toEqual({ stop: 0, length: 1, abort: 0 });
    expect(stats.queueTime.sum).toBeCloseTo(0, 9);
    expect(stats.prefillTime.sum).toBeCloseTo(0.06, 9);
    expect(stats.decodeTime.sum).toBeCloseTo(0.012, 9);
    expect(stats.inferenceTime.sum).toBeCloseTo(0.072, 9);
    expect(stats.e2eLatency.sum).toBeCloseTo(0.074, 9);
    expect(stats.timePerOutputToken.sum).toBeCloseTo(0.004, 9);
    expect(stats.interTokenLatency.count).toBe(3);
    expect(stats.prefillComputedTokens.sum).toBe(200);
  });

  it('leave an aborted request out', () => {
    const model = started(PROFILE);
    submit(model, 'a', { tokens: 200, answer: 4 });
    model.advance(40);
    model.abort('a');
    model.advance(1_000);
    const { promptTokens, e2eLatency, finished, running } = model.stats;
    expect([promptTokens, e2eLatency.count, finished.length, running]).toEqual([0, 0, 0, 0]);
  });

  it("count a preemption with the victim's next token", () => {
    const model = started({ ...PROFILE, kvBlocks: 21 });
    submit(model, 'a', { tokens: 150, answer: 60, from: 1 });
    submit(model, 'b', { tokens: 130, answer: 60, from: 2, nowMs: 1 });
    let preempted = false;
    let counted = 0;
    for (let next = model.nextEventMs(); next !== null; next = model.nextEventMs()) {
      const before = model.stats.preemptions;
      const events = model.advance(next);
      if (events.some((event) => event.kind === 'preempted')) {
        preempted = true;
        expect(model.stats.preemptions).toBe(before);
      }
      if (model.stats.preemptions > before) {
        counted += 1;
        expect(events.some((event) => event.kind === 'token' && event.id === 'b')).toBe(true);
      }
    }
    expect(preempted).toBe(true);
    expect(counted).toBe(model.stats.requestPreemptions.sum);
  });

  it('show a waiting request only after the step that was under way when it came', () => {
    const model = started({ ...PROFILE, maxNumSeqs: 1 });
    submit(model, 'a', { tokens: 200, answer: 1 });
    model.advance(5);
    submit(model, 'b', { tokens: 50, answer: 1, from: 2, nowMs: 5 });
    model.advance(18.5);
    expect([model.stats.running, model.stats.waiting]).toEqual([1, 0]);
    model.advance(34.9);
    expect([model.stats.running, model.stats.waiting]).toEqual([1, 1]);
  });

  it('agree with each other as in a real exposition when nothing is in flight', () => {
    const model = started(PROFILE);
    for (const [at, tokens] of [200, 130, 264, 200].entries()) {
      submit(model, `${at}`, { tokens, answer: 5 + at, nowMs: at * 200 });
      model.advance(at * 200 + 199);
    }
    const { stats } = model;
    expect(stats.promptTokens).toBe(stats.prefixCacheQueries);
    expect(stats.cachedTokens).toBe(stats.prefixCacheHits);
    expect(stats.computedTokens).toBe(stats.prefillComputedTokens.sum);
    expect(stats.iterationTokens.sum).toBe(stats.computedTokens + stats.generationTokens);
    expect(stats.interTokenLatency.sum).toBeCloseTo(stats.decodeTime.sum, 9);
    expect(stats.kvUsageRatio).toBe(0);
  });
});

describe('requests that the engine ends itself', () => {
  it('count as ended by abort: before a first token as if it were one, their prefill from 0 on', () => {
    const model = started(PROFILE);
    submit(model, 'a', { tokens: 200, answer: 9, nowMs: 1_000 });
    model.advance(1_030);
    model.pause({ mode: 'abort', clearCache: false }, 1_030);
    model.advance(2_000);
    const { stats } = model;
    const endedSeconds = 1.0348;
    expect(stats.finished).toEqual({ stop: 0, length: 0, abort: 1 });
    expect([stats.promptTokens, stats.generationTokens]).toEqual([0, 0]);
    expect(stats.timeToFirstToken.sum).toBeCloseTo(endedSeconds - 1, 9);
    expect(stats.prefillTime.sum).toBeCloseTo(endedSeconds, 9);
    expect([stats.queueTime.sum, stats.decodeTime.sum]).toEqual([0, 0]);
    expect(stats.requestGenerationTokens.count).toBe(1);
    expect(stats.iterationTokens.sum).toBe(0);
    expect([stats.running, stats.kvUsageRatio]).toEqual([0, 0]);
  });

  it('count with the tokens they had, and an interval that brought none', () => {
    const model = started(PROFILE);
    submit(model, 'a', { tokens: 20, answer: 9 });
    model.advance(19);
    model.beginShutdown({ mode: 'abort' }, 19);
    model.advance(1_000);
    const { stats } = model;
    expect(stats.requestGenerationTokens.sum).toBe(stats.generationTokens);
    expect(stats.generationTokens).toBe(3);
    expect(stats.interTokenLatency.count).toBe(3);
    expect(stats.prefillTime.sum).toBeCloseTo(0.012, 9);
  });
});

describe('adapters', () => {
  it('are in use from the first token of a request to its end, as the last step told', () => {
    const model = started({ ...PROFILE, maxLoras: 2 });
    submit(model, 'a', { tokens: 20, answer: 9, lora: 'x' });
    submit(model, 'b', { tokens: 120, answer: 4, lora: 'y', from: 1 });
    model.advance(3);
    expect(model.stats.adapters).toEqual([]);
    model.advance(35);
    expect(model.stats.adapters).toEqual(['x']);
    model.abort('a');
    expect(model.stats.adapters).toEqual(['x']);
    model.advance(50);
    expect(model.stats.adapters).toEqual(['y']);
    model.advance(1_000);
    expect(model.stats.adapters).toEqual([]);
  });

  it('that wait for their turn show as deferred, within those that wait', () => {
    const model = started({ ...PROFILE, maxLoras: 1 });
    submit(model, 'a', { tokens: 20, answer: 9, lora: 'x' });
    submit(model, 'b', { tokens: 20, answer: 9, lora: 'y' });
    model.advance(30);
    expect([model.stats.waiting, model.stats.waitingDeferred]).toEqual([1, 1]);
    model.advance(1_000);
    expect([model.stats.waiting, model.stats.waitingDeferred]).toEqual([0, 0]);
  });
});

describe('admission limits', () => {
  it('count what they refused, each by itself', () => {
    const model = started({ ...PROFILE, maxQueuedRequests: 2, maxQueuedTokens: 150 });
    submit(model, 'a', { tokens: 100, answer: 1 });
    submit(model, 'b', { tokens: 60, answer: 1 });
    submit(model, 'c', { tokens: 10, answer: 1 });
    expect(model.stats.queueRejections).toBe(1);
    model.abort('a');
    submit(model, 'd', { tokens: 10, answer: 1 });
    model.abort('b');
    submit(model, 'e', { tokens: 150, answer: 1 });
    expect(model.openRequests).toBe(2);
    model.abort('d');
    submit(model, 'f', { tokens: 10, answer: 1 });
    expect([model.stats.queueRejections, model.stats.queueTokenRejections]).toEqual([1, 1]);
  });
});

describe('histogram', () => {
  it('is cumulative, each bound included', () => {
    const histogram = new Histogram([1, 2, 5]);
    for (const value of [0.5, 1, 2, 3, 100]) histogram.observe(value);
    expect(histogram.cumulative()).toEqual([2, 3, 4]);
    expect([histogram.count, histogram.sum]).toEqual([5, 106.5]);
  });
});
