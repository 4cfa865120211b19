// TGI's endpoints: which path takes which method, and what each says. Generation requests are only read here.

import { kvCapacityTokens } from '../../profiles.ts';
import { BEGIN_TOKEN, detokenize, tokenize, tokenText } from '../../tokenizer.ts';
import type { EngineHost, HttpCall } from '../surface.ts';
import type { JsonObject } from '../vllm/parse.ts';
import {
  isReply,
  parseNative,
  parseOpenAi,
  readBody,
  wrongForm,
  type TgiGeneration,
  type TgiLimits,
  type TgiParsed,
} from './parse.ts';
import { methodNotAllowed, NOT_FOUND, UNAUTHORIZED, type TgiReply } from './reply.ts';

export const TGI_VERSION = '3.3.7';
const MAX_CONCURRENT_REQUESTS = 128;
const MAX_CLIENT_BATCH = 4;

/** The server as its routes see it. */
export interface TgiServer {
  readonly host: EngineHost;
  metrics(): string;
}

/** Methods by path. */
const ROUTES: Readonly<Record<string, string>> = {
  '/': 'GET,POST',
  '/health': 'GET',
  '/ping': 'GET',
  '/info': 'GET',
  '/metrics': 'GET',
  '/v1/models': 'GET',
  '/generate': 'POST',
  '/generate_stream': 'POST',
  '/v1/chat/completions': 'POST',
  '/v1/completions': 'POST',
  '/tokenize': 'POST',
  '/chat_tokenize': 'POST',
};

export function limitsOf({ host }: TgiServer): TgiLimits {
  const maxTotalTokens = host.engines[0]!.model.maxModelLen;
  return { maxTotalTokens, maxInputTokens: maxTotalTokens - 1, maxClientBatch: MAX_CLIENT_BATCH };
}

export function infoOf(server: TgiServer): { maxConcurrentRequests: number; body: object } {
  const { options, engines } = server.host;
  const limits = limitsOf(server);
  const maxConcurrentRequests = options.maxConcurrentRequests ?? MAX_CONCURRENT_REQUESTS;
  const body = {
    model_id: options.model,
    model_sha: null,
    model_pipeline_tag: 'text-generation',
    max_concurrent_requests: maxConcurrentRequests,
    max_best_of: 2,
    max_stop_sequences: 4,
    max_input_tokens: limits.maxInputTokens,
    max_total_tokens: limits.maxTotalTokens,
    max_batch_total_tokens: kvCapacityTokens(engines[0]!.model.profile),
    validation_workers: 2,
    max_client_batch_size: limits.maxClientBatch,
    router: 'text-generation-router',
    version: TGI_VERSION,
    sha: null,
    docker_label: null,
  };
  return { maxConcurrentRequests, body };
}

/** A reply, a generation to run, or a health check. */
export function routeRequest(
  server: TgiServer,
  call: HttpCall,
): TgiReply | TgiGeneration | 'health' {
  const { method, path } = call;
  const allowed = Object.hasOwn(ROUTES, path) ? (ROUTES[path] ?? '') : null;
  if (allowed === null) return NOT_FOUND;
  if (!allowed.split(',').includes(method)) return methodNotAllowed(allowed);
  const { apiKey, model } = server.host.options;
  const key = apiKey ?? null;
  const guarded = method === 'POST' || path.startsWith('/v1/');
  if (guarded && key !== null && call.headers.authorization !== `Bearer ${key}`) {
    return UNAUTHORIZED;
  }
  if (method === 'POST') return routeBody(call);
  switch (path) {
    case '/info':
      return { status: 200, body: infoOf(server).body };
    case '/metrics':
      return { status: 200, body: server.metrics(), contentType: 'text/plain; charset=utf-8' };
    case '/v1/models': {
      const entry = { id: model, object: 'model', created: 0, owned_by: model };
      return { status: 200, body: { object: 'list', data: [entry] } };
    }
    default:
      return 'health';
  }
}

function routeBody({ path, headers, body }: HttpCall): TgiReply | TgiGeneration {
  const json = readBody(headers['content-type'], body);
  if (isReply(json)) return json;
  switch (path) {
    case '/v1/chat/completions':
      return unwrap(parseOpenAi('chat', json));
    case '/v1/completions':
      return unwrap(parseOpenAi('completion', json));
    case '/generate_stream':
      return unwrap(parseNative(json, { stream: true, listed: false }));
    case '/tokenize':
      return typeof json['inputs'] === 'string'
        ? { status: 200, body: tokensOf([BEGIN_TOKEN, ...tokenize(json['inputs'])]) }
        : wrongForm('missing field `inputs`');
    case '/chat_tokenize':
      return chatTokens(json);
    default:
      return unwrap(nativeRequest(json, path === '/'));
  }
}

/** `POST /` is either of the two native ones. */
function nativeRequest(json: JsonObject, either: boolean): TgiParsed {
  return parseNative(json, { stream: either && json['stream'] === true, listed: either });
}

function unwrap(parsed: TgiParsed): TgiReply | TgiGeneration {
  return parsed.ok ? parsed.generation : parsed.reply;
}

function chatTokens(json: JsonObject): TgiReply {
  const parsed = parseOpenAi('chat', json);
  if (!parsed.ok) return parsed.reply;
  const ids = [...(parsed.generation.prompts[0] ?? [])];
  const body = { tokenize_response: tokensOf(ids), templated_text: detokenize(ids) };
  return { status: 200, body };
}

/** Tokens with the characters of the text that they cover. */
function tokensOf(ids: readonly number[]): object[] {
  let at = 0;
  return ids.map((id) => {
    const text = tokenText(id);
    const start = at;
    at += text.length;
    return { id, text, start, stop: at };
  });
}
