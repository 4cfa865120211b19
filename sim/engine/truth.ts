// The prefill that an engine still has before it: what routers and agents estimate, known here.

import type { KvCache } from './kv-cache.ts';
import type { EngineProfile } from './profiles.ts';
import {
  cachedPrefix,
  isDecoding,
  knownTokens,
  type OpenRequest,
  type StepPlan,
} from './scheduler.ts';

/** Times in ms of the engine's clock. */
export interface StepUnderWay extends StepPlan {
  readonly startMs: number;
  endMs: number;
}

export interface PrefillState {
  readonly open: Iterable<OpenRequest>;
  readonly step: StepUnderWay | null;
  readonly cache: KvCache;
  readonly profile: EngineProfile;
  readonly slowFactor: number;
  readonly nowMs: number;
}

/**
 * Uncached tokens that are not computed yet, and the ms until they are, if nothing else came and the present decodes
 * went on: the rest of the step under way, then full steps.
 */
export function prefillLeft(state: PrefillState): { tokens: number; ms: number } {
  const { profile, step } = state;
  const inStep = new Map(step?.chunks.map((chunk) => [chunk.request, chunk.tokens]));
  let tokens = 0;
  let later = 0;
  let laterMs = 0;
  let decoding = 0;
  let decodeContext = 0;
  for (const request of state.open) {
    if (isDecoding(request)) {
      decoding += 1;
      decodeContext += request.computed;
      continue;
    }
    const known = knownTokens(request);
    const computed = computedOf(state, request);
    tokens += known - computed;
    const before = computed + (inStep.get(request) ?? 0);
    const left = known - before;
    later += left;
    laterMs += profile.linearMsPerToken * left;
    laterMs += profile.contextMsPerToken2 * left * (before + left / 2);
  }
  if (tokens === 0) return { tokens: 0, ms: 0 };
  const stepLeftMs = step === null ? 0 : Math.max(0, step.endMs - state.nowMs);
  const steps = Math.ceil(later / Math.max(1, profile.maxNumBatchedTokens - decoding));
  const eachMs =
    profile.prefillStepMs +
    profile.decodeMsPerSequence * decoding +
    profile.decodeContextMsPerToken * decodeContext;
  return { tokens, ms: stepLeftMs + (laterMs + steps * eachMs) * state.slowFactor };
}

/** Of a request that holds no blocks yet: what it would find. */
function computedOf({ cache, profile }: PrefillState, request: OpenRequest): number {
  if (request.blocks.length > 0) return request.computed;
  const { blockTokens } = profile;
  const known = knownTokens(request);
  return cachedPrefix(cache, request.sequence, known, blockTokens).length * blockTokens;
}
