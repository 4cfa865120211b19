// Figures of one load: where the turns went, what the engines had cached, and how near the predictions were.

import type { TurnRecord } from './conversations.ts';
import type { RequestLine } from './fleet.ts';
import { spreadOf, type Spread } from './quantile.ts';

export interface ScoredTurn {
  readonly turn: TurnRecord;
  /** Where it was served; null when unknown. */
  readonly replica: string | null;
  readonly line: RequestLine | null;
}

export interface LoadScore {
  readonly turns: number;
  readonly failed: readonly string[];
  /** ms to the first piece of text as the client saw it, streams only. */
  readonly ttftMs: Spread;
  /** Share of all prompt tokens that the engines reported as cached. */
  readonly cachedShare: number | null;
  /** Share of later turns that went to the replica of the turn before. */
  readonly stayedShare: number | null;
  /** |predicted − reported| ÷ reported, over later turns with reported > 0. */
  readonly cachedError: Spread;
  /** |predicted − measured| ÷ measured of the time to first token, streams only. */
  readonly ttftError: Spread;
  /** The same over turns that were sent while another turn was open. */
  readonly ttftErrorBusy: Spread;
}

export function scoreLoad(turns: readonly ScoredTurn[]): LoadScore {
  return {
    turns: turns.length,
    failed: turns.flatMap(({ turn }) =>
      turn.error === null
        ? []
        : [`conversation ${turn.conversation} turn ${turn.turn}: ${turn.error}`],
    ),
    ttftMs: spreadOf(turns.flatMap(({ turn }) => turn.ttftMs ?? [])),
    cachedShare: cachedShare(turns),
    stayedShare: stayedShare(turns),
    cachedError: spreadOf(turns.flatMap(cachedErrorOf)),
    ttftError: spreadOf(turns.flatMap(ttftErrorOf)),
    ttftErrorBusy: spreadOf(turns.filter((t) => t.turn.othersOpen > 0).flatMap(ttftErrorOf)),
  };
}

function promptTokensOf({ turn, line }: ScoredTurn): number | null {
  return turn.usage?.promptTokens ?? line?.promptTokens ?? null;
}

function cachedTokensOf({ turn, line }: ScoredTurn): number | null {
  return turn.usage?.cachedTokens ?? line?.cachedTokens ?? null;
}

function cachedShare(turns: readonly ScoredTurn[]): number | null {
  let prompt = 0;
  let cached = 0;
  for (const turn of turns) {
    const tokens = promptTokensOf(turn);
    const hit = cachedTokensOf(turn);
    if (tokens === null || hit === null) continue;
    prompt += tokens;
    cached += hit;
  }
  return prompt === 0 ? null : cached / prompt;
}

function stayedShare(turns: readonly ScoredTurn[]): number | null {
  const places = new Map<string, string>();
  for (const { turn, replica } of turns) {
    if (replica !== null) places.set(`${turn.conversation}/${turn.turn}`, replica);
  }
  let later = 0;
  let stayed = 0;
  for (const { turn, replica } of turns) {
    const before = places.get(`${turn.conversation}/${turn.turn - 1}`);
    if (replica === null || before === undefined) continue;
    later += 1;
    if (before === replica) stayed += 1;
  }
  return later === 0 ? null : stayed / later;
}

function cachedErrorOf(scored: ScoredTurn): number[] {
  const reported = cachedTokensOf(scored);
  const predicted = scored.line?.predictedCachedTokens ?? null;
  if (scored.turn.turn === 0 || predicted === null || reported === null || reported <= 0) return [];
  return [Math.abs(predicted - reported) / reported];
}

function ttftErrorOf({ turn, line }: ScoredTurn): number[] {
  // From the sending of the attempt, as the prediction is.
  const measured = line?.attemptTtftMs ?? null;
  const predicted = line?.predictedTtftMs ?? null;
  if (!turn.streamed || measured === null || predicted === null || measured <= 0) return [];
  return [Math.abs(predicted - measured) / measured];
}
