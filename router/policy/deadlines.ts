// How long an attempt may take: by what was predicted, never above what the client will wait.
//
//   first token  = base + 2·(wait + prefill)                         an answer without decode too
//   whole answer = base + wait + prefill + 2·min(max tokens, context)·itl   when not streamed
//   stall        = max(floor, 2·largestPrefillMs, 20·itl)

import type { RegionalSettings } from '../../shared/model/settings.ts';

/** ms per token where neither the target nor its pool has one. */
export const ASSUMED_ITL_MS = 50;

/**
 * ms per token that no engine is faster than, where nobody has told of any: what is called unreachable must be.
 */
export const LEAST_ITL_MS = 5;

export type DeadlineSettings = Pick<
  RegionalSettings,
  'firstTokenBaseMs' | 'stallMinMs' | 'assumedMaxTokens'
>;

export interface DeadlineInput {
  readonly stream: boolean;
  readonly waitMs: number;
  readonly prefillMs: number;
  readonly maxTokens: number | null;
  /** No answer has more, whatever the client allows. Absent: unknown. */
  readonly contextTokens?: number;
  readonly itlMs: number | null;
  readonly largestPrefillMs: number | null;
  /** Until the client gives up; null when unknown. */
  readonly clientLeftMs: number | null;
}

export interface Deadlines {
  readonly firstTokenTimeoutMs: number;
  readonly stallTimeoutMs: number;
  /** The client's patience, not the target's, set the first-token deadline. */
  readonly byClient: boolean;
}

export function attemptDeadlines(input: DeadlineInput, settings: DeadlineSettings): Deadlines {
  const itlMs = input.itlMs ?? ASSUMED_ITL_MS;
  const { contextTokens = Number.POSITIVE_INFINITY } = input;
  const tokens = Math.min(input.maxTokens ?? settings.assumedMaxTokens, contextTokens);
  const own =
    input.stream || tokens === 0
      ? settings.firstTokenBaseMs + 2 * (input.waitMs + input.prefillMs)
      : settings.firstTokenBaseMs + input.waitMs + input.prefillMs + 2 * tokens * itlMs;
  const client = input.clientLeftMs ?? Number.POSITIVE_INFINITY;
  return {
    firstTokenTimeoutMs: Math.max(0, Math.min(own, client)),
    stallTimeoutMs: Math.max(settings.stallMinMs, 2 * (input.largestPrefillMs ?? 0), 20 * itlMs),
    byClient: client < own,
  };
}
