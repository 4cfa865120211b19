import { expect, test } from 'vitest';
import type { LeaseId, RouterId } from '../../shared/model/ids.ts';
import type { LedgerEntry } from './ledger.ts';
import { PrefillObserver } from './prefill-observer.ts';

const STEP_TOKENS = 2_048;
const MS_PER_TOKEN = 0.2;

function entryOf(id: string, sentMs: number, tokens: number): LedgerEntry {
  return {
    lease: id as LeaseId,
    router: 'r' as RouterId,
    facts: {
      lease: id as LeaseId,
      incarnation: null,
      promptTokens: tokens,
      uncachedTokens: tokens,
      matchedTokens: 0,
      promptBytes: 4 * tokens,
      parts: {},
      streamed: true,
      maxTokens: null,
      chains: [],
    },
    sentMs,
    firstTokenMs: null,
    prefillEndMs: null,
    endedMs: sentMs + 10_000,
    outcome: 'complete',
    usage: { promptTokens: tokens, cachedTokens: 0, completionTokens: 1 },
  };
}

test('a prompt whose head was computed in the step before teaches nothing by itself', () => {
  // One step takes 600 + 1,448 tokens, the next the last 52 of the second prompt.
  const observer = new PrefillObserver();
  observer.passed(entryOf('a', 0, 600), STEP_TOKENS * MS_PER_TOKEN);
  observer.passed(entryOf('b', 0, 1_500), 2_100 * MS_PER_TOKEN);
  const settled = observer.settle({ stepTokens: STEP_TOKENS, waitingSinceMs: null }, 20_000);
  expect(settled).toMatchObject([
    { ms: 2_100 * MS_PER_TOKEN, steps: 2, sums: { uncached: 2_100 } },
  ]);
});

test('an instant is clean only when nothing sent before it still waits', () => {
  const observer = new PrefillObserver();
  observer.passed(entryOf('a', 0, 600), 400);
  expect(observer.settle({ stepTokens: STEP_TOKENS, waitingSinceMs: 100 }, 20_000)).toEqual([]);
  observer.passed(entryOf('b', 20_000, 500), 20_100);
  const settled = observer.settle({ stepTokens: STEP_TOKENS, waitingSinceMs: 20_100 }, 40_000);
  expect(settled).toMatchObject([{ ms: 100, sums: { uncached: 500 } }]);
});

test('where no instant is clean, an observation ends after four steps of tokens', () => {
  const observer = new PrefillObserver();
  for (let at = 1; at <= 12; at++) observer.passed(entryOf(`r${at}`, 0, 1_024), at * 200);
  const settled = observer.settle({ stepTokens: STEP_TOKENS, waitingSinceMs: 0 }, 20_000);
  expect(settled.map(({ ms, sums }) => [ms, sums.uncached])).toEqual([[1_600, 8_192]]);
});
