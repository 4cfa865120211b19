// Cells made up for tests of what is done with them.

import type { CellResult } from './cell.ts';
import type { TurnResult } from './generator.ts';

export function turnOf(
  conversation: number,
  turn: number,
  ttftMs: number | null,
  more: Partial<TurnResult> = {},
): TurnResult {
  return {
    conversation,
    turn,
    ttftMs,
    shared: false,
    lateMs: 0,
    totalMs: (ttftMs ?? 0) + 100,
    promptTokens: 1_000,
    cachedTokens: turn === 0 ? 0 : 900,
    completionTokens: 30,
    requestId: null,
    replica: null,
    retries: 0,
    error: ttftMs === null ? 'status 503' : null,
    ...more,
  };
}

export function cellOf(arm: string, seed: number, turns: readonly TurnResult[]): CellResult {
  return {
    load: 'moderate',
    arm,
    seed,
    engines: 'vllm',
    measuredAt: '2026-11-30T00:00:00.000Z',
    turns,
    runMs: 40_000,
    cpuS: { router: 0.5, agent: 0.2, generator: 1, engines: [20, 20], others: 0 },
    perEngine: [1, 1],
    lateMsP95: 1,
    marks: [],
    explained: null,
  };
}
