import { describe, expect, test } from 'vitest';
import type { LeaseId, RouterId } from '../../shared/model/ids.ts';
import type { LedgerEntry } from './ledger.ts';
import { PrefillObserver, type ObservedEngine } from './prefill-observer.ts';

const STEP_TOKENS = 2_048;
const MS_PER_TOKEN = 0.2;

function engineOf(waitingSinceMs: number | null): ObservedEngine {
  const prefillMs = (entry: LedgerEntry): number => entry.facts.uncachedTokens * MS_PER_TOKEN;
  return { stepTokens: STEP_TOKENS, waitingSinceMs, prefillMs };
}

function unseenOf(id: string, sentMs: number, tokens: number): LedgerEntry {
  const entry = entryOf(id, sentMs, tokens);
  return { ...entry, facts: { ...entry.facts, streamed: false } };
}

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
  const settled = observer.settle(engineOf(null), 20_000);
  expect(settled).toMatchObject([
    { ms: 2_100 * MS_PER_TOKEN, lone: false, instants: 2, sums: { uncached: 2_100 } },
  ]);
});

test('an instant is clean only when nothing sent before it still waits', () => {
  const observer = new PrefillObserver();
  observer.passed(entryOf('a', 0, 600), 400);
  expect(observer.settle(engineOf(100), 20_000)).toEqual([]);
  observer.passed(entryOf('b', 20_000, 500), 20_100);
  const settled = observer.settle(engineOf(20_100), 40_000);
  expect(settled).toMatchObject([{ ms: 100, sums: { uncached: 500 } }]);
});

test('where no instant is clean, an observation ends after three steps of tokens, with one clean end after half', () => {
  const observer = new PrefillObserver();
  for (let at = 1; at <= 9; at++) observer.passed(entryOf(`r${at}`, 0, 1_024), at * 200);
  const settled = observer.settle(engineOf(0), 20_000);
  expect(settled.map(({ ms, sums }) => [ms, sums.uncached])).toEqual([
    [600, 3_072],
    [1_200, 6_144],
  ]);
});

test('an instant settles its time after its last first token, in whatever order links tell them', () => {
  const told = [
    { toldMs: 300, atMs: 300, entry: entryOf('b', 250, 200) },
    { toldMs: 302, atMs: 301, entry: entryOf('c', 250, 50) },
    { toldMs: 350, atMs: 200, entry: entryOf('a', 150, 250) },
    { toldMs: 900, atMs: 900, entry: entryOf('d', 850, 250) },
  ];
  const observer = new PrefillObserver();
  const seen: [number, number][] = [];
  for (let nowMs = 0; nowMs <= 1_500; nowMs += 1) {
    for (const { toldMs, atMs, entry } of told) if (toldMs === nowMs) observer.passed(entry, atMs);
    for (const { sums } of observer.glimpse(engineOf(null), nowMs)) {
      seen.push([nowMs, sums.uncached]);
    }
  }
  expect(seen).toEqual([
    [700, 250],
    [801, 250],
    [1_400, 250],
  ]);
});

describe('a request that shows no first token', () => {
  test('belongs to the next instant of a stream that was sent after it', () => {
    const observer = new PrefillObserver();
    observer.sentUnseen(unseenOf('x', 0, 1_000));
    observer.passed(entryOf('a', 100, 500), 300);
    expect(observer.settle(engineOf(null), 20_000)).toMatchObject([
      { ms: 300, sums: { uncached: 1_500 } },
    ]);
  });

  test('makes the instant before it unclean: its head may be in that step', () => {
    const observer = new PrefillObserver();
    observer.passed(entryOf('a', 0, 500), 110);
    observer.sentUnseen(unseenOf('x', 60, 1_000));
    observer.passed(entryOf('b', 200, 500), 400);
    expect(observer.settle(engineOf(null), 20_000)).toMatchObject([
      { ms: 400, sums: { uncached: 2_000 } },
    ]);
  });

  test('sent just before a stream widens the stretch: it may come after it', () => {
    const observer = new PrefillObserver();
    observer.sentUnseen(unseenOf('x', 90, 500));
    observer.passed(entryOf('a', 100, 500), 200);
    observer.passed(entryOf('b', 160, 500), 390);
    expect(observer.settle(engineOf(null), 20_000)).toMatchObject([
      { ms: 300, sums: { uncached: 1_500 } },
    ]);
  });

  test('that had surely ended before the stream was sent is no part of it', () => {
    const observer = new PrefillObserver();
    observer.sentUnseen(unseenOf('x', 0, 1_000));
    observer.passed(entryOf('a', 5_000, 500), 5_100);
    expect(observer.settle(engineOf(null), 20_000)).toMatchObject([
      { ms: 100, sums: { uncached: 500 } },
    ]);
  });

  test('that may or may not have ended by then leaves nothing to learn', () => {
    const observer = new PrefillObserver();
    observer.sentUnseen(unseenOf('x', 0, 1_000));
    observer.passed(entryOf('a', 250, 500), 350);
    expect(observer.settle(engineOf(null), 20_000)).toEqual([]);
  });

  test('that is given up blurs the stretch it was given up in', () => {
    const observer = new PrefillObserver();
    const given = unseenOf('x', 0, 1_000);
    observer.sentUnseen(given);
    observer.abandonedUnseen(given, 80);
    observer.passed(entryOf('a', 50, 500), 300);
    expect(observer.settle(engineOf(null), 20_000)).toEqual([]);
  });

  test('is never kept without bound, and what was forgotten teaches nothing', () => {
    const observer = new PrefillObserver();
    for (let at = 0; at < 2_000; at++) observer.sentUnseen(unseenOf(`x${at}`, at, 10));
    observer.passed(entryOf('a', 2_000, 500), 6_000);
    expect(observer.settle(engineOf(null), 20_000)).toEqual([]);
  });
});

test('a stretch is glimpsed with estimated tokens when it ends, and settles with the exact ones', () => {
  const observer = new PrefillObserver();
  const entry = { ...entryOf('a', 0, 1_000), endedMs: null as number | null };
  const { usage } = entry;
  entry.usage = null;
  observer.passed(entry, 200);
  expect(observer.settle(engineOf(null), 1_000)).toEqual([]);
  const [glimpsed] = observer.glimpse(engineOf(null), 1_000);
  expect(glimpsed).toMatchObject({ ms: 200, lone: true, sums: { uncached: 1_000 } });
  expect(observer.glimpse(engineOf(null), 1_000)).toEqual([]);
  entry.endedMs = 30_000;
  entry.usage = { ...usage!, promptTokens: 1_100 };
  const settled = observer.settle(engineOf(null), 30_000);
  expect(settled).toMatchObject([{ id: glimpsed?.id, ms: 200, sums: { uncached: 1_100 } }]);
});
