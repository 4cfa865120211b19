import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { KvCache } from './kv-cache.ts';
import { engineProfile } from './profiles.ts';
import { knownTokens, openRequest, type OpenRequest } from './request.ts';
import { Scheduler } from './scheduler.ts';
import { tokenSequence } from './sequence.ts';

const BLOCK = 16;
const DEMO = { ...engineProfile('demo')!, blockTokens: BLOCK };

function waiting(id: string, from: number, tokens: number): OpenRequest {
  const ids = Uint32Array.from({ length: tokens }, (_, at) => from * 100_000 + at);
  return openRequest(
    { id, sequence: tokenSequence(ids, BLOCK), answerTokens: 1_000, finishReason: 'length' },
    { arrivedMs: 0, queuedMs: 0 },
  );
}

describe('scheduler', () => {
  it('keeps every step within its budget and slots, gives decodes their token, and admits in order', () => {
    const prompts = fc.array(
      fc.record({ from: fc.nat(3), tokens: fc.integer({ min: 1, max: 250 }) }),
      {
        minLength: 1,
        maxLength: 12,
      },
    );
    const sizes = fc.record({
      maxNumBatchedTokens: fc.integer({ min: 4, max: 100 }),
      maxNumSeqs: fc.integer({ min: 1, max: 4 }),
      usableBlocks: fc.integer({ min: 30, max: 60 }),
    });
    fc.assert(
      fc.property(prompts, sizes, (list, { usableBlocks, ...limits }) => {
        const profile = { ...DEMO, ...limits };
        const cache = new KvCache(usableBlocks);
        const scheduler = new Scheduler(profile, cache);
        list.forEach(({ from, tokens }, at) =>
          scheduler.waiting.push(waiting(`${at}`, from, tokens)),
        );
        const admitted: string[] = [];
        for (let nowMs = 0; nowMs < 60; nowMs += 1) {
          const decoding = scheduler.running.filter(
            (each) => knownTokens(each) - each.computed === 1,
          );
          const plan = scheduler.plan(nowMs);
          const scheduled = plan.chunks.reduce((sum, chunk) => sum + chunk.tokens, 0);
          expect(scheduled).toBeLessThanOrEqual(profile.maxNumBatchedTokens);
          expect(scheduler.running.length).toBeLessThanOrEqual(profile.maxNumSeqs);
          expect(plan.chunks.every((chunk) => chunk.tokens >= 1)).toBe(true);
          expect(new Set(plan.chunks.map((chunk) => chunk.request)).size).toBe(plan.chunks.length);
          expect(plan.chunks.length > 0 || list.length === 0).toBe(true);
          if (plan.preempted.length > 0) expect(plan.admitted).toEqual([]);
          const inPlan = new Set(plan.chunks.map((chunk) => chunk.request));
          const first = decoding.filter((each) => scheduler.running.indexOf(each) === 0);
          for (const each of first) expect(inPlan.has(each)).toBe(true);
          admitted.push(...plan.admitted.map((each) => each.id));
          for (const { request, tokens } of plan.chunks) {
            request.computed += tokens;
            expect(request.blocks.length * BLOCK).toBeGreaterThanOrEqual(request.computed);
            if (request.computed === knownTokens(request)) {
              request.generated += 1;
              request.sequence.append(1);
            }
            if (knownTokens(request) >= 300) scheduler.drop(request);
          }
          if (scheduler.running.length + scheduler.waiting.length === 0) break;
        }
        expect(admitted.map(Number)).toEqual(admitted.map(Number).toSorted((a, b) => a - b));
      }),
      { numRuns: 200 },
    );
  });
});

describe('scheduling by priority', () => {
  const profile = { ...DEMO, schedulingPolicy: 'priority' as const };
  const of = (id: string, priority: number, arrivedMs: number): OpenRequest => ({
    ...waiting(id, Number(id), 40),
    priority,
    arrivedMs,
  });

  it('admits the lower number first, then who came earlier', () => {
    const scheduler = new Scheduler({ ...profile, maxNumSeqs: 3 }, new KvCache(100));
    for (const each of [of('1', 5, 0), of('2', 0, 2), of('3', 0, 1), of('4', -1, 9)]) {
      scheduler.enqueue(each);
    }
    expect(scheduler.plan(0).admitted.map(({ id }) => id)).toEqual(['4', '3', '2']);
    expect(scheduler.waiting.map(({ id }) => id)).toEqual(['1']);
  });

  it('preempts the least urgent, although it had its token in this step already', () => {
    const scheduler = new Scheduler(profile, new KvCache(6));
    for (const each of [of('1', 9, 0), of('2', 0, 1)]) scheduler.enqueue(each);
    const first = scheduler.plan(0);
    expect(first.admitted.map(({ id }) => id)).toEqual(['2', '1']);
    // Both go on until the cache is full: `1`, admitted last, stands first in the batch.
    scheduler.running.reverse();
    Object.assign(scheduler.running[0]!, { computed: 47, generated: 8 });
    Object.assign(scheduler.running[1]!, { computed: 48, generated: 9 });
    const { preempted, chunks } = scheduler.plan(1);
    expect(preempted.map(({ id }) => id)).toEqual(['1']);
    expect(chunks.map(({ request }) => request.id)).toEqual(['2']);
    expect(scheduler.waiting.map(({ id }) => id)).toEqual(['1']);
  });
});

describe('adapters', () => {
  const of = (id: string, lora: string | undefined): OpenRequest => {
    const sequence = tokenSequence(new Uint32Array(20), BLOCK, { lora });
    const request = { id, sequence, answerTokens: 2, finishReason: 'length' as const };
    return openRequest(request, { arrivedMs: 0, queuedMs: 0 });
  };

  it('defers a request whose adapter would be one too many, and lets those behind it pass', () => {
    const scheduler = new Scheduler({ ...DEMO, maxLoras: 1 }, new KvCache(100));
    for (const each of [of('a', 'x'), of('b', 'y'), of('c', undefined), of('d', 'x')]) {
      scheduler.enqueue(each);
    }
    expect(scheduler.plan(0).admitted.map(({ id }) => id)).toEqual(['a', 'c', 'd']);
    expect([scheduler.waiting.map(({ id }) => id), scheduler.deferred]).toEqual([['b'], 1]);
    for (const each of [...scheduler.running]) scheduler.drop(each);
    expect(scheduler.plan(1).admitted.map(({ id }) => id)).toEqual(['b']);
    expect(scheduler.deferred).toBe(0);
  });
});
