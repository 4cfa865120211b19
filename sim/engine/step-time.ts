// How long a step takes: the formula of `profiles.ts`, and what it takes more while kernels are cold.
//
// Cold: the first prefill steps of an incarnation, and the first step of each larger shape (each doubling of the
// prefill tokens in a step, from 256 on), wait for kernels that were not compiled or tuned yet.

import type { EngineProfile } from './profiles.ts';
import { isDecoding, type OpenRequest } from './request.ts';

export interface StepChunk {
  readonly request: OpenRequest;
  readonly tokens: number;
}

/** ms that a step with these chunks takes, warm and without jitter. */
export function stepMs(profile: EngineProfile, chunks: readonly StepChunk[]): number {
  let prefill = 0;
  let context = 0;
  let decoding = 0;
  let decodeContext = 0;
  for (const { request, tokens } of chunks) {
    if (isDecoding(request)) {
      decoding += 1;
      decodeContext += request.computed;
    } else {
      prefill += tokens;
      context += tokens * (request.computed + tokens / 2);
    }
  }
  return (
    (prefill > 0 ? profile.prefillStepMs : profile.decodeStepMs) +
    profile.linearMsPerToken * prefill +
    profile.contextMsPerToken2 * context +
    profile.decodeMsPerSequence * decoding +
    profile.decodeContextMsPerToken * decodeContext
  );
}

/** Prefill tokens of a step: everything in it that is no decode. */
export function prefillTokens(chunks: readonly StepChunk[]): number {
  let tokens = 0;
  for (const chunk of chunks) if (!isDecoding(chunk.request)) tokens += chunk.tokens;
  return tokens;
}

const SMALLEST_LARGE_SHAPE = 256;

/** Which kernels an incarnation has not run yet. */
export class ColdKernels {
  readonly #profile: EngineProfile;
  #stepsLeft: number;
  #largestShape: number;

  constructor(profile: EngineProfile, from?: ColdKernels) {
    this.#profile = profile;
    this.#stepsLeft = from === undefined ? profile.coldSteps : from.#stepsLeft;
    this.#largestShape = from === undefined ? SMALLEST_LARGE_SHAPE / 2 : from.#largestShape;
  }

  /** True until the first steps are through. Larger shapes may still be to come. */
  get cold(): boolean {
    return this.#stepsLeft > 0 && this.#profile.coldStepMs > 0;
  }

  /** ms that the step takes longer. The kernels are warm from then on. */
  run(chunks: readonly StepChunk[]): number {
    const tokens = prefillTokens(chunks);
    if (tokens === 0) return 0;
    let extraMs = 0;
    if (this.#stepsLeft > 0) {
      this.#stepsLeft -= 1;
      extraMs += this.#profile.coldStepMs;
    }
    const shape = 2 ** Math.floor(Math.log2(tokens));
    if (shape > this.#largestShape) {
      this.#largestShape = shape;
      extraMs += this.#profile.coldShapeMs;
    }
    return extraMs;
  }

  fork(): ColdKernels {
    return new ColdKernels(this.#profile, this);
  }
}
