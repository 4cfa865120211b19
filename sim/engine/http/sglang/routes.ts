// SGLang's endpoints: which path takes which method, and what each says. Generation requests are only read here.

import { kvCapacityTokens } from '../../profiles.ts';
import { BEGIN_TOKEN, detokenize, tokenize } from '../../tokenizer.ts';
import type { Reply } from '../reply.ts';
import type { EngineHost, HttpCall } from '../surface.ts';
import type { JsonObject } from '../vllm/parse.ts';
import { selectLoads, type Snapshot } from './loads.ts';
import { parseNative, parseOpenAi, readBody, type SglangGeneration } from './parse.ts';
import { badRequest, faultReply, methodNotAllowed, NOT_FOUND, UNAUTHORIZED } from './reply.ts';

export const SGLANG_VERSION = '0.5.18';

/** The server as its routes see it. */
export interface SglangServer {
  readonly host: EngineHost;
  metrics(): string;
  loads(): readonly Snapshot[];
  /** False while requests run or wait. */
  flush(): boolean;
  abort(rid: string | null): void;
}

export type Routed =
  | { readonly kind: 'reply'; readonly reply: Reply }
  | { readonly kind: 'generation'; readonly generation: SglangGeneration }
  | { readonly kind: 'health' };

const ROUTES: Readonly<Record<string, string>> = {
  '/health': 'GET',
  '/health_generate': 'GET',
  '/ping': 'GET',
  '/model_info': 'GET',
  '/get_model_info': 'GET',
  '/server_info': 'GET',
  '/get_server_info': 'GET',
  '/metrics': 'GET',
  '/v1/models': 'GET',
  '/v1/loads': 'GET',
  '/get_load': 'GET',
  '/flush_cache': 'GET, POST',
  '/abort_request': 'POST',
  '/tokenize': 'POST',
  '/detokenize': 'POST',
  '/generate': 'POST',
  '/v1/chat/completions': 'POST',
  '/v1/completions': 'POST',
};
const OPEN = ['/health', '/health_generate', '/ping', '/metrics'];

export function routeRequest(server: SglangServer, call: HttpCall): Routed {
  const refused = refusal(server, call);
  if (refused !== null) return { kind: 'reply', reply: refused };
  if (call.path === '/health' || call.path === '/health_generate') return { kind: 'health' };
  if (call.method === 'POST' && call.path !== '/flush_cache') return routeBody(server, call);
  return { kind: 'reply', reply: answerGet(server, call) };
}

function refusal({ host }: SglangServer, { path, method, headers }: HttpCall): Reply | null {
  const allowed = Object.hasOwn(ROUTES, path) ? (ROUTES[path] ?? '') : null;
  if (allowed === null || (path === '/metrics' && host.options.metrics !== true)) return NOT_FOUND;
  if (!allowed.split(', ').includes(method)) return methodNotAllowed(allowed);
  const key = host.options.apiKey ?? null;
  if (key === null || OPEN.includes(path)) return null;
  return headers.authorization === `Bearer ${key}` ? null : UNAUTHORIZED;
}

function answerGet(server: SglangServer, { path, query }: HttpCall): Reply {
  const json = (body: unknown): Reply => ({ status: 200, body });
  const text = (body: string): Reply => ({
    ...{ status: 200, body, contentType: 'text/plain; version=0.0.4; charset=utf-8' },
  });
  switch (path) {
    case '/ping':
      return { status: 200, body: '' };
    case '/model_info':
    case '/get_model_info':
      return json(modelInfo(server.host));
    case '/server_info':
    case '/get_server_info':
      return json(serverInfo(server));
    case '/metrics':
      return text(server.metrics());
    case '/v1/models':
      return json(modelList(server.host));
    case '/get_load':
      return json(server.loads().map(oldLoad));
    case '/flush_cache':
      return flushReply(server);
    default:
      return loadsReply(server, query);
  }
}

function routeBody(server: SglangServer, call: HttpCall): Routed {
  const body = readBody(call.headers['content-type'], call.body);
  const reply = (value: Reply): Routed => ({ kind: 'reply', reply: value });
  if ('fault' in body) return reply(faultReply(body.fault));
  const { json } = body;
  switch (call.path) {
    case '/tokenize':
      return reply(tokenizeReply(json, server.host));
    case '/detokenize':
      return reply(detokenizeReply(json));
    case '/abort_request':
      server.abort(json['abort_all'] === true ? null : textOf(json['rid']));
      return reply({ status: 200, body: '' });
    default: {
      const parsed =
        call.path === '/generate'
          ? parseNative(json)
          : parseOpenAi(call.path === '/v1/completions' ? 'completion' : 'chat', json);
      if (!parsed.ok) return reply(faultReply(parsed.fault, call.path === '/generate'));
      return { kind: 'generation', generation: parsed.generation };
    }
  }
}

