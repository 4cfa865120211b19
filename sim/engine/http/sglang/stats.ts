// What an SGLang 0.5 counts, moved when it moves it:
//
// - by scheduler and step: `realtime_tokens_total`, forward passes, retractions, and the busy time of `/v1/loads`, which
//   counts only a prefill that follows a prefill;
// - gauges only at a prefill step and at every 40th decode step: between those, and when idle, they stand still; the hit rate
//   is that of the last prefill, 0 once decodes were logged;
// - by the front end, which sees of a request that is not streamed only its end: time to first token and between tokens
//   as they come there, everything else of a request when it ends.
//
// One `SglangRankStats` a data-parallel rank, one `SglangFrontStats` for all.

import { Histogram } from '../../stats.ts';
import type { StepFacts } from '../../step-facts.ts';

/** `--decode-log-interval`. */
const DECODE_STEPS_PER_LOG = 40;

const FIRST_TOKEN_BOUNDS = [
  0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400,
];
const LATENCY_BOUNDS = [...FIRST_TOKEN_BOUNDS, 600, 1_200, 1_800, 2_400];
const QUEUE_BOUNDS = [
  0, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300, 400, 500,
  600, 700, 800, 900, 1_000, 1_200, 1_400, 1_600, 1_800, 2_000, 2_500, 3_000,
];
const RETRACTION_BOUNDS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 75, 100];
const TOKEN_BOUNDS = [
  0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2,
  0.4, 0.6, 0.8, 1, 2, 4, 6, 8,
];
/** 1 ms, and 1.62 times as much each time. */
const STAGE_BOUNDS = Array.from({ length: 30 }, (_, at) => 0.001 * 1.62 ** at);

/** A scheduler's gauges, as of its last log. Tokens, requests, tokens per second. */
export interface SglangGauges {
  readonly running: number;
  readonly waiting: number;
  readonly usedTokens: number;
  readonly usageRatio: number;
  readonly hitRatio: number;
  readonly generatedPerSecond: number;
  readonly decodeTokens: number;
}

/** What the scheduler looks like at the end of a step. */
export type SchedulerNow = Pick<SglangGauges, 'running' | 'waiting' | 'usedTokens' | 'usageRatio'>;

const NOTHING_YET: SglangGauges = {
  ...{ running: 0, waiting: 0, usedTokens: 0, usageRatio: 0 },
  ...{ hitRatio: 0, generatedPerSecond: 0, decodeTokens: 0 },
};

export class SglangRankStats {
  gauges: SglangGauges = NOTHING_YET;
  computedTokens = 0;
  cachedTokens = 0;
  decodedTokens = 0;
  prefillSteps = 0;
  decodeSteps = 0;
  retractedRequests = 0;
  /** Of prefill steps that followed a prefill step. */
  busyTokens = 0;
  busyUs = 0;
  readonly queueSeconds = new Histogram(QUEUE_BOUNDS);
  readonly processSeconds = new Histogram(STAGE_BOUNDS);
  readonly prefillSeconds = new Histogram(STAGE_BOUNDS);
  #lastWasPrefill = false;
  #loggedMs: number | null = null;
  #tokensSinceLog = 0;

  countStep(step: StepFacts, now: () => SchedulerNow): void {
    this.retractedRequests += step.preempted;
    this.decodedTokens += step.decodes;
    this.#tokensSinceLog += step.decodes;
    if (step.prefillTokens > 0) this.#countPrefill(step, now);
    else if (step.decodes > 0) this.#countDecode(step, now);
  }

  #countPrefill(step: StepFacts, now: () => SchedulerNow): void {
    const { prefillTokens, cachedTokens } = step;
    this.prefillSteps += 1;
    this.computedTokens += prefillTokens;
    this.cachedTokens += cachedTokens;
    if (this.#lastWasPrefill) {
      this.busyTokens += prefillTokens;
      this.busyUs += Math.round((step.endMs - step.startMs) * 1_000);
    }
    this.#lastWasPrefill = true;
    const { generatedPerSecond } = this.gauges;
    const hitRatio = cachedTokens / (cachedTokens + prefillTokens);
    this.gauges = {
      ...now(),
      ...{ hitRatio, generatedPerSecond, decodeTokens: step.decodeContextTokens },
    };
  }

  #countDecode(step: StepFacts, now: () => SchedulerNow): void {
    this.decodeSteps += 1;
    this.#lastWasPrefill = false;
    if (this.decodeSteps % DECODE_STEPS_PER_LOG !== 0) return;
    const sinceMs = this.#loggedMs === null ? 0 : step.endMs - this.#loggedMs;
    const generatedPerSecond = sinceMs > 0 ? (this.#tokensSinceLog / sinceMs) * 1_000 : 0;
    this.#loggedMs = step.endMs;
    this.#tokensSinceLog = 0;
    this.gauges = {
      ...now(),
      ...{ hitRatio: 0, generatedPerSecond, decodeTokens: step.decodeContextTokens },
    };
  }
}

/** Of one request that has ended. Lengths in tokens, times in seconds. */
export interface SglangEnd {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  readonly totalSeconds: number;
}

export class SglangFrontStats {
  promptTokens = 0;
  generatedTokens = 0;
  cachedTokens = 0;
  requests = 0;
  aborted = 0;
  readonly firstTokenSeconds = new Histogram(FIRST_TOKEN_BOUNDS);
  readonly tokenSeconds = new Histogram(TOKEN_BOUNDS);
  readonly totalSeconds = new Histogram(LATENCY_BOUNDS);
  readonly retractions = new Histogram(RETRACTION_BOUNDS);
  /** By endpoint and method, and of answers by status too. */
  readonly httpRequests = new Map<string, HttpCount>();
  readonly httpResponses = new Map<string, HttpCount & { readonly status: number }>();

  countEnd(end: SglangEnd): void {
    this.requests += 1;
    this.promptTokens += end.promptTokens;
    this.cachedTokens += end.cachedTokens;
    this.generatedTokens += end.generatedTokens;
    this.totalSeconds.observe(end.totalSeconds);
    this.retractions.observe(0);
  }

  /** A request came in; what it returns is told the status when the answer is out. */
  countHttp(endpoint: string, method: string): (status: number) => void {
    const key = `${method} ${endpoint}`;
    const request = this.httpRequests.get(key) ?? { endpoint, method, count: 0, open: 0 };
    this.httpRequests.set(key, request);
    request.count += 1;
    request.open += 1;
    return (status) => {
      request.open -= 1;
      const answers = this.httpResponses;
      const answer = answers.get(`${key} ${status}`) ?? {
        ...{ endpoint, method, status, count: 0, open: 0 },
      };
      answers.set(`${key} ${status}`, answer);
      answer.count += 1;
    };
  }
}

export interface HttpCount {
  readonly endpoint: string;
  readonly method: string;
  count: number;
  open: number;
}
