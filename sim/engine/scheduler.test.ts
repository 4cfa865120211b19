import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { KvCache } from './kv-cache.ts';
import { engineProfile } from './profiles.ts';
import { knownTokens, openRequest, type OpenRequest } from './request.ts';
import { Scheduler } from './scheduler.ts';
import { tokenSequence } from './sequence.ts';

const BLOCK = 16;

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
        const profile = { ...engineProfile('demo')!, blockTokens: BLOCK, ...limits };
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

  it('reserves what a running prefill still needs before it admits another', () => {
    const profile = { ...engineProfile('demo')!, blockTokens: BLOCK, maxNumBatchedTokens: 32 };
    const scheduler = new Scheduler(profile, new KvCache(12));
    scheduler.waiting.push(waiting('a', 1, 160));
    scheduler.plan(0);
    scheduler.waiting.push(waiting('b', 2, 48));
    scheduler.running[0]!.computed = 150;
    expect(scheduler.plan(1).admitted).toEqual([]);
  });
});