function modelInfo({ options }: EngineHost): object {
  return {
    model_path: options.model,
    tokenizer_path: options.model,
    is_generation: true,
    preferred_sampling_params: null,
    weight_version: 'default',
    has_image_understanding: false,
    has_audio_understanding: false,
    model_type: 'llama',
    architectures: ['LlamaForCausalLM'],
  };
}

/** Arguments of the server, what its schedulers say of themselves, and where KV events can be had. */
function serverInfo({ host }: SglangServer): object {
  const { options, engines } = host;
  const { profile, maxModelLen } = engines[0]!.model;
  return {
    model_path: options.model,
    tokenizer_path: options.model,
    served_model_name: options.model,
    mem_fraction_static: 0.88,
    context_length: maxModelLen,
    page_size: profile.blockTokens,
    max_running_requests: profile.maxNumSeqs,
    chunked_prefill_size: profile.maxNumBatchedTokens,
    max_queued_requests: options.maxQueuedRequests ?? null,
    tp_size: 1,
    dp_size: engines.length,
    enable_metrics: options.metrics === true,
    enable_cache_report: options.cacheReport === true,
    status: 'ready',
    max_total_num_tokens: kvCapacityTokens(profile),
    internal_states: engines.map(() => ({
      effective_max_running_requests_per_dp: profile.maxNumSeqs,
    })),
    version: SGLANG_VERSION,
    kv_events: kvEvents(host),
  };
}

function kvEvents(host: EngineHost): object | null {
  const { kvEvents: config } = host.options;
  if (config === undefined) return null;
  const [first] = host.kvEndpoints();
  const address = first?.publish ?? config.endpoint;
  const { hostname, port } = new URL(address.replace('*', '0.0.0.0'));
  return {
    publisher: 'zmq',
    endpoint_host: hostname,
    endpoint_port_base: Number(port),
    topic: config.topic,
    block_size: host.engines[0]!.model.profile.blockTokens,
    dp_size: host.engines.length,
  };
}

function modelList({ options, engines, runtime }: EngineHost): object {
  const entry = {
    id: options.model,
    object: 'model',
    created: Math.floor(runtime.clock.wallMs() / 1_000),
    owned_by: 'sglang',
    root: options.model,
    parent: null,
    max_model_len: engines[0]!.model.maxModelLen,
  };
  return { object: 'list', data: [entry] };
}

function oldLoad(load: Snapshot): object {
  const count = (name: string): number => Number(load[name] ?? 0);
  return {
    dp_rank: load['dp_rank'],
    num_reqs: count('num_running_reqs') + count('num_waiting_reqs'),
    num_waiting_reqs: count('num_waiting_reqs'),
    num_tokens: count('num_total_tokens'),
  };
}

function flushReply(server: SglangServer): Reply {
  const flushed = server.flush();
  const done =
    'Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n';
  const refused = 'Flush cache failed: there are running or waiting requests.\n';
  return {
    ...{ status: flushed ? 200 : 400, body: flushed ? done : refused },
    contentType: 'text/plain; charset=utf-8',
  };
}

function loadsReply(server: SglangServer, query: URLSearchParams): Reply {
  const answer = selectLoads(server.loads(), query);
  switch (answer.kind) {
    case 'invalid':
      return faultReply(badRequest(answer.detail, '400'));
    case 'prometheus':
      return {
        ...{ status: 200, body: answer.text },
        contentType: 'text/plain; version=0.0.4; charset=utf-8',
      };
    case 'json': {
      const at = new Date(server.host.runtime.clock.wallMs()).toISOString();
      const head = {
        timestamp: at,
        version: SGLANG_VERSION,
        accelerator: null,
        num_accelerators: 1,
      };
      return { status: 200, body: { ...head, loads: answer.loads } };
    }
  }
}

function tokenizeReply(json: JsonObject, host: EngineHost): Reply {
  const { prompt } = json;
  if (typeof prompt !== 'string') return faultReply(badRequest('prompt: Field required'));
  const tokens = [BEGIN_TOKEN, ...tokenize(prompt)];
  const { maxModelLen } = host.engines[0]!.model;
  return { status: 200, body: { tokens, count: tokens.length, max_model_len: maxModelLen } };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function detokenizeReply(json: JsonObject): Reply {
  const tokens = Array.isArray(json['tokens']) ? json['tokens'] : [];
  const ids = tokens.filter((token): token is number => Number.isInteger(token));
  return { status: 200, body: { text: detokenize(ids) } };
}
