// Server options out of the values of `spillway engine-sim`'s flags.

import { z } from 'zod';

import { ENGINE_PROFILES, engineProfile, type EngineProfile } from '../profiles.ts';
import { ENGINE_SIM_OPTIONS, type EngineSimKey, type EngineSimValues } from './flags.ts';
import type { KvEventsConfig } from './kv-publisher.ts';
import { KV_EVENT_FORMS } from './kv-wire.ts';
import { ENGINE_KINDS, type EngineKind, type EngineServerOptions } from './options.ts';
import { TERM_ENDINGS, type LoraModule, type VllmOptions } from './vllm/options.ts';

const names = Object.keys(ENGINE_PROFILES).join(', ');

export type ParsedEngineSim =
  /** `seed` null: chance is another one each time. */
  | { readonly ok: true; readonly options: EngineServerOptions; readonly seed: number | null }
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
  if (kind !== undefined) problems.push(...otherKindsFlags(values, kind));
  const profileName = textOf(values, 'profile') ?? 'demo';
  const base = engineProfile(profileName);
  if (base === null) problems.push(`--profile: no profile ${profileName}; there are ${names}`);
  const port = count('port', 0, 65_535) ?? 0;
  const loadingMs = count('loadingMs', 0);
  const receivedMax = count('received', 0, 100_000);
  const maxConcurrentRequests = count('maxConcurrent', 1);
  const warmUpMs = count('warmUpMs', 0);
  const maxQueuedRequests = count('maxWaiting', 0);
  const policies = ['fcfs', 'priority'] as const;
  const policy = oneOf(values, { key: 'schedulingPolicy', among: policies, problems });
  const sized = base === null ? null : sizedProfile(base, count);
  const profile =
    sized === null || policy === undefined ? sized : { ...sized, schedulingPolicy: policy };
  const kvEvents = kvEventsOf(values, problems);
  const dataParallelSize = count('dataParallelSize', 1, 64) ?? 1;
  const seed = count('seed', 0, 2 ** 32 - 1);
  const vllm = vllmOptions(values, { count, problems });
  const form = oneOf(values, { key: 'kvEventsEncoding', among: KV_EVENT_FORMS, problems });
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
      dataParallelSize,
      ...(kvEvents === null ? {} : { kvEvents }),
      ...(form === undefined ? {} : { kvEventForm: form }),
      vllm,
    },
    seed: seed ?? null,
  };
}

/** Flags that were given and mean nothing to that kind. */
function otherKindsFlags(values: EngineSimValues, kind: EngineKind): string[] {
  return ENGINE_SIM_OPTIONS.flatMap(({ key, flags, kinds, default: byDefault }) => {
    const value = values[key];
    const switched = value === !flags.startsWith('--no-');
    const given = typeof value === 'boolean' ? switched : (value ?? byDefault) !== byDefault;
    if (!given || kinds === undefined || kinds.includes(kind)) return [];
    return [`${flagOf(key)}: no flag of ${kind}, but of ${kinds.join(' and ')}`];
  });
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
    maxLoras: count('maxLoras', 1) ?? base.maxLoras,
  };
}

interface Reading {
  readonly count: (key: EngineSimKey, least: number, most?: number) => number | undefined;
  readonly problems: string[];
}

function vllmOptions(values: EngineSimValues, { count, problems }: Reading): VllmOptions {
  const termEnding = oneOf(values, { key: 'termEnding', among: TERM_ENDINGS, problems });
  const seconds = count('shutdownTimeout', 0, 86_400) ?? 0;
  if (seconds > 0 && termEnding !== undefined) {
    problems.push('--term-ending: with --shutdown-timeout streams end by themselves, or are cut');
  }
  const loraModules = loraModulesOf(values, problems);
  return {
    requestIdHeaders: values.requestIdHeaders === true,
    devMode: values.devMode === true,
    enableLora: values.enableLora === true || loraModules.length > 0,
    loraModules,
    loraUpdates: values.loraUpdates === true,
    loadTracking: values.loadTracking !== false,
    perRequestMetrics: values.perRequestMetrics === true,
    scaleOut: values.scaleOut === true,
    tools: values.tools !== false,
    shutdownTimeoutMs: seconds * 1_000,
    ...(termEnding === undefined ? {} : { termEnding }),
  };
}

function loraModulesOf(values: EngineSimValues, problems: string[]): LoraModule[] {
  const given = values.loraModules;
  const texts = typeof given === 'string' ? [given] : Array.isArray(given) ? given : [];
  return texts.flatMap((text: string): LoraModule[] => {
    const at = text.indexOf('=');
    if (at > 0 && at < text.length - 1) {
      return [{ name: text.slice(0, at), path: text.slice(at + 1) }];
    }
    problems.push(`--lora-modules: ${text} is not name=path`);
    return [];
  });
}

const KV_EVENTS = z.strictObject({
  enable_kv_cache_events: z.boolean().default(false),
  publisher: z.enum(['null', 'zmq']).nullish(),
  endpoint: z.string().default('tcp://*:5557'),
  replay_endpoint: z.string().nullish(),
  buffer_steps: z.int().min(1).max(1_000_000).default(10_000),
  hwm: z.int().min(0).default(100_000),
  max_queue_size: z.int().min(1).max(10_000_000).default(100_000),
  topic: z.string().default(''),
});

/** Null where no events are asked for. */
function kvEventsOf(values: EngineSimValues, problems: string[]): KvEventsConfig | null {
  const text = textOf(values, 'kvEvents');
  if (text === undefined) return null;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    problems.push('--kv-events-config: not JSON');
    return null;
  }
  const parsed = KV_EVENTS.safeParse(json);
  if (!parsed.success) {
    for (const { path, message } of parsed.error.issues) {
      problems.push(`--kv-events-config: ${path.join('.')}: ${message}`);
    }
    return null;
  }
  const { data } = parsed;
  if (!data.enable_kv_cache_events || data.publisher === 'null') return null;
  return {
    endpoint: data.endpoint,
    replayEndpoint: data.replay_endpoint ?? null,
    bufferSteps: data.buffer_steps,
    hwm: data.hwm,
    maxQueueSize: data.max_queue_size,
    topic: data.topic,
  };
}

function oneOf<T extends string>(
  values: EngineSimValues,
  asked: { readonly key: EngineSimKey; readonly among: readonly T[]; readonly problems: string[] },
): T | undefined {
  const { key, among, problems } = asked;
  const text = textOf(values, key);
  const found = among.find((each) => each === text);
  if (text !== undefined && found === undefined) {
    problems.push(`${flagOf(key)}: ${text} is none of ${among.join(', ')}`);
  }
  return found;
}

function textOf(values: EngineSimValues, key: EngineSimKey): string | undefined {
  const value = values[key];
  return typeof value === 'string' ? value : undefined;
}

function flagOf(key: EngineSimKey): string {
  return ENGINE_SIM_OPTIONS.find((option) => option.key === key)?.flags.split(' ')[0] ?? key;
}
