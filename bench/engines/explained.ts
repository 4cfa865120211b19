// What Spillway's own request log says about a cell: where turns went and for which reasons, how long they waited in the
// router and how long in the engine, and how far its predictions were off. It is what says why where it does not win.

import { readRequestLines, type RequestLine } from '../../test/engines/fleet.ts';
import { spreadOf, type Spread } from '../../test/engines/quantile.ts';
import { waitFor } from '../../test/engines/wait.ts';
import type { TurnResult } from './generator.ts';

export interface Explained {
  /** Turns by the replica that served them. */
  readonly replicas: Readonly<Record<string, number>>;
  /** Share of later turns that went where the one before did; null without any. */
  readonly stayedShare: number | null;
  /** Turns by the reason of the decision. */
  readonly reasons: Readonly<Record<string, number>>;
  /** ms in the router's queue, of first turns and of later ones. */
  readonly firstQueueMs: Spread;
  readonly laterQueueMs: Spread;
  /** ms from sending to the first token, in the engine. */
  readonly firstEngineMs: Spread;
  readonly laterEngineMs: Spread;
  /** Measured ÷ predicted time to first token in the engine. */
  readonly ttftTimesPredicted: Spread;
  /** Tokens predicted as cached ÷ tokens that the prompts had, and the same as the engines reported. */
  readonly predictedCachedShare: number | null;
  readonly reportedCachedShare: number | null;
  readonly slowest: readonly SlowTurn[];
}

/** A turn as the router logged it, the slowest first. */
export interface SlowTurn {
  readonly conversation: number;
  readonly turn: number;
  readonly ttftMs: number;
  readonly replica: string | null;
  readonly reason: string | null;
  readonly queueMs: number | null;
  readonly engineMs: number | null;
  readonly predictedEngineMs: number | null;
  readonly promptTokens: number | null;
  readonly predictedCachedTokens: number | null;
  readonly cachedTokens: number | null;
}

interface Logged {
  readonly turn: TurnResult;
  readonly line: RequestLine;
}

const SLOWEST = 10;
/** The log is written behind the answers. */
const LOG_LIMIT_MS = 3_000;

/** Null where the arm has no such log. */
export async function explainCell(
  turns: readonly TurnResult[],
  logs: readonly string[],
): Promise<Explained | null> {
  if (logs.length === 0) return null;
  const read = (): Map<string, RequestLine> =>
    new Map(logs.flatMap((path) => [...readRequestLines(path)]));
  const answered = turns.filter(({ requestId }) => requestId !== null);
  const whole = { what: 'every turn is logged', limitMs: LOG_LIMIT_MS };
  const lines = await waitFor(whole, () => {
    const seen = read();
    return answered.every(({ requestId }) => seen.has(requestId ?? '')) ? seen : null;
  }).catch(read);
  return explain(turns, lines);
}

export function explain(
  turns: readonly TurnResult[],
  lines: ReadonlyMap<string, RequestLine>,
): Explained {
  const logged = turns.flatMap((turn): Logged[] => {
    const line = lines.get(turn.requestId ?? '');
    return line === undefined ? [] : [{ turn, line }];
  });
  const first = logged.filter(({ turn }) => turn.turn === 0);
  const later = logged.filter(({ turn }) => turn.turn > 0);
  const queueMs = (of: readonly Logged[]): Spread =>
    spreadOf(of.map(({ line }) => line.queueMs ?? 0));
  const engineMs = (of: readonly Logged[]): Spread =>
    spreadOf(of.flatMap(({ line }) => line.attemptTtftMs ?? []));
  return {
    replicas: counted(logged.map(({ line }) => line.replica ?? 'none')),
    stayedShare: stayedShare(logged),
    reasons: counted(logged.map(({ line }) => line.reason ?? 'none')),
    firstQueueMs: queueMs(first),
    laterQueueMs: queueMs(later),
    firstEngineMs: engineMs(first),
    laterEngineMs: engineMs(later),
    ttftTimesPredicted: spreadOf(logged.flatMap(timesPredicted)),
    predictedCachedShare: shareOf(logged, ({ line }) => line.predictedCachedTokens ?? null),
    reportedCachedShare: shareOf(logged, ({ turn }) => turn.cachedTokens),
    slowest: slowestOf(logged),
  };
}

function counted(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

/** By the log: an answer that began with keep-alive comments told no replica in its head. */
function stayedShare(logged: readonly Logged[]): number | null {
  const places = new Map<string, string>();
  for (const { turn, line } of logged) {
    if (typeof line.replica === 'string')
      places.set(`${turn.conversation}/${turn.turn}`, line.replica);
  }
  let later = 0;
  let stayed = 0;
  for (const { turn, line } of logged) {
    const before = places.get(`${turn.conversation}/${turn.turn - 1}`);
    if (typeof line.replica !== 'string' || before === undefined) continue;
    later += 1;
    if (before === line.replica) stayed += 1;
  }
  return later === 0 ? null : stayed / later;
}

function timesPredicted({ line }: Logged): number[] {
  const { attemptTtftMs = null, predictedTtftMs = null } = line;
  if (attemptTtftMs === null || predictedTtftMs === null || predictedTtftMs <= 0) return [];
  return [attemptTtftMs / predictedTtftMs];
}

function shareOf(logged: readonly Logged[], tokens: (of: Logged) => number | null): number | null {
  let prompt = 0;
  let found = 0;
  for (const each of logged) {
    const cached = tokens(each);
    if (each.turn.promptTokens === null || cached === null) continue;
    prompt += each.turn.promptTokens;
    found += cached;
  }
  return prompt === 0 ? null : found / prompt;
}

function slowestOf(logged: readonly Logged[]): SlowTurn[] {
  return logged
    .flatMap(({ turn, line }): SlowTurn[] => {
      if (turn.ttftMs === null) return [];
      return [
        {
          conversation: turn.conversation,
          turn: turn.turn,
          ttftMs: turn.ttftMs,
          replica: line.replica ?? null,
          reason: line.reason ?? null,
          queueMs: line.queueMs ?? null,
          engineMs: line.attemptTtftMs ?? null,
          predictedEngineMs: line.predictedTtftMs ?? null,
          promptTokens: turn.promptTokens,
          predictedCachedTokens: line.predictedCachedTokens ?? null,
          cachedTokens: turn.cachedTokens,
        },
      ];
    })
    .sort((a, b) => b.ttftMs - a.ttftMs)
    .slice(0, SLOWEST);
}
