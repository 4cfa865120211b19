// `metrics` of an answer, as `--enable-per-request-metrics` has it: where the time of one request went, in ms of the
// engine's clock. Told of requests with one answer only.

import type { StepFacts } from '../../step-facts.ts';
import type { GenerationRun } from '../generation.ts';

interface Times {
  readonly queuedMs: number;
  scheduledMs: number | null;
}

const OPEN_MAX = 10_000;

export class RequestTiming {
  readonly #byId = new Map<string, Times>();
  readonly #byRun = new WeakMap<GenerationRun, Times>();

  step({ admittedIds, startMs }: Pick<StepFacts, 'admittedIds' | 'startMs'>): void {
    for (const id of admittedIds) {
      const times = this.#byId.get(id);
      if (times !== undefined) times.scheduledMs = startMs;
      this.#byId.delete(id);
    }
  }

  started(run: GenerationRun): void {
    const [id] = run.engineIds;
    if (id === undefined || run.engineIds.length > 1 || this.#byId.size >= OPEN_MAX) return;
    const { profile } = run.driver.model;
    const frontMs = profile.frontMs + profile.frontMsPerToken * (run.choices[0]?.promptTokens ?? 0);
    const times = { queuedMs: run.driver.nowMs() + frontMs, scheduledMs: null };
    this.#byId.set(id, times);
    this.#byRun.set(run, times);
  }

  /** Null where nothing is told. */
  of(run: GenerationRun): object | null {
    const times = this.#byRun.get(run);
    const [choice] = run.choices;
    if (times === undefined || choice === undefined) return null;
    const { scheduledMs } = times;
    const { firstTokenMs, lastTokenMs, tokens } = choice;
    const between = (fromMs: number | null, toMs: number | null): number | null =>
      fromMs === null || toMs === null ? null : Math.max(0, toMs - fromMs);
    const decodeMs = between(firstTokenMs, lastTokenMs);
    const insideMs = between(scheduledMs, lastTokenMs);
    return {
      time_to_first_token_ms: between(scheduledMs, firstTokenMs),
      generation_time_ms: decodeMs,
      queue_time_ms: between(times.queuedMs, scheduledMs),
      mean_itl_ms: decodeMs === null || tokens < 2 ? null : decodeMs / (tokens - 1),
      tokens_per_second: insideMs === null || insideMs === 0 ? null : (tokens / insideMs) * 1000,
      speculative_decoding: null,
    };
  }
}
