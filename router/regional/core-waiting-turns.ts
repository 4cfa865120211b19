// Which conversations wait in the queue with their next turn, and what of a target's KV cache they want kept
// (`router/policy/waiting-turns.ts`). Those that wait for KV room want none kept: theirs was evicted.

import type { Verdict } from './core-decide.ts';
import type { PoolState, RegionalState, RequestState, TargetState } from './core-state.ts';
import { COLUMN, type Weighing } from './core-weighing.ts';

/** It waits for anything but KV room. */
export function noteTurnWaits(
  request: RequestState,
  { weighing }: Pick<Verdict, 'weighing'>,
): void {
  const { pool, earlier } = request;
  const [prompt, ...others] = request.request.prompts;
  const before = prompt?.turnEnds.at(-1);
  if (before === undefined || others.length > 0) return;
  const k = holdsMost(weighing);
  if (k < 0) return;
  const { turns, waiting } = pool.workingSet;
  const touchedMs = (earlier ?? turns.look(before))?.endedMs ?? request.arrivedMs;
  const tokens = weighing.value(k, COLUMN.matchedTokens);
  waiting.waits(request.request.id, { target: weighing.target(k), tokens, touchedMs });
}

export function noteTurnWaitsNoMore({ request, pool }: RequestState): void {
  pool.workingSet.waiting.left(request.id);
}

/** Brings up to date what `waitingTokens` says. */
export function settleWaiting({ nowMs }: RegionalState, { workingSet }: PoolState): void {
  const { waiting, gaps } = workingSet;
  waiting.settle(nowMs, () => gaps.tauMs(nowMs));
}

/** Of the target's working set, what no agent counts: this router's part, as many times as there are routers. */
export function waitingTokens(target: TargetState): number {
  const { waiting } = target.replica.pool.workingSet;
  return waiting.tokens(target) * Math.max(1, target.report?.routers ?? 1);
}

/** -1 where nobody holds any of it. */
function holdsMost(weighing: Weighing): number {
  let most = -1;
  let tokens = 0;
  for (let k = 0; k < weighing.count; k += 1) {
    const matched = weighing.value(k, COLUMN.matchedTokens);
    if (matched <= tokens) continue;
    tokens = matched;
    most = k;
  }
  return most;
}
