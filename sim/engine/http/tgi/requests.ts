// The requests inside a TGI, and where their time went: what its limit on concurrent requests, its gauges and the headers
// of its answers speak of. Times in ms of the engine's clock.

import type { GenerationRun } from '../generation.ts';
import type { StepFacts } from '../../step-facts.ts';
import type { TgiTimes } from './stats.ts';

export interface TgiRequest {
  readonly run: GenerationRun;
  readonly promptTokens: number;
  /** Tokens of prompt and answer together at most. */
  readonly maxTokens: number;
  readonly arrivedMs: number;
  /** What validation took, unless it waited for another's. */
  readonly validationMs: number;
  scheduledMs: number | null;
}

export class TgiRequests {
  readonly #open = new Map<string, TgiRequest>();

  get size(): number {
    return this.#open.size;
  }

  /** `id` is the run's own. */
  add(request: TgiRequest): void {
    this.#open.set(request.run.plan.id, request);
  }

  remove(request: TgiRequest): void {
    this.#open.delete(request.run.plan.id);
  }

  all(): readonly TgiRequest[] {
    return [...this.#open.values()];
  }

  /** A step began with these requests admitted. */
  admitted({ admittedIds, startMs }: StepFacts): void {
    for (const id of admittedIds) {
      const request = this.#open.get(id.slice(0, id.lastIndexOf('.')));
      if (request !== undefined) request.scheduledMs ??= startMs;
    }
  }

  /** Tokens that the requests of the present batch may come to. */
  batchMaxTokens(): number {
    let tokens = 0;
    for (const { scheduledMs, maxTokens } of this.#open.values()) {
      if (scheduledMs !== null) tokens += maxTokens;
    }
    return tokens;
  }
}

export function timesOf(request: TgiRequest, endedMs: number): TgiTimes {
  const { arrivedMs, run } = request;
  const scheduledMs = request.scheduledMs ?? endedMs;
  const validatedMs = Math.min(arrivedMs + request.validationMs, scheduledMs);
  return {
    totalSeconds: (endedMs - arrivedMs) / 1_000,
    validationSeconds: (validatedMs - arrivedMs) / 1_000,
    queueSeconds: (scheduledMs - validatedMs) / 1_000,
    inferenceSeconds: (endedMs - scheduledMs) / 1_000,
    generatedTokens: run.choices.reduce((sum, { tokens }) => sum + tokens, 0),
  };
}

/** The headers of a whole answer: ms, but for `x-compute-time`. */
export function timeHeaders(request: TgiRequest, times: TgiTimes): Record<string, string> {
  const ms = (seconds: number): string => String(Math.floor(seconds * 1_000));
  return {
    'x-compute-time': String(times.totalSeconds),
    'x-total-time': ms(times.totalSeconds),
    'x-validation-time': ms(times.validationSeconds),
    'x-queue-time': ms(times.queueSeconds),
    'x-inference-time': ms(times.inferenceSeconds),
    'x-time-per-token': ms(times.inferenceSeconds / Math.max(1, times.generatedTokens)),
    'x-prompt-tokens': String(request.promptTokens),
    'x-generated-tokens': String(times.generatedTokens),
  };
}
