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
// Median error of the fit 1.9 %; the engine was warm (its first request ever took 0.8 s longer). With a separate constant per request the fit puts it at −1 ms, so all
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

/** What holds for every GPU profile unless it says otherwise. */
const GPU = {
  blockTokens: 16,
  maxNumSeqs: 256,
  maxNumBatchedTokens: 8_192,
  maxQueuedRequests: null,
  maxQueuedTokens: null,
  schedulingPolicy: 'fcfs',
  maxLoras: 1,
  // HTTP, tokenising and scheduling: the lower half of the 5 to 20 ms that published calibrations give (BLIS: 15.6 ms).
  frontMs: 8,
  frontMsPerToken: 0.0004,
  // Assumed: vLLM compiles and captures before its port opens, and no figure is published for what is left. Without
  // that, GORGO saw 9 s for each of the first two requests of an SGLang.
  coldSteps: 2,
  coldStepMs: 500,
  coldShapeMs: 100,
  jitterRatio: 0,
  meanAnswerTokens: 200,
} as const;

// In what follows, "derived" is: weights ÷ (0.8 · memory bandwidth) for the step; 2 · parameters FLOP ÷ (0.45 · dense
// peak) for the linear term; 4 · layers · query heads · head size FLOP ÷ (0.5 · dense peak) for the context term; bytes
// of KV per token (2 · layers · KV heads · head size · 2) ÷ (0.8 · bandwidth) for the decode context; and
// (0.9 · memory − weights − 5.5 GiB a GPU) ÷ those bytes for the KV cache. All over the GPUs that share the model.

// Llama-3.1-8B, FP16, on one H100-80GB. Prefill: least squares (weights 1/time) on the published times of 2k, 8k, 16k,
// 32k and 48k tokens (78, 250, 510, 1,173, 1,988 ms), with step and front end given; largest error 7 %. Step:
// derived, and 131,072 B of KV per token; inference-perf's 1×H100 runs have 3.5 to 9.6 ms a token, the least of them
// with smaller weights.
const h100Llama8b: EngineProfile = {
  ...GPU,
  name: 'h100-llama-8b',
  kvBlocks: 27_500,
  maxModelLen: 131_072,
  prefillStepMs: 6.5,
  decodeStepMs: 6.5,
  linearMsPerToken: 0.0274,
  contextMsPerToken2: 4.3e-7,
  decodeMsPerSequence: 0.03,
  decodeContextMsPerToken: 5e-5,
  loadingMs: 60_000,
};

// Llama-3.1-8B, FP16, on one A100-40GB. Step from 75 tokens/s of a lone sequence, time per sequence from 6.6 times that
// with eight; prefill within the published 8.5k to 13k tokens/s; KV of about 150,000 tokens; the rest derived.
const a100Llama8b: EngineProfile = {
  ...GPU,
  name: 'a100-llama-8b',
  kvBlocks: 9_375,
  maxModelLen: 131_072,
  prefillStepMs: 13.3,
  decodeStepMs: 12.9,
  linearMsPerToken: 0.075,
  contextMsPerToken2: 3.4e-6,
  decodeMsPerSequence: 0.4,
  decodeContextMsPerToken: 1.05e-4,
  loadingMs: 90_000,
};

// Llama-3.1-8B, FP16, on one L4-24GB: derived, measured by nobody we know of, except for the start (153 s cold with
// vLLM 0.28 on an L4). KV of about 10,000 tokens.
const l4Llama8b: EngineProfile = {
  ...GPU,
  name: 'l4-llama-8b',
  kvBlocks: 626,
  maxModelLen: 8_192,
  maxNumSeqs: 64,
  maxNumBatchedTokens: 2_048,
  prefillStepMs: 62,
  decodeStepMs: 62,
  linearMsPerToken: 0.42,
  contextMsPerToken2: 8.7e-6,
  decodeMsPerSequence: 0.25,
  decodeContextMsPerToken: 5.5e-4,
  loadingMs: 153_000,
};

