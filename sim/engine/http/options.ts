// What a simulated engine server is told, and the flags that say it.

import type { KvEventsConfig } from './kv-publisher.ts';
import type { KvEventForm } from './kv-wire.ts';
import type { VllmOptions } from './vllm/options.ts';
import { ENGINE_PROFILES, engineProfile, type EngineProfile } from '../profiles.ts';

export const ENGINE_KINDS = ['vllm', 'tgi', 'sglang'] as const;
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
  /** SGLang: `/metrics` is there, as `--enable-metrics` has it. Default false. */
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

export interface EngineSimOption {
  /** As commander takes it. */
  readonly flags: string;
  readonly description: string;
  readonly default?: string | undefined;
  /** Key of the value in what `parseEngineSimOptions` reads. */
  readonly key: EngineSimKey;
}

export type EngineSimKey =
  | 'kind'
  | 'host'
  | 'port'
  | 'model'
  | 'profile'
  | 'loadingMs'
  | 'kvTokens'
  | 'maxModelLen'
  | 'maxNumSeqs'
  | 'maxNumBatchedTokens'
  | 'maxQueued'
  | 'maxConcurrent'
  | 'metrics'
  | 'cacheReport'
  | 'warmUpMs'
  | 'maxWaiting'
  | 'apiKey'
  | 'promptTokensDetails'
  | 'received';

const names = Object.keys(ENGINE_PROFILES).join(', ');

export const ENGINE_SIM_OPTIONS: readonly EngineSimOption[] = [
  {
    key: 'kind',
    flags: '--kind <kind>',
    description: `engine to be: ${ENGINE_KINDS.join(', ')}`,
    default: 'vllm',
  },
  {
    key: 'host',
    flags: '--host <address>',
    description: 'address to listen on',
    default: '127.0.0.1',
  },
  {
    key: 'port',
    flags: '--port <port>',
    description: 'port to listen on; 0 takes a free one',
    default: '8000',
  },
  { key: 'model', flags: '--model <name>', description: 'served model name', default: 'sim-model' },
  {
    key: 'profile',
    flags: '--profile <name>',
    description: `speeds and sizes: ${names}`,
    default: 'demo',
  },
  {
    key: 'loadingMs',
    flags: '--loading-ms <ms>',
    description: 'time from start to open port, ms (default: of the profile)',
  },
  {
    key: 'kvTokens',
    flags: '--kv-tokens <tokens>',
    description: 'KV cache size, tokens (default: of the profile)',
  },
  {
    key: 'maxModelLen',
    flags: '--max-model-len <tokens>',
    description: 'prompt and answer together, tokens (default: of the profile)',
  },
  {
    key: 'maxNumSeqs',
    flags: '--max-num-seqs <requests>',
    description: 'requests in the batch at most (default: of the profile)',
  },
  {
    key: 'maxNumBatchedTokens',
    flags: '--max-num-batched-tokens <tokens>',
    description: 'tokens per scheduler step (default: of the profile)',
  },
  {
    key: 'maxQueued',
    flags: '--max-num-queued-reqs <requests>',
    description: 'requests waiting before 503 (default: no limit)',
  },
  {
    key: 'maxConcurrent',
    flags: '--max-concurrent-requests <requests>',
    description: 'tgi: requests inside before 429 (default: 128)',
  },
  {
    key: 'metrics',
    flags: '--enable-metrics',
    description: 'sglang: serve /metrics',
  },
  {
    key: 'cacheReport',
    flags: '--enable-cache-report',
    description: 'sglang: tell cached tokens in usage',
  },
  {
    key: 'maxWaiting',
    flags: '--max-queued-requests <requests>',
    description: 'sglang: requests waiting before 503 (default: no limit)',
  },
  {
    key: 'warmUpMs',
    flags: '--warm-up-ms <ms>',
    description: 'sglang: time from open port to ready, ms (default: 1000)',
  },
  {
    key: 'apiKey',
    flags: '--api-key <key>',
    description: 'bearer key asked for on /v1 (default: none)',
  },
  {
    key: 'promptTokensDetails',
    flags: '--no-prompt-tokens-details',
    description:
      'leave cached_tokens out of usage, as a vLLM without --enable-prompt-tokens-details does',
  },
  {
    key: 'received',
    flags: '--received <requests>',
    description: 'requests kept for GET /sim/received',
    default: '200',
  },
];

