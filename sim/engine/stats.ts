// What the engine counts, moved when vLLM 0.32 moves it:
//
// - at the end of the step that admits a request: prefix cache queries and hits, hits by tier;
// - at its first token, all at once: prompt tokens (also by source and cached), time to first token;
// - at every step with output: generated tokens, iteration tokens, inter-token latency; preemptions, with the victim's
//   next token;
// - at its end: every `request_*` histogram. An aborted request is in none of them;
// - gauges: at the end of a step, so they stand still when the engine does.

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

export type FinishReason = 'stop' | 'length';

/** Times in ms of the engine's clock; lengths in tokens. */
export interface FinishedRequest {
  readonly reason: FinishReason;
  readonly arrivedMs: number;
  readonly queuedMs: number;
  readonly scheduledMs: number;
  readonly firstTokenMs: number;
  readonly endedMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  readonly maxTokens: number;
  readonly preemptions: number;
}

export class EngineStats {
  running = 0;
  waiting = 0;
  kvUsageRatio = 0;
  prefixCacheQueries = 0;
  prefixCacheHits = 0;
  promptTokens = 0;
  computedTokens = 0;
  cachedTokens = 0;
  generationTokens = 0;
  preemptions = 0;
  queueRejections = 0;
  readonly finished: Record<FinishReason, number> = { stop: 0, length: 0 };
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

  countFirstToken(promptTokens: number, cachedTokens: number, ttftMs: number): void {
    this.promptTokens += promptTokens;
    this.cachedTokens += cachedTokens;
    this.computedTokens += promptTokens - cachedTokens;
    this.timeToFirstToken.observe(ttftMs / 1000);
  }

  countFinished(request: FinishedRequest): void {
    this.finished[request.reason] += 1;
    const seconds = (fromMs: number, toMs: number): number => (toMs - fromMs) / 1000;
    const decodeSeconds = seconds(request.firstTokenMs, request.endedMs);
    this.e2eLatency.observe(seconds(request.arrivedMs, request.endedMs));
    this.queueTime.observe(seconds(request.queuedMs, request.scheduledMs));
    this.inferenceTime.observe(seconds(request.scheduledMs, request.endedMs));
    this.prefillTime.observe(seconds(request.scheduledMs, request.firstTokenMs));
    this.decodeTime.observe(decodeSeconds);
    const later = request.generatedTokens - 1;
    this.timePerOutputToken.observe(later > 0 ? decodeSeconds / later : 0);
    this.requestPreemptions.observe(request.preemptions);
    this.paramsN.observe(1);
    this.requestPromptTokens.observe(request.promptTokens);
    this.requestGenerationTokens.observe(request.generatedTokens);
    this.maxGenerationTokens.observe(request.generatedTokens);
    this.paramsMaxTokens.observe(request.maxTokens);
    this.prefillComputedTokens.observe(request.promptTokens - request.cachedTokens);
  }
}
