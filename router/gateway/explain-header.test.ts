import { validateHeaderValue } from 'node:http';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Candidate, Decision } from '../../shared/model/decision.ts';
import type { ReplicaId } from '../../shared/model/ids.ts';
import { EXPLAIN_BYTES, explainHeader } from './explain-header.ts';

function candidate(replica: string, more: Partial<Candidate> = {}): Candidate {
  return {
    target: { replica: replica as ReplicaId, rank: 0 },
    removed: null,
    costMs: 12.345,
    waitMs: 2,
    prefillMs: 10.345,
    predictedTtftMs: 12.345,
    promptTokens: 40,
    cachedTokens: 32,
    full: false,
    kvRoom: null,
    drawProbability: 2 / 3,
    ...more,
  };
}

function decision(candidates: readonly Candidate[]): Decision {
  const [first] = candidates;
  return { kind: 'send', reason: 'tie_draw', target: first?.target ?? null, candidates };
}

test('a decision is told with its candidates, their costs and what became of the others', () => {
  const told = explainHeader(decision([candidate('a'), candidate('b', { removed: 'phase' })]));
  expect(JSON.parse(told)).toEqual({
    kind: 'send',
    reason: 'tie_draw',
    target: 'a#0',
    candidates: [
      {
        target: 'a#0',
        costMs: 12.3,
        waitMs: 2,
        prefillMs: 10.3,
        ttftMs: 12.3,
        tokens: 40,
        cached: 32,
        p: 0.667,
      },
      { target: 'b#0', removed: 'phase' },
    ],
  });
});

test('whatever replicas are called, it is a header, JSON, and no longer than its bound', () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ unit: 'binary', maxLength: 200 }), { maxLength: 16 }),
      (names) => {
        const told = explainHeader(decision(names.map((name) => candidate(name))));
        expect(() => validateHeaderValue('x-spillway-explain', told)).not.toThrow();
        const shown = JSON.parse(told) as { candidates: unknown[]; more?: number };
        expect(shown.candidates.length + (shown.more ?? 0)).toBe(names.length);
        // What is left without any candidate is the target's own name: six times 200 characters at most.
        expect(told.length).toBeLessThanOrEqual(EXPLAIN_BYTES);
      },
    ),
  );
});
