// vLLM's endpoints: which path takes which method, and which of them are there at all.

import type { VllmOptions } from './options.ts';

type Method = 'GET' | 'POST';

const ALWAYS: Readonly<Record<string, readonly Method[]>> = {
  '/health': ['GET'],
  '/ping': ['GET', 'POST'],
  '/version': ['GET'],
  '/load': ['GET'],
  '/metrics': ['GET'],
  '/kv_event_sources': ['GET'],
  '/v1/models': ['GET'],
  '/v1/chat/completions': ['POST'],
  '/v1/completions': ['POST'],
  '/v1/messages': ['POST'],
  '/v1/messages/count_tokens': ['POST'],
  '/v1/responses': ['POST'],
  '/v1/chat/completions/render': ['POST'],
  '/v1/completions/render': ['POST'],
  '/tokenize': ['POST'],
  '/detokenize': ['POST'],
};

const DEVELOPMENT: Readonly<Record<string, readonly Method[]>> = {
  '/sleep': ['POST'],
  '/wake_up': ['POST'],
  '/is_sleeping': ['GET'],
  '/pause': ['POST'],
  '/resume': ['POST'],
  '/is_paused': ['GET'],
  '/reset_prefix_cache': ['POST'],
  '/reset_mm_cache': ['POST'],
};

const ADAPTERS: Readonly<Record<string, readonly Method[]>> = {
  '/v1/load_lora_adapter': ['POST'],
  '/v1/unload_lora_adapter': ['POST'],
};

/** Methods of a path; null where there is no such endpoint. */
export function methodsOf(path: string, options: VllmOptions): readonly string[] | null {
  if (Object.hasOwn(ALWAYS, path)) return ALWAYS[path] ?? null;
  if (options.devMode === true && Object.hasOwn(DEVELOPMENT, path)) {
    return DEVELOPMENT[path] ?? null;
  }
  if (options.loraUpdates === true && Object.hasOwn(ADAPTERS, path)) {
    return ADAPTERS[path] ?? null;
  }
  return null;
}

/** What `/load` counts. */
export const GENERATION_PATHS: ReadonlySet<string> = new Set([
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/messages',
  '/v1/responses',
]);
