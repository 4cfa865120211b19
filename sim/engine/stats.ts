// What the engine counts, moved when vLLM 0.32 moves it:
//
// - at the end of the step that admits a request: prefix cache queries and hits, hits by tier;
// - at its first token, all at once: prompt tokens (also by source and cached), time to first token;
// - at every step with output: generated tokens, iteration tokens, inter-token latency; preemptions, with the victim's
//   next token;
// - at its end: every `request_*` histogram. A request whose client left is in none of them; one that the engine ended
//   itself is;
// - gauges: at the end of a step, so they stand still when the engine does.

import type { SleepLevel } from './commands.ts';
import type { OpenRequest } from './request.ts';

/** Cumulative on reading, as Prometheus has it. Seconds or tokens, as the family says. */
export class Histogram {
  readonly bounds: readonly number[];
  readonly #counts: Float64Array;
  sum = 0;
  count = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.#counts = new Float64Array(bounds.length);
  }

  observe(value: number): void {
    this.sum += value;
    this.count += 1;
    const at = this.bounds.findIndex((bound) => value <= bound);
    if (at >= 0) this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  /** Observations up to and including each bound. */
  cumulative(): number[] {
    let total = 0;
    return Array.from(this.#counts, (count) => (total += count));
  }
}

const LATENCY_BOUNDS = [
  0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
];
const FIRST_TOKEN_BOUNDS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
  160, 640, 2560,
];
const TOKEN_TIME_BOUNDS = [
  0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
];
const ITERATION_BOUNDS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/** 1, 2, 5, 10, … up to the longest sequence: vLLM's bounds for token counts. */
function tokenBounds(maxModelLen: number): number[] {
  const bounds: number[] = [];
  for (let decade = 1; ; decade *= 10) {
    for (const step of [1, 2, 5]) {
      if (step * decade > maxModelLen) return bounds;
      bounds.push(step * decade);
    }
  }
}

const NO_ADAPTERS: readonly string[] = [];

/** Why an answer ended; `abort`: the engine ended it itself. */
export type FinishReason = 'stop' | 'length' | 'abort';

export class EngineStats {
  running = 0;
  /** All that wait in the core; `waitingDeferred` of them for an adapter's turn, the others for room. */
  waiting = 0;
  waitingDeferred = 0;
  kvUsageRatio = 0;
  /** Null while awake; otherwise how deep it sleeps (0: only paused). Moves with the call, not with a step. */
  sleepLevel: SleepLevel | null = null;
  /** Adapters in use, as the last step told: vLLM lists the same names as running and as waiting. */
  adapters: readonly string[] = [];
  prefixCacheQueries = 0;
  prefixCacheHits = 0;
  promptTokens = 0;
  computedTokens = 0;
  cachedTokens = 0;
  generationTokens = 0;
  preemptions = 0;
  queueRejections = 0;
  queueTokenRejections = 0;
  readonly finished: Record<FinishReason, number> = { stop: 0, length: 0, abort: 0 };
  readonly #requestsByAdapter = new Map<string, number>();
  readonly timeToFirstToken = new Histogram(FIRST_TOKEN_BOUNDS);
  readonly interTokenLatency = new Histogram(TOKEN_TIME_BOUNDS);
  readonly timePerOutputToken = new Histogram(TOKEN_TIME_BOUNDS);
  readonly iterationTokens = new Histogram(ITERATION_BOUNDS);
  readonly e2eLatency = new Histogram(LATENCY_BOUNDS);
  readonly queueTime = new Histogram(LATENCY_BOUNDS);
  readonly inferenceTime = new Histogram(LATENCY_BOUNDS);
  readonly prefillTime = new Histogram(LATENCY_BOUNDS);
  readonly decodeTime = new Histogram(LATENCY_BOUNDS);
  readonly requestPreemptions = new Histogram([1, 2, 3, 4, 5, 10, 20]);
  readonly paramsN = new Histogram([1, 2, 5, 10, 20]);
  readonly requestPromptTokens: Histogram;
  readonly requestGenerationTokens: Histogram;
  readonly maxGenerationTokens: Histogram;
  readonly paramsMaxTokens: Histogram;
  readonly prefillComputedTokens: Histogram;

  constructor(maxModelLen: number) {
    const bounds = tokenBounds(maxModelLen);
    this.requestPromptTokens = new Histogram(bounds);
    this.requestGenerationTokens = new Histogram(bounds);
    this.maxGenerationTokens = new Histogram(bounds);
    this.paramsMaxTokens = new Histogram(bounds);
    this.prefillComputedTokens = new Histogram(bounds);
  }

