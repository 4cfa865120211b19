// The flags of `spillway engine-sim`.

import { ENGINE_PROFILES } from '../profiles.ts';
import { KV_EVENT_FORMS } from './kv-wire.ts';
import { ENGINE_KINDS, type EngineKind } from './options.ts';
import { TERM_ENDINGS } from './vllm/options.ts';

export interface EngineSimOption {
  /** As commander takes it. */
  readonly flags: string;
  readonly description: string;
  readonly default?: string | undefined;
  /** Key of the value in what `parseEngineSimOptions` reads. */
  readonly key: EngineSimKey;
  /** Kinds that have it; all where absent. */
  readonly kinds?: readonly EngineKind[];
}

export type EngineSimKey =
  | 'kind'
  | 'kvEvents'
  | 'kvEventsEncoding'
  | 'dataParallelSize'
  | 'schedulingPolicy'
  | 'requestIdHeaders'
  | 'devMode'
  | 'enableLora'
  | 'loraModules'
  | 'maxLoras'
  | 'loraUpdates'
  | 'loadTracking'
  | 'perRequestMetrics'
  | 'scaleOut'
  | 'tools'
  | 'shutdownTimeout'
  | 'termEnding'
  | 'seed'
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
    kinds: ['tgi'],
    description: 'requests inside before 429 (default: 128)',
  },
  {
    key: 'metrics',
    flags: '--enable-metrics',
    kinds: ['sglang', 'llamacpp'],
    description: 'serve /metrics',
  },
  {
    key: 'cacheReport',
    flags: '--enable-cache-report',
    kinds: ['sglang'],
    description: 'tell cached tokens in usage',
  },
  {
    key: 'maxWaiting',
    flags: '--max-queued-requests <requests>',
    kinds: ['sglang'],
    description: 'requests waiting before 503 (default: no limit)',
  },
  {
    key: 'warmUpMs',
    flags: '--warm-up-ms <ms>',
    kinds: ['sglang'],
    description: 'time from open port to ready, ms (default: 1000)',
  },
  {
    key: 'apiKey',
    flags: '--api-key <key>',
    description: 'bearer key asked for on /v1 (default: none)',
  },
  {
    key: 'promptTokensDetails',
    flags: '--no-prompt-tokens-details',
    kinds: ['vllm'],
    description:
      'leave cached_tokens out of usage, as a vLLM without --enable-prompt-tokens-details does',
  },
  {
    key: 'kvEvents',
    flags: '--kv-events-config <json>',
    kinds: ['vllm', 'sglang'],
    description: "KV events over ZeroMQ, in vLLM's words (default: none)",
  },
  {
    key: 'kvEventsEncoding',
    flags: '--kv-events-encoding <form>',
    kinds: ['vllm'],
    description: `events as ${KV_EVENT_FORMS.join(' or ')}, as before 0.24`,
    default: 'map',
  },
  {
    key: 'dataParallelSize',
    flags: '--data-parallel-size <engines>',
    kinds: ['vllm', 'sglang'],
    description: 'engines behind the port, each with its own KV cache',
    default: '1',
  },
  {
    key: 'schedulingPolicy',
    flags: '--scheduling-policy <policy>',
    kinds: ['vllm'],
    description: 'fcfs or priority (default: of the profile)',
  },
  {
    key: 'requestIdHeaders',
    flags: '--enable-request-id-headers',
    kinds: ['vllm'],
    description: 'give x-request-id back',
  },
  {
    key: 'devMode',
    flags: '--dev-mode',
    kinds: ['vllm'],
    description: 'sleep, pause and cache endpoints, as VLLM_SERVER_DEV_MODE=1 has them',
  },
  {
    key: 'enableLora',
    flags: '--enable-lora',
    kinds: ['vllm'],
    description: 'serve adapters',
  },
  {
    key: 'loraModules',
    flags: '--lora-modules <name=path...>',
    kinds: ['vllm'],
    description: 'adapters that are loaded at the start',
  },
  {
    key: 'maxLoras',
    flags: '--max-loras <adapters>',
    kinds: ['vllm'],
    description: 'adapters in one batch (default: of the profile)',
  },
  {
    key: 'loraUpdates',
    flags: '--allow-lora-updates',
    kinds: ['vllm'],
    description: 'load and unload adapters, as VLLM_ALLOW_RUNTIME_LORA_UPDATING=True has it',
  },
  {
    key: 'loadTracking',
    flags: '--no-server-load-tracking',
    kinds: ['vllm'],
    description: 'leave /load at 0, as a vLLM without --enable-server-load-tracking does',
  },
  {
    key: 'perRequestMetrics',
    flags: '--enable-per-request-metrics',
    kinds: ['vllm'],
    description: 'tell in answers where their time went',
  },
  {
    key: 'scaleOut',
    flags: '--enable-scale-out',
    kinds: ['vllm'],
    description: 'render endpoints',
  },
  {
    key: 'tools',
    flags: '--no-tools',
    kinds: ['vllm'],
    description: 'refuse tool choices, as a vLLM without --enable-auto-tool-choice does',
  },
  {
    key: 'shutdownTimeout',
    flags: '--shutdown-timeout <seconds>',
    kinds: ['vllm'],
    description: 'let what runs finish at SIGTERM',
    default: '0',
  },
  {
    key: 'termEnding',
    flags: '--term-ending <ending>',
    kinds: ['vllm'],
    description: `how streams end at SIGTERM: ${TERM_ENDINGS.join(', ')} (default: by chance)`,
  },
  {
    key: 'seed',
    flags: '--seed <number>',
    description: 'makes chance repeatable (default: another one each time)',
  },
  {
    key: 'received',
    flags: '--received <requests>',
    description: 'requests kept for GET /sim/received',
    default: '200',
  },
];

/** Values as commander gives them. */
export type EngineSimValues = Partial<
  Record<EngineSimKey, string | boolean | readonly string[] | undefined>
>;
