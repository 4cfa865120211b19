// What a simulated engine server is told.

import type { KvEventsConfig } from './kv-publisher.ts';
import type { KvEventForm } from './kv-wire.ts';
import type { VllmOptions } from './vllm/options.ts';
import type { EngineProfile } from '../profiles.ts';

export const ENGINE_KINDS = ['vllm', 'tgi', 'sglang', 'llamacpp'] as const;
export type EngineKind = (typeof ENGINE_KINDS)[number];

export interface EngineServerOptions {
  /** What it pretends to be. Default vllm. */
  readonly kind?: EngineKind;
  readonly host: string;
  /** 0 takes a free port; it stays the same over restarts. */
  readonly port: number;
  /** Served model name. */
  readonly model: string;
  readonly profile: EngineProfile;
  /** ms from start to open port; the profile's own where absent. */
  readonly loadingMs?: number;
  /** Bearer key asked for on `/v1`; null or absent for none. */
  readonly apiKey?: string | null;
  /** `usage.prompt_tokens_details`, as `--enable-prompt-tokens-details` has it. Default true. */
  readonly promptTokensDetails?: boolean;
  /** Engines behind the one port, each with a KV cache of its own. Default 1. */
  readonly dataParallelSize?: number;
  /** KV events are published there; absent for none. */
  readonly kvEvents?: KvEventsConfig;
  /** Default map, as a vLLM from 0.24 on. */
  readonly kvEventForm?: KvEventForm;
  readonly vllm?: VllmOptions;
  /** TGI: requests inside before 429. Default 128. */
  readonly maxConcurrentRequests?: number;
  /** SGLang and llama.cpp: `/metrics` is there, as `--enable-metrics` and `--metrics` have it. Default false. */
  readonly metrics?: boolean;
  /** SGLang: usage tells cached tokens, as `--enable-cache-report` has it. Default false. */
  readonly cacheReport?: boolean;
  /** SGLang: requests that wait before 503; absent for no limit. */
  readonly maxQueuedRequests?: number;
  /** SGLang: ms from open port to ready, within `loadingMs`. Default 1,000. */
  readonly warmUpMs?: number;
  /** Requests kept for `GET /sim/received`. Default 200. */
  readonly receivedMax?: number;
}