  countAdmission(promptTokens: number, cachedTokens: number): void {
    this.prefixCacheQueries += promptTokens;
    this.prefixCacheHits += cachedTokens;
  }

  /** A token was given out; `generated` counts it already. */
  countToken(request: OpenRequest, atMs: number): void {
    const { promptTokens } = request;
    const cachedTokens = request.cachedTokens ?? 0;
    this.generationTokens += 1;
    this.preemptions += request.uncountedPreemptions;
    request.uncountedPreemptions = 0;
    if (request.firstTokenMs === null) {
      request.firstTokenMs = atMs;
      this.promptTokens += promptTokens;
      this.cachedTokens += cachedTokens;
      this.computedTokens += promptTokens - cachedTokens;
      this.timeToFirstToken.observe((atMs - request.arrivedMs) / 1000);
      this.countAdapter(request.sequence.lora, 1);
    } else {
      this.interTokenLatency.observe((atMs - (request.lastTokenMs ?? atMs)) / 1000);
    }
    request.lastTokenMs = atMs;
  }

  /** A request that has shown a first token uses its adapter until it ends. */
  countAdapter(lora: string | null, requests: 1 | -1): void {
    if (lora === null) return;
    const left = (this.#requestsByAdapter.get(lora) ?? 0) + requests;
    if (left > 0) this.#requestsByAdapter.set(lora, left);
    else this.#requestsByAdapter.delete(lora);
  }

  adaptersInUse(): readonly string[] {
    return this.#requestsByAdapter.size === 0 ? NO_ADAPTERS : [...this.#requestsByAdapter.keys()];
  }

  countFinished(
    request: OpenRequest,
    end: { readonly reason: FinishReason; readonly endedMs: number },
  ): void {
    const { endedMs } = end;
    const firstTokenMs = request.firstTokenMs ?? endedMs;
    this.#countEnd(request, {
      ...end,
      queuedMs: request.queuedMs,
      scheduledMs: request.scheduledMs ?? endedMs,
      firstTokenMs,
    });
  }

  /**
   * The core ended it without a token of that step. vLLM takes this for an output: the first one of a request that had
   * none, which then counts as queued and scheduled at 0 of the engine's clock, so its prefill time is that
   * clock's reading.
   */
  countEndedEarly(request: OpenRequest, endedMs: number): void {
    const end = { reason: 'abort', endedMs } as const;
    if (request.firstTokenMs === null) {
      this.timeToFirstToken.observe((endedMs - request.arrivedMs) / 1000);
      this.#countEnd(request, { ...end, queuedMs: 0, scheduledMs: 0, firstTokenMs: endedMs });
      return;
    }
    this.interTokenLatency.observe((endedMs - (request.lastTokenMs ?? endedMs)) / 1000);
    this.countFinished(request, end);
  }

  #countEnd(
    request: OpenRequest,
    end: {
      readonly reason: FinishReason;
      readonly queuedMs: number;
      readonly scheduledMs: number;
      readonly firstTokenMs: number;
      readonly endedMs: number;
    },
  ): void {
    const { queuedMs, scheduledMs, firstTokenMs, endedMs } = end;
    this.finished[end.reason] += 1;
    const seconds = (fromMs: number, toMs: number): number => (toMs - fromMs) / 1000;
    const decodeSeconds = seconds(firstTokenMs, endedMs);
    this.e2eLatency.observe(seconds(request.arrivedMs, endedMs));
    this.queueTime.observe(seconds(queuedMs, scheduledMs));
    this.inferenceTime.observe(seconds(scheduledMs, endedMs));
    this.prefillTime.observe(seconds(scheduledMs, firstTokenMs));
    this.decodeTime.observe(decodeSeconds);
    const later = request.generated - 1;
    this.timePerOutputToken.observe(later > 0 ? decodeSeconds / later : 0);
    this.requestPreemptions.observe(request.preemptions);
    this.paramsN.observe(1);
    this.requestPromptTokens.observe(request.promptTokens);
    this.requestGenerationTokens.observe(request.generated);
    this.maxGenerationTokens.observe(request.generated);
    this.paramsMaxTokens.observe(request.maxTokensParam);
    this.prefillComputedTokens.observe(request.promptTokens - (request.cachedTokens ?? 0));
  }
}
