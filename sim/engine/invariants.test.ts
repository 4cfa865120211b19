// What holds whatever is done to an engine.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { drain, request, SMALL, started } from './model-test-harness.ts';
import type { EngineEvent } from './events.ts';
import type { EngineModel } from './model.ts';
import type { EngineProfile } from './profiles.ts';

const modes = fc.constantFrom('abort' as const, 'wait' as const, 'keep' as const);

const action = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('submit' as const),
      from: fc.nat(4),
      tokens: fc.integer({ min: 1, max: 300 }),
      answer: fc.integer({ min: 1, max: 120 }),
      priority: fc.integer({ min: -1, max: 1 }),
      lora: fc.constantFrom(undefined, undefined, 'x', 'y'),
    }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(200) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('abort' as const), at: fc.nat(50) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('pause' as const), mode: modes }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('sleep' as const),
      mode: modes,
      level: fc.constantFrom(0 as const, 1 as const, 2 as const),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        'freeze' as const,
        'thaw' as const,
        'resume' as const,
        'reset' as const,
      ),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constantFrom('crash' as const, 'kill' as const, 'drain' as const, 'stop' as const),
    }),
  },
);
type Action = typeof action extends fc.Arbitrary<infer T> ? T : never;

/** Little KV and few slots; by priority or not. */
const PROFILES: readonly EngineProfile[] = [
  { ...SMALL, kvBlocks: 33, jitterRatio: 0.1, frontMs: 2 },
  { ...SMALL, kvBlocks: 33, schedulingPolicy: 'priority', coldSteps: 1, coldStepMs: 30 },
];

interface Run {
  readonly events: EngineEvent[];
  /** Requests that were taken and that nobody aborted, by incarnation. */
  readonly taken: Set<string>;
  readonly model: EngineModel;
}

/** Carries out the actions; `check` sees the model after each, and once more when all is done and drained. */
function run(
  actions: readonly Action[],
  profile: EngineProfile,
  check: (model: EngineModel, nowMs: number) => void,
): Run {
  const model = started(profile, { seed: 7, kvEvents: true });
  const events: EngineEvent[] = [];
  const taken = new Set<string>();
  let nowMs = 0;
  let submitted = 0;
  const live = (): void => {
    if (model.phase !== 'down' && model.phase !== 'dead') return;
    for (const id of taken) if (!events.some((event) => ended(event, id))) taken.delete(id);
    model.restart(nowMs, 50);
  };
  for (const each of actions) {
    events.push(...model.advance(nowMs));
    if (each.kind === 'submit') {
      const { from, tokens, answer, priority, lora } = each;
      const id = `r${submitted++}`;
      const options = { from, tokens, answer, priority, identity: { lora } };
      if (model.submit(request(id, options), nowMs).ok) taken.add(id);
    } else if (each.kind === 'abort') {
      const id = `r${each.at % Math.max(1, submitted)}`;
      if (model.abort(id)) taken.delete(id);
    } else if (each.kind === 'advance') nowMs += each.ms;
    else if (each.kind === 'pause') model.pause({ mode: each.mode, clearCache: true }, nowMs);
    else if (each.kind === 'sleep') model.sleep(each, nowMs);
    else if (each.kind === 'crash') events.push(...model.crash(nowMs));
    else if (each.kind === 'kill') events.push(...model.killCore(nowMs));
    else if (each.kind === 'drain') model.beginShutdown({ mode: 'drain', timeoutMs: 300 }, nowMs);
    else if (each.kind === 'stop') model.beginShutdown({ mode: 'abort' }, nowMs);
    else if (each.kind === 'reset') model.resetPrefixCache();
    else model[each.kind](nowMs);
    events.push(...model.advance(nowMs));
    check(model, nowMs);
    live();
  }
  model.thaw(nowMs);
  model.resume(nowMs);
  events.push(...drain(model));
  check(model, nowMs);
  return { events, taken, model };
}

function ended(event: EngineEvent, id: string): boolean {
  return (event.kind === 'finished' || event.kind === 'failed') && event.id === id;
}

const runs = fc.tuple(fc.array(action, { maxLength: 80 }), fc.constantFrom(...PROFILES));

describe('invariants', () => {
  it('conserves KV blocks, bounds the batch, and leaves nothing held by nobody', () => {
    fc.assert(
      fc.property(runs, ([actions, profile]) => {
        const { model } = run(actions, profile, (each, nowMs) => {
          const truth = each.truth(nowMs);
          expect(truth.freeBlocks + truth.heldBlocks).toBe(32);
          expect(truth.running).toBeLessThanOrEqual(SMALL.maxNumSeqs);
          expect(truth.running + truth.waiting).toBeGreaterThanOrEqual(truth.openRequests);
          expect(truth.waitingPrefillTokens).toBeGreaterThanOrEqual(0);
          expect(truth.waitingPrefillMs).toBeGreaterThanOrEqual(0);
          if (truth.running === 0) expect(truth.heldBlocks).toBe(0);
        });
        expect(model.truth(1e9)).toMatchObject({ openRequests: 0, running: 0, waiting: 0 });
      }),
      { numRuns: 150 },
    );
  });

  it('ends every request that it took and nobody aborted exactly once, its tokens in order', () => {
    fc.assert(
      fc.property(runs, ([actions, profile]) => {
        const { events, taken } = run(actions, profile, () => {});
        const tokens = new Map<string, number>();
        const ends = new Set<string>();
        let lastMs = 0;
        for (const event of events) {
          expect(event.atMs).toBeGreaterThanOrEqual(lastMs);
          lastMs = event.atMs;
          if (!('id' in event) || event.kind === 'preempted') continue;
          expect(ends.has(event.id)).toBe(false);
          if (event.kind === 'token') {
            expect(event.index).toBe(tokens.get(event.id) ?? 0);
            tokens.set(event.id, event.index + 1);
            continue;
          }
          ends.add(event.id);
          if (event.kind === 'finished') {
            expect(event.answerTokens).toBe(tokens.get(event.id) ?? 0);
          }
        }
        for (const id of taken) expect(ends.has(id)).toBe(true);
      }),
      { numRuns: 150 },
    );
  });

  it('never computes more in a step than the budget allows', () => {
    fc.assert(
      fc.property(runs, ([actions, profile]) => {
        run(actions, profile, (model) => {
          model.onStep = ({ prefillTokens, decodes }) =>
            expect(prefillTokens + decodes).toBeLessThanOrEqual(SMALL.maxNumBatchedTokens);
        });
      }),
      { numRuns: 50 },
    );
  });

  it('says the same for the same seed and calls', () => {
    fc.assert(
      fc.property(runs, ([actions, profile]) => {
        const [first, again] = [1, 2].map(() => run(actions, profile, () => {}).events);
        expect(first).toEqual(again);
      }),
      { numRuns: 50 },
    );
  });
});
