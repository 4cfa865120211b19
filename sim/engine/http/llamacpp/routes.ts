// llama.cpp's endpoints: which path takes which method, and what each says. Generation requests are only read here.

import { kvCapacityTokens } from '../../profiles.ts';
import { BEGIN_TOKEN, detokenize, tokenize } from '../../tokenizer.ts';
import { readOpenAi, type OpenAiGeneration } from '../openai-generation.ts';
import type { EngineHost, HttpCall } from '../surface.ts';
import type { JsonObject } from '../vllm/parse.ts';
import type { SlotTable, SlotTask } from './slots.ts';

export const LLAMACPP_BUILD = 'b10573-3f545bec';

export interface LlamacppReply {
  readonly status: number;
  readonly body: unknown;
  readonly contentType?: string;
}

export type LlamacppGeneration = OpenAiGeneration & { readonly kind: 'chat' | 'completion' };

export type Routed =
  | { readonly kind: 'reply'; readonly reply: LlamacppReply }
  | { readonly kind: 'generation'; readonly generation: LlamacppGeneration }
  /** Answered by the thread that computes, between two steps. */
  | { readonly kind: 'queued'; readonly reply: () => LlamacppReply };

export interface LlamacppServer {
  readonly host: EngineHost;
  readonly slots: SlotTable;
  metrics(): string;
}

const ROUTES: Readonly<Record<string, 'GET' | 'POST'>> = {
  '/health': 'GET',
  '/v1/health': 'GET',
  '/metrics': 'GET',
  '/slots': 'GET',
  '/props': 'GET',
  '/models': 'GET',
  '/v1/models': 'GET',
  '/tokenize': 'POST',
  '/detokenize': 'POST',
  '/v1/chat/completions': 'POST',
  '/v1/completions': 'POST',
};

export function errorReply(code: number, type: string, message: string, more = {}): LlamacppReply {
  return { status: code, body: { error: { code, message, type, ...more } } };
}

export const LOADING = errorReply(503, 'unavailable_error', 'Loading model');
const NOT_FOUND = errorReply(404, 'not_found_error', 'File Not Found');
const NO_METRICS = errorReply(
  501,
  'not_supported_error',
  'This server does not support metrics endpoint. Start it with `--metrics`',
);

/** Tokens of one slot. */
export function slotTokens({ engines }: EngineHost): number {
  const { profile } = engines[0]!.model;
  return Math.floor(kvCapacityTokens(profile) / profile.maxNumSeqs);
}

export function routeRequest(server: LlamacppServer, call: HttpCall): Routed {
  const { method, path } = call;
  const known = Object.hasOwn(ROUTES, path) && ROUTES[path] === method;
  if (!known) return reply(NOT_FOUND);
  const { apiKey } = server.host.options;
  const open = path === '/health' || path === '/v1/health' || path.endsWith('/models');
  if (!open && apiKey !== undefined && apiKey !== null) {
    if (call.headers.authorization !== `Bearer ${apiKey}`) {
      return reply(errorReply(401, 'authentication_error', 'Invalid API Key'));
    }
  }
  if (method === 'POST') return routeBody(server, call);
  switch (path) {
    case '/metrics': {
      if (server.host.options.metrics !== true) return reply(NO_METRICS);
      const text = (): LlamacppReply => ({
        ...{ status: 200, body: server.metrics() },
        contentType: 'text/plain; version=0.0.4',
      });
      return { kind: 'queued', reply: text };
    }
    case '/slots':
      return { kind: 'queued', reply: () => ok(slotList(server)) };
    case '/props':
      return reply(ok(properties(server.host)));
    case '/models':
    case '/v1/models':
      return reply(ok(modelList(server.host)));
    default:
      return reply(ok({ status: 'ok' }));
  }
}

function routeBody(server: LlamacppServer, { path, body }: HttpCall): Routed {
  const json = readBody(body);
  if (json === null) {
    return reply(errorReply(400, 'invalid_request_error', 'the body is no JSON object'));
  }
  if (path === '/tokenize') {
    const content = typeof json['content'] === 'string' ? json['content'] : '';
    const head = json['add_special'] === true ? [BEGIN_TOKEN] : [];
    return reply(ok({ tokens: [...head, ...tokenize(content)] }));
  }
  if (path === '/detokenize') {
    const tokens = Array.isArray(json['tokens']) ? json['tokens'] : [];
    return reply(ok({ content: detokenize(tokens.filter(Number.isInteger) as number[]) }));
  }
  const kind = path === '/v1/completions' ? 'completion' : 'chat';
  const read = readOpenAi(kind, json);
  if (!read.ok) return reply(errorReply(400, 'invalid_request_error', read.words));
  const given = kind === 'completion' ? json['max_tokens'] : read.generation.maxTokens;
  const maxTokens = Number.isInteger(given) ? (given as number) : null;
  const generation = { ...read.generation, kind, maxTokens } as const;
  return tooLong(generation, slotTokens(server.host)) ?? { kind: 'generation', generation };
}

/** A limit on the answer that the slot has no room for is no fault: it is cut there. */
function tooLong({ prompts }: LlamacppGeneration, room: number): Routed | null {
  const long = prompts.find(({ length }) => length >= room);
  if (long === undefined) return null;
  const message = `request (${long.length} tokens) exceeds the available context size (${room} tokens), try increasing it`;
  const more = { n_prompt_tokens: long.length, n_ctx: room };
  return reply(errorReply(400, 'exceed_context_size_error', message, more));
}

function slotList({ host, slots }: LlamacppServer): object[] {
  const n_ctx = slotTokens(host);
  return slots.slots.map((task, id) => ({
    ...{ id, n_ctx, speculative: false, is_processing: task !== null },
    ...(task === null ? {} : workOf(task)),
  }));
}

function workOf(task: SlotTask): object {
  return {
    id_task: task.number,
    n_prompt_tokens: task.promptTokens + task.decodedTokens,
    n_prompt_tokens_processed: task.processedTokens,
    n_prompt_tokens_cache: task.cachedTokens,
    next_token: [
      { has_next_token: true, has_new_line: false, n_remain: -1, n_decoded: task.decodedTokens },
    ],
  };
}

function properties(host: EngineHost): object {
  const { options, engines } = host;
  return {
    default_generation_settings: { n_ctx: slotTokens(host), params: {} },
    total_slots: engines[0]!.model.profile.maxNumSeqs,
    model_alias: options.model,
    model_path: `/models/${options.model}.gguf`,
    modalities: { vision: false, audio: false },
    is_sleeping: false,
    build_info: LLAMACPP_BUILD,
  };
}

function modelList({ options, runtime, engines }: EngineHost): object {
  const { model } = options;
  const created = Math.floor(runtime.clock.wallMs() / 1_000);
  const meta = { n_ctx_train: engines[0]!.model.maxModelLen };
  return {
    models: [{ name: model, model, type: 'model' }],
    object: 'list',
    data: [{ id: model, object: 'model', created, owned_by: 'llamacpp', meta }],
  };
}

function readBody(body: Buffer): JsonObject | null {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    const object = typeof value === 'object' && value !== null && !Array.isArray(value);
    return object ? (value as JsonObject) : null;
  } catch {
    // Told to the client as what it is: no JSON.
    return null;
  }
}

function ok(body: unknown): LlamacppReply {
  return { status: 200, body };
}

function reply(value: LlamacppReply): Routed {
  return { kind: 'reply', reply: value };
}
