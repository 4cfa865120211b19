// What a TGI router counts, moved when TGI 3 moves it:
//
// - a request when it comes in, then its input length and the most that it may generate once it is valid, before it waits;
// - each forward of a batch by method. A step of the model that computes prompts and decodes at once is a prefill,
//   joined by a decode (`tgi_batch_concat`); its time is the prefill's, less what its decodes cost;
// - a request's durations, tokens and success when its answer is whole. One that failed or was left is in none of them.
//
// The model has no time of its own for filtering, decoding text and joining batches: those durations are 0.

import type { EngineProfile } from '../../profiles.ts';
import { Histogram } from '../../stats.ts';
import type { StepFacts } from '../../step-facts.ts';

/** Reasons of `tgi_request_failure` that can occur here. */
export type TgiFailure = 'overloaded' | 'validation' | 'template' | 'generation' | 'dropped';

type Method = 'prefill' | 'decode';
type ByMethod = Map<Method, Histogram>;

/** Of one request whose answer is whole. Seconds. */
export interface TgiTimes {
  readonly totalSeconds: number;
  readonly validationSeconds: number;
  readonly queueSeconds: number;
  readonly inferenceSeconds: number;
  readonly generatedTokens: number;
}

/** 0.15 ms and half as much again each time, past 100 s. */
const SECONDS: readonly number[] = durationBounds();
const BATCH_SIZES: readonly number[] = Array.from({ length: 1_024 }, (_, at) => at + 1);

function durationBounds(): number[] {
  const bounds: number[] = [];
  for (let bound = 0.0001; bound < 100;) {
    bound *= 1.5;
    bounds.push(bound);
  }
  return bounds;
}

/** A hundred equal parts. */
function hundredths(most: number): number[] {
  return Array.from({ length: 100 }, (_, at) => (most / 100) * (at + 1));
}

export class TgiStats {
  received = 0;
  succeeded = 0;
  readonly failed = new Map<string, number>();
  readonly concats = new Map<string, number>();
  readonly batches = new Map<Method, number>();
  /** Null until there was a first request. Tokens, requests. */
  queueSize: number | null = null;
  batchMaxTokens: number | null = null;
  batchSize: number | null = null;
  readonly inputLength: Histogram;
  readonly maxNewTokens: Histogram;
  readonly generatedTokens: Histogram;
  readonly nextBatchSize = new Histogram(BATCH_SIZES);
  readonly totalSeconds = new Histogram(SECONDS);
  readonly validationSeconds = new Histogram(SECONDS);
  readonly queueSeconds = new Histogram(SECONDS);
  readonly inferenceSeconds = new Histogram(SECONDS);
  readonly secondsPerToken = new Histogram(SECONDS);
  readonly forward: ByMethod = new Map();
  readonly inference: ByMethod = new Map();
  readonly filter: ByMethod = new Map();
  readonly decode: ByMethod = new Map();
  readonly concat: ByMethod = new Map();

  /** Tokens of the longest prompt, and of prompt and answer together. */
  constructor(maxInputTokens: number, maxTotalTokens: number) {
    this.inputLength = new Histogram(hundredths(maxInputTokens));
    this.maxNewTokens = new Histogram(hundredths(maxTotalTokens));
    this.generatedTokens = new Histogram(hundredths(maxTotalTokens));
  }

  countFailure(reason: TgiFailure): void {
    add(this.failed, reason);
  }

  /** Before it waits. Tokens. */
  countValid(inputTokens: number, maxNewTokens: number): void {
    this.inputLength.observe(inputTokens);
    this.maxNewTokens.observe(maxNewTokens);
  }

  countStep(step: StepFacts, profile: EngineProfile): void {
    const totalMs = step.endMs - step.startMs;
    if (step.prefillTokens === 0) {
      if (step.decodes > 0) this.#countBatch('decode', totalMs / 1_000);
      return;
    }
    const { decodeMsPerSequence, decodeContextMsPerToken } = profile;
    const decodeMs =
      decodeMsPerSequence * step.decodes + decodeContextMsPerToken * step.decodeContextTokens;
    const joinedMs = step.decodes === 0 ? 0 : Math.min(totalMs, decodeMs);
    if (step.admittedIds.length > 0) this.nextBatchSize.observe(step.admittedIds.length);
    this.#countBatch('prefill', (totalMs - joinedMs) / 1_000);
    if (step.decodes === 0) return;
    add(this.concats, 'chunking');
    observe(this.concat, 'decode', 0);
    this.#countBatch('decode', joinedMs / 1_000);
  }

  countSuccess(times: TgiTimes): void {
    this.succeeded += 1;
    this.totalSeconds.observe(times.totalSeconds);
    this.validationSeconds.observe(times.validationSeconds);
    this.queueSeconds.observe(times.queueSeconds);
    this.inferenceSeconds.observe(times.inferenceSeconds);
    this.secondsPerToken.observe(times.inferenceSeconds / Math.max(1, times.generatedTokens));
    this.generatedTokens.observe(times.generatedTokens);
  }

  #countBatch(method: Method, seconds: number): void {
    add(this.batches, method);
    observe(this.forward, method, seconds);
    observe(this.inference, method, seconds);
    observe(this.filter, method, 0);
    observe(this.decode, method, 0);
  }
}

function add<K>(counts: Map<K, number>, key: K): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

function observe(histograms: ByMethod, method: Method, seconds: number): void {
  const histogram = histograms.get(method) ?? new Histogram(SECONDS);
  histograms.set(method, histogram);
  histogram.observe(seconds);
}
