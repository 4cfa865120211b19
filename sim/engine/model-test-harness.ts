// A small engine for the model's tests, its requests, and how it is run to its end.

import { seededRandom } from '../../shared/lib/random.ts';
import type { EngineEvent } from './events.ts';
import { EngineModel } from './model.ts';
import { engineProfile, type EngineProfile } from './profiles.ts';
import type { EngineRequest } from './request.ts';
import { tokenSequence, type SequenceIdentity } from './sequence.ts';

export const BLOCK = 16;

/** Small and round: 10 ms a step with prefill, 4 ms without, 0.1 ms a token; 40 usable blocks of 16. */
export const SMALL: EngineProfile = {
  ...engineProfile('demo')!,
  blockTokens: BLOCK,
  kvBlocks: 41,
  maxModelLen: 512,
  maxNumSeqs: 4,
  maxNumBatchedTokens: 64,
  frontMs: 0,
  frontMsPerToken: 0,
  prefillStepMs: 10,
  decodeStepMs: 4,
  linearMsPerToken: 0.1,
  contextMsPerToken2: 0,
  decodeMsPerSequence: 0,
  decodeContextMsPerToken: 0,
  jitterRatio: 0,
};

export function started(
  profile: EngineProfile = SMALL,
  options: { readonly seed?: number; readonly kvEvents?: boolean } = {},
): EngineModel {
  const { seed = 1, kvEvents = false } = options;
  const model = new EngineModel(profile, seededRandom(seed), { nowMs: 0, loadingMs: 0, kvEvents });
  model.advance(0);
  return model;
}

/** `from` makes the content: equal numbers are equal prompts as far as they reach. */
export function request(
  id: string,
  options: {
    readonly tokens: number;
    readonly from?: number;
    readonly answer?: number;
    readonly priority?: number;
    readonly identity?: SequenceIdentity;
  },
): EngineRequest {
  const { tokens, from = 0, answer = 1, priority = 0, identity = {} } = options;
  const ids = Uint32Array.from({ length: tokens }, (_, at) => from * 100_000 + at);
  const sequence = tokenSequence(ids, BLOCK, identity);
  return { id, sequence, answerTokens: answer, finishReason: 'length', priority };
}

export function drain(model: EngineModel): EngineEvent[] {
  const events: EngineEvent[] = [];
  for (let next = model.nextEventMs(); next !== null; next = model.nextEventMs()) {
    events.push(...model.advance(next));
  }
  return events;
}

export function firstTokens(events: readonly EngineEvent[]): Record<string, number> {
  const first: Record<string, number> = {};
  for (const event of events) {
    if (event.kind === 'token' && event.index === 0) first[event.id] = event.atMs;
  }
  return first;
}
