// What one engine step computed, for whoever counts work by steps (TGI and SGLang do, vLLM does not).

import { isDecoding } from './request.ts';
import type { StepPlan } from './scheduler.ts';

/** Times in ms of the engine's clock; lengths in tokens. */
export interface StepFacts {
  readonly startMs: number;
  readonly endMs: number;
  /** Prompt tokens computed, those computed again after a preemption included. */
  readonly prefillTokens: number;
  readonly prefillRequests: number;
  /** Requests admitted for the first time, and what of their prompts was found in the cache. */
  readonly admittedIds: readonly string[];
  readonly cachedTokens: number;
  readonly preempted: number;
  /** Sequences that decoded a token, and the context of all of them. */
  readonly decodes: number;
  readonly decodeContextTokens: number;
}

/** Called before the step changes its requests. */
export function stepFacts(
  step: StepPlan & { readonly startMs: number; readonly endMs: number },
): StepFacts {
  let prefillTokens = 0;
  let prefillRequests = 0;
  let decodes = 0;
  let decodeContextTokens = 0;
  for (const { request, tokens } of step.chunks) {
    if (isDecoding(request)) {
      decodes += 1;
      decodeContextTokens += request.computed;
    } else {
      prefillRequests += 1;
      prefillTokens += tokens;
    }
  }
  let cachedTokens = 0;
  for (const request of step.admitted) cachedTokens += request.cachedTokens ?? 0;
  const { startMs, endMs } = step;
  const admittedIds = step.admitted.map(({ id }) => id);
  const preempted = step.preempted.length;
  return {
    ...{ startMs, endMs, prefillTokens, prefillRequests, admittedIds, cachedTokens, preempted },
    ...{ decodes, decodeContextTokens },
  };
}