/** Values as commander gives them. */
export type EngineSimValues = Partial<Record<EngineSimKey, string | boolean | undefined>>;

export type ParsedEngineSim =
  | { readonly ok: true; readonly options: EngineServerOptions }
  /** One line each, naming the flag. */
  | { readonly ok: false; readonly problems: readonly string[] };

/** Options out of flag values; all problems at once. */
export function parseEngineSimOptions(values: EngineSimValues): ParsedEngineSim {
  const problems: string[] = [];
  const count = (key: EngineSimKey, least: number, most = 2 ** 31): number | undefined => {
    const text = values[key] ?? ENGINE_SIM_OPTIONS.find((option) => option.key === key)?.default;
    if (text === undefined) return undefined;
    const value = Number(text);
    if (Number.isInteger(value) && value >= least && value <= most) return value;
    problems.push(`${flagOf(key)}: ${String(text)} is not a whole number from ${least} to ${most}`);
    return undefined;
  };
  const kindName = textOf(values, 'kind') ?? 'vllm';
  const kind = ENGINE_KINDS.find((each) => each === kindName);
  if (kind === undefined) {
    problems.push(`--kind: no kind ${kindName}; there are ${ENGINE_KINDS.join(', ')}`);
  }
  const profileName = textOf(values, 'profile') ?? 'demo';
  const base = engineProfile(profileName);
  if (base === null) problems.push(`--profile: no profile ${profileName}; there are ${names}`);
  const port = count('port', 0, 65_535) ?? 0;
  const loadingMs = count('loadingMs', 0);
  const receivedMax = count('received', 0, 100_000);
  const maxConcurrentRequests = count('maxConcurrent', 1);
  const warmUpMs = count('warmUpMs', 0);
  const maxQueuedRequests = count('maxWaiting', 0);
  const profile = base === null ? null : sizedProfile(base, count);
  if (problems.length > 0 || profile === null) return { ok: false, problems };
  return {
    ok: true,
    options: {
      ...(kind === undefined ? {} : { kind }),
      host: textOf(values, 'host') ?? '127.0.0.1',
      port,
      model: textOf(values, 'model') ?? 'sim-model',
      profile,
      ...(loadingMs === undefined ? {} : { loadingMs }),
      ...(receivedMax === undefined ? {} : { receivedMax }),
      ...(maxConcurrentRequests === undefined ? {} : { maxConcurrentRequests }),
      ...(warmUpMs === undefined ? {} : { warmUpMs }),
      ...(maxQueuedRequests === undefined ? {} : { maxQueuedRequests }),
      metrics: values.metrics === true,
      cacheReport: values.cacheReport === true,
      apiKey: textOf(values, 'apiKey') ?? null,
      promptTokensDetails: values.promptTokensDetails !== false,
    },
  };
}

function sizedProfile(
  base: EngineProfile,
  count: (key: EngineSimKey, least: number) => number | undefined,
): EngineProfile {
  const kvTokens = count('kvTokens', 2 * base.blockTokens);
  return {
    ...base,
    kvBlocks: kvTokens === undefined ? base.kvBlocks : Math.ceil(kvTokens / base.blockTokens),
    maxModelLen: count('maxModelLen', 2) ?? base.maxModelLen,
    maxNumSeqs: count('maxNumSeqs', 1) ?? base.maxNumSeqs,
    maxNumBatchedTokens: count('maxNumBatchedTokens', 1) ?? base.maxNumBatchedTokens,
    maxQueuedRequests: count('maxQueued', 0) ?? base.maxQueuedRequests,
  };
}

function textOf(values: EngineSimValues, key: EngineSimKey): string | undefined {
  const value = values[key];
  return typeof value === 'string' ? value : undefined;
}

function flagOf(key: EngineSimKey): string {
  return ENGINE_SIM_OPTIONS.find((option) => option.key === key)?.flags.split(' ')[0] ?? key;
}
