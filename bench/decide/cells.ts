// What is measured: pools of so many replicas, each asked for prompts of so many tokens. A cell is REPLICASxTOKENS.
//
// Between two decisions as many reports come as a busy region has, so that nothing that a report invalidates stays
// cached for free.

import { decide, type Verdict } from '../../router/regional/core-decide.ts';
import { enter } from '../../router/regional/core-requests.ts';
import { Fleet } from './fleet.ts';

export interface Cell {
  readonly replicas: number;
  readonly kTokens: number;
}

export const CELLS: readonly Cell[] = [
  { replicas: 8, kTokens: 1 },
  { replicas: 8, kTokens: 32 },
  { replicas: 64, kTokens: 1 },
  { replicas: 64, kTokens: 32 },
  { replicas: 1_000, kTokens: 1 },
  { replicas: 1_000, kTokens: 32 },
  { replicas: 1_000, kTokens: 128 },
];

/** Reports that reach a router between two decisions. */
const REPORTS_BETWEEN = 4;
/** Tokens of all conversations of a cell together, at most. */
const TOKENS_MAX = 40_000_000;

export function nameOf({ replicas, kTokens }: Cell): string {
  return `${replicas}x${kTokens}k`;
}

export function fleetOf({ replicas, kTokens }: Cell): Fleet {
  const promptTokens = kTokens * 1_024;
  const conversations = Math.max(64, Math.min(2 * replicas, Math.floor(TOKENS_MAX / promptTokens)));
  return new Fleet({ replicas, promptTokens, conversations, seed: 7 });
}

/** Reports that come before decision k, from replicas that change with it. */
export function reportBefore(fleet: Fleet, k: number): void {
  for (let r = 0; r < REPORTS_BETWEEN; r += 1) fleet.report((k * 37 + r * 11) % fleet.replicas);
}

/** Decision k: the next turn of one of the conversations, half a millisecond after the last one. */
export function decideOnce({ state, requests }: Fleet, k: number): Verdict {
  const request = requests[(k * 7) % requests.length];
  if (request === undefined) throw new Error('no request');
  state.nowMs += 0.5;
  const entered = enter(state, request);
  if ('decision' in entered) throw new Error('refused');
  const verdict = decide(state, entered, { draw: true });
  const { kind, reason } = verdict.decision;
  if (kind !== 'send') throw new Error(`${kind}/${reason}`);
  return verdict;
}