// Qwen3-32B with tensor parallelism 2 on H100, as in the published calibration runs of llm-d: 20,480 tokens/s as the slope
// of single requests (here of one around 4k tokens), 400 to 510 ms for 8,192 tokens, 307,328 tokens of KV measured,
// 262,144 B per token; the context term derived.
const h100x2Qwen32b: EngineProfile = {
  ...GPU,
  name: 'h100x2-qwen-32b',
  kvBlocks: 19_208,
  maxModelLen: 40_960,
  prefillStepMs: 13,
  decodeStepMs: 13,
  linearMsPerToken: 0.0402,
  contextMsPerToken2: 2.1e-6,
  decodeMsPerSequence: 0.06,
  decodeContextMsPerToken: 5.6e-5,
  loadingMs: 139_000,
};

// Llama-3.1-70B with tensor parallelism 4 on H100. Step, prefill (0.055 ms a token over all, here at 4k tokens) and KV
// (461,376 tokens measured) from the published runs of llm-d; the context terms derived.
const h100x4Llama70b: EngineProfile = {
  ...GPU,
  name: 'h100x4-llama-70b',
  kvBlocks: 28_836,
  maxModelLen: 131_072,
  prefillStepMs: 20,
  decodeStepMs: 20,
  linearMsPerToken: 0.0523,
  contextMsPerToken2: 1.3e-6,
  decodeMsPerSequence: 0.05,
  decodeContextMsPerToken: 5e-5,
  loadingMs: 180_000,
};

// Llama-2-70B with tensor parallelism 8 on H100, medians that Splitwise published (a stack of 2023). Prefill: least
// squares on 1k, 2k, 4k and 8k tokens (78, 137, 390, 845 ms), largest error 14 %, at 4k; decode: 30.6, 31.8, 34.2, 38.6,
// 50.2 ms for 1, 4, 16, 32, 64 sequences. Good up to 8k tokens, where the figures end; KV derived.
const h100x8Llama70b: EngineProfile = {
  ...GPU,
  name: 'h100x8-llama-70b',
  kvBlocks: 72_500,
  maxModelLen: 8_192,
  frontMs: 0,
  frontMsPerToken: 0,
  prefillStepMs: 20,
  decodeStepMs: 30,
  linearMsPerToken: 0.0483,
  contextMsPerToken2: 1.4e-5,
  decodeMsPerSequence: 0.3,
  decodeContextMsPerToken: 1.5e-5,
  loadingMs: 240_000,
};

// The same model on eight A100-80GB, from the same source: prefill through 2k and 8k tokens (274, 1,550 ms), decode 45 ms
// for one sequence and 71.6 for 64.
const a100x8Llama70b: EngineProfile = {
  ...h100x8Llama70b,
  name: 'a100x8-llama-70b',
  prefillStepMs: 45,
  decodeStepMs: 44.6,
  linearMsPerToken: 0.087,
  contextMsPerToken2: 2.44e-5,
  decodeMsPerSequence: 0.42,
  decodeContextMsPerToken: 2.6e-5,
};

// Llama-3.1-70B, FP16, with tensor parallelism 2 on H200-141GB: all of it derived.
const h200x2Llama70b: EngineProfile = {
  ...GPU,
  name: 'h200x2-llama-70b',
  kvBlocks: 19_300,
  maxModelLen: 131_072,
  prefillStepMs: 18.4,
  decodeStepMs: 18.4,
  linearMsPerToken: 0.157,
  contextMsPerToken2: 2.65e-6,
  decodeMsPerSequence: 0.06,
  decodeContextMsPerToken: 4.3e-5,
  loadingMs: 180_000,
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

const ALL: readonly EngineProfile[] = [
  cpuTinyLlama,
  l4Llama8b,
  a100Llama8b,
  h100Llama8b,
  h100x2Qwen32b,
  h100x4Llama70b,
  a100x8Llama70b,
  h100x8Llama70b,
  h200x2Llama70b,
  demo,
];

export const ENGINE_PROFILES: Readonly<Record<string, EngineProfile>> = Object.fromEntries(
  ALL.map((profile) => [profile.name, profile]),
);

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
