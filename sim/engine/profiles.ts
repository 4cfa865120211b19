// Named sizes and speeds of simulated engines.
//
// One scheduler step that computes prefill chunks p (each after `before` tokens of its own context) and
// decodes one token for each of B sequences with C tokens of context together takes
//
//   ms = step + linear·Σp + context·Σp·(before + p/2) + decodeSequence·B + decodeContext·C
//
// where step is `prefillStepMs` if the step has any prefill, else `decodeStepMs`. A request reaches the
// scheduler after the front end, which handles one request at a time: frontMs + frontMsPerToken·tokens.

import type { CostCurve } from '../../shared/model/cost-curve.ts';

export interface EngineProfile {
  readonly name: string;
  /** Tokens per KV block. */
  readonly blockTokens: number;
  /** KV blocks in all, one of which is never handed out (vLLM's null block). */
  readonly kvBlocks: number;
  /** Tokens of prompt and answer together. */
  readonly maxModelLen: number;
  /** Requests in the batch at most. */
  readonly maxNumSeqs: number;
  /** Tokens that one step computes at most, prefill chunks and decodes together. */
  readonly maxNumBatchedTokens: number;
  /** Requests inside at most, running ones included; null for no limit, which is vLLM's default. */
  readonly maxQueuedRequests: number | null;
  /** Prompt tokens of requests without a first token, at most; null for no limit, which is vLLM's default. */
  readonly maxQueuedTokens: number | null;
  /** Who is admitted first, and who gives way last. */
  readonly schedulingPolicy: 'fcfs' | 'priority';
  /** Adapters in one batch at most. */
  readonly maxLoras: number;
  /** ms per request in the front end. */
  readonly frontMs: number;
  /** ms per prompt token in the front end, cached or not. */
  readonly frontMsPerToken: number;
  /** ms per step that computes prefill. */
  readonly prefillStepMs: number;
  /** ms per step that only decodes. */
  readonly decodeStepMs: number;
  /** ms per uncached token. */
  readonly linearMsPerToken: number;
  /** ms per uncached token and token of context before it. */
  readonly contextMsPerToken2: number;
  /** ms per decoding sequence in the step. */
  readonly decodeMsPerSequence: number;
  /** ms per token of context of the decoding sequences. */
  readonly decodeContextMsPerToken: number;
  /** Prefill steps of an incarnation that find cold kernels, and ms that each of them takes longer. */
  readonly coldSteps: number;
  readonly coldStepMs: number;
  /** ms that the first step of each larger shape takes longer (`step-time.ts`). */
  readonly coldShapeMs: number;
  /** Step times vary by this share (uniform, ±); 0 for none. */
  readonly jitterRatio: number;
  /** ms from the start of the process to the open port. */
  readonly loadingMs: number;
  /** Mean length in tokens of an answer whose request names no limit. */
  readonly meanAnswerTokens: number;
}

// Prefill figures: least squares (weights 1/time) on the 48 lone requests of
// test/fixtures/vllm-0.32.0/prefill-cached.json, recorded from a real vLLM 0.32.0 for CPU with a four-layer model.
// Median error of the fit 1.9 %. With a separate constant per request the fit puts it at −1 ms, so all
// of the 14 ms belong to the step. Decode: 3 to 5 ms a step alone; the context term from the last 250 ms of
// load-24-requests.json (about 10 ms a step with 3 to 5 sequences of 3k to 5k tokens).
const cpuTinyLlama: EngineProfile = {
  name: 'cpu-tiny-llama',
  blockTokens: 32,
  kvBlocks: 1_024,
  maxModelLen: 16_384,
  maxNumSeqs: 8,
  maxNumBatchedTokens: 1_024,
  maxQueuedRequests: null,
  maxQueuedTokens: null,
  schedulingPolicy: 'fcfs',
  maxLoras: 1,
  frontMs: 0,
  frontMsPerToken: 0.002759,
  prefillStepMs: 13.898,
  decodeStepMs: 3.5,
  linearMsPerToken: 0.027554,
  contextMsPerToken2: 5.5941e-5,
  decodeMsPerSequence: 0.3,
  decodeContextMsPerToken: 3e-4,
  coldSteps: 0,
  coldStepMs: 0,
  coldShapeMs: 0,
  jitterRatio: 0,
  loadingMs: 50_000,
  meanAnswerTokens: 64,
};

