// What holds whatever is done to an engine.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import type { EngineEvent } from './events.ts';
import type { EngineModel } from './model.ts';
import { drain, request, SMALL, started } from './model-test-harness.ts';

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
    const model = started({ ...SMALL, kvBlocks: 33, jitterRatio: 0.1 }, { seed: 7 });
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
