import { expect, test } from 'vitest';
import type { TurnRecord } from './conversations.ts';
import type { RequestLine } from './fleet.ts';
import { scoreLoad, type ScoredTurn } from './scoring.ts';

function scored(
  place: { conversation: number; turn: number; replica: string | null },
  line: Partial<RequestLine> = {},
  turn: Partial<TurnRecord> = {},
): ScoredTurn {
  return {
    replica: place.replica,
    turn: {
      conversation: place.conversation,
      turn: place.turn,
      streamed: true,
      askedUsage: false,
      othersOpen: 0,
      headers: {},
      ttftMs: 100,
      totalMs: 200,
      text: 'x',
      finished: true,
      usage: null,
      error: null,
      ...turn,
    },
    line: {
      id: `${place.conversation}.${place.turn}`,
      attemptTtftMs: 100,
      predictedTtftMs: 100,
      promptTokens: 1_000,
      cachedTokens: 0,
      predictedCachedTokens: 0,
      ...line,
    },
  };
}

test('a later turn stays when it goes to the replica of the turn before', () => {
  const score = scoreLoad([
    scored({ conversation: 0, turn: 0, replica: 'a' }),
    scored({ conversation: 0, turn: 1, replica: 'a' }),
    scored({ conversation: 0, turn: 2, replica: 'b' }),
    scored({ conversation: 1, turn: 0, replica: 'b' }),
  ]);
  expect(score.stayedShare).toBe(0.5);
});

test('the error of predicted cached tokens counts later turns with a report above zero only', () => {
  const score = scoreLoad([
    scored(
      { conversation: 0, turn: 0, replica: 'a' },
      { cachedTokens: 100, predictedCachedTokens: 0 },
    ),
    scored(
      { conversation: 0, turn: 1, replica: 'a' },
      { cachedTokens: 0, predictedCachedTokens: 50 },
    ),
    scored(
      { conversation: 0, turn: 2, replica: 'a' },
      { cachedTokens: 800, predictedCachedTokens: 720 },
    ),
  ]);
  expect(score.cachedError.count).toBe(1);
  expect(score.cachedError.p50).toBeCloseTo(0.1);
  expect(score.cachedShare).toBeCloseTo(0.3);
});

test('the error of the predicted first token is told apart for turns sent beside others', () => {
  const score = scoreLoad([
    scored({ conversation: 0, turn: 0, replica: 'a' }, { predictedTtftMs: 150 }),
    scored({ conversation: 1, turn: 0, replica: 'a' }, { predictedTtftMs: 90 }, { othersOpen: 1 }),
    scored(
      { conversation: 2, turn: 0, replica: 'a' },
      { predictedTtftMs: 10 },
      { streamed: false },
    ),
  ]);
  expect(score.ttftError.count).toBe(2);
  expect(score.ttftErrorBusy.p50).toBeCloseTo(0.1);
});