// Llama-3.1-8B, FP16, on one H100-80GB. Derived, not measured by us: weights 16 GB over 2.6 TB/s give the
// step, 45 % of the chip's peak (32k tokens/s) the linear term, 131,072 B of KV per token the decode context
// term; checked by its sources against inference-perf's 1×H100 runs (TPOT 3.5 to 9.6 ms). The front end's 8 ms is the lower half
// of the 5 to 20 ms that published calibrations give for HTTP, tokenising and scheduling.
const h100Llama8b: EngineProfile = {
  name: 'h100-llama-8b',
  blockTokens: 16,
  kvBlocks: 27_500,
  maxModelLen: 131_072,
  maxNumSeqs: 256,
  maxNumBatchedTokens: 8_192,
  maxQueuedRequests: null,
  maxQueuedTokens: null,
  schedulingPolicy: 'fcfs',
  maxLoras: 1,
  frontMs: 8,
  frontMsPerToken: 0.0004,
  prefillStepMs: 6.5,
  decodeStepMs: 6.5,
  linearMsPerToken: 0.031,
  contextMsPerToken2: 5e-8,
  decodeMsPerSequence: 0.03,
  decodeContextMsPerToken: 5e-5,
  coldSteps: 0,
  coldStepMs: 0,
  coldShapeMs: 0,
  jitterRatio: 0,
  loadingMs: 60_000,
  meanAnswerTokens: 200,
};

// Qwen3-32B with tensor parallelism 2 on H100. Step, linear term and KV size from the published calibration
// runs of llm-d (single-request fit 20.5k tokens/s; 307,328 tokens of KV measured); the rest as above.
const h100x2Qwen32b: EngineProfile = {
  name: 'h100x2-qwen-32b',
  blockTokens: 16,
  kvBlocks: 19_208,
  maxModelLen: 40_960,
  maxNumSeqs: 256,
  maxNumBatchedTokens: 8_192,
  maxQueuedRequests: null,
  maxQueuedTokens: null,
  schedulingPolicy: 'fcfs',
  maxLoras: 1,
  frontMs: 8,
  frontMsPerToken: 0.0004,
  prefillStepMs: 13,
  decodeStepMs: 13,
  linearMsPerToken: 0.0488,
  contextMsPerToken2: 1e-7,
  decodeMsPerSequence: 0.06,
  decodeContextMsPerToken: 5.6e-5,
  coldSteps: 0,
  coldStepMs: 0,
  coldShapeMs: 0,
  jitterRatio: 0,
  loadingMs: 139_000,
  meanAnswerTokens: 200,
};

// No machine's figures: quick to start, slow enough in prefill (5,000 tokens/s) that a person sees what a
// warm prefix saves, small enough in KV (65,504 tokens) that conversations can push each other out.
const demo: EngineProfile = {
  name: 'demo',
  blockTokens: 16,
  kvBlocks: 4_095,
  maxModelLen: 32_768,
  maxNumSeqs: 32,
  maxNumBatchedTokens: 2_048,
  maxQueuedRequests: null,
  maxQueuedTokens: null,
  schedulingPolicy: 'fcfs',
  maxLoras: 1,
  frontMs: 1,
  frontMsPerToken: 0.0004,
  prefillStepMs: 8,
  decodeStepMs: 8,
  linearMsPerToken: 0.2,
  contextMsPerToken2: 1e-6,
  decodeMsPerSequence: 0.05,
  decodeContextMsPerToken: 1e-5,
  coldSteps: 0,
  coldStepMs: 0,
  coldShapeMs: 0,
  jitterRatio: 0.03,
  loadingMs: 1_500,
  meanAnswerTokens: 48,
};

export const ENGINE_PROFILES: Readonly<Record<string, EngineProfile>> = {
  [cpuTinyLlama.name]: cpuTinyLlama,
  [h100Llama8b.name]: h100Llama8b,
  [h100x2Qwen32b.name]: h100x2Qwen32b,
  [demo.name]: demo,
};

/** The profile of that name; null when there is none. */
export function engineProfile(name: string): EngineProfile | null {
  return Object.hasOwn(ENGINE_PROFILES, name) ? (ENGINE_PROFILES[name] ?? null) : null;
}

/** Tokens that the KV cache holds, as vLLM names them (`kv_cache_size_tokens`). */
export function kvCapacityTokens(profile: EngineProfile): number {
  return profile.kvBlocks * profile.blockTokens;
}

/** What a perfect observer would learn of a lone request's prefill; `frontMs`, a constant a request, has no term there. */
export function trueCostCurve(profile: EngineProfile): CostCurve {
  return {
    baseMs: profile.prefillStepMs,
    frontMsPerToken: profile.frontMsPerToken,
    linearMsPerToken: profile.linearMsPerToken,
    contextMsPerToken2: profile.contextMsPerToken2,
    stepTokens: profile.maxNumBatchedTokens,
  };
}
