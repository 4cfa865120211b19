import { expect, test } from 'vitest';
import { ENGINE_PROFILES, type EngineProfile } from '../engine/profiles.ts';
import { segmentOf, tokenIdsOf, type Segment } from '../workloads/synthetic-prompt.ts';
import { WorldContext } from './context.ts';
import { EngineHost, type EngineEnd } from './engine-host.ts';

const profile: EngineProfile = { ...ENGINE_PROFILES['demo']!, loadingMs: 100, jitterRatio: 0 };

function hostOf(context: WorldContext): EngineHost {
  return new EngineHost({
    host: '10.0.0.1:8000',
    model: 'm',
    profile,
    context,
    tellsStartTime: true,
    kvEvents: false,
    ranks: 1,
  });
}

function ask(host: EngineHost, segments: readonly Segment[], answer: Segment): EngineEnd[] {
  const ends: EngineEnd[] = [];
  host.call({
    id: `r${Math.round(segments.length)}`,
    tokenIds: tokenIdsOf(segments),
    answerIds: answer.tokenIds,
    salt: 's',
    firstToken: () => {},
    end: (end) => ends.push(end),
  });
  return ends;
}

function runAll(context: WorldContext): void {
  while (context.timeline.step(100_000));
}

test("a turn finds the last turn's prompt and answer in whole blocks, less the token not computed", () => {
  const context = new WorldContext(1);
  const host = hostOf(context);
  runAll(context);
  const user = segmentOf({ id: 1, tokens: 1_000, bytesPerToken: 4, assistant: false });
  const answer = segmentOf({ id: 2, tokens: 41, bytesPerToken: 4, assistant: true });
  const next = segmentOf({ id: 3, tokens: 50, bytesPerToken: 4, assistant: false });
  ask(host, [user], answer);
  runAll(context);
  const ends = ask(host, [user, answer, next], answer);
  runAll(context);
  // 1,000 + 41 − 1 tokens have KV: 65 blocks of 16.
  expect(ends).toEqual([
    { kind: 'complete', usage: { promptTokens: 1_091, cachedTokens: 1_040, completionTokens: 41 } },
  ]);
});

test('a crash fails what is open, refuses until the restart has loaded, and forgets the cache', () => {
  const context = new WorldContext(1);
  const host = hostOf(context);
  runAll(context);
  const user = segmentOf({ id: 1, tokens: 1_000, bytesPerToken: 4, assistant: false });
  const answer = segmentOf({ id: 2, tokens: 41, bytesPerToken: 4, assistant: true });
  const first = ask(host, [user], answer);
  context.timeline.step(context.timeline.nowMs + 1_000);
  host.crash();
  expect(first).toEqual([{ kind: 'failed', cause: 'reset' }]);
  expect(host.scrape()).toEqual({ kind: 'refused' });
  expect(ask(host, [user], answer)).toEqual([{ kind: 'refused' }]);
  host.restart();
  runAll(context);
  expect(host.scrape().kind).toBe('ok');
  expect(host.cachedTokens(user.tokenIds, 's')).toBe(0);
  expect(host.truth.openRequests).toBe(0);
});
