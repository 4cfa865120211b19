// vLLM's endpoints: which path takes which method, and what each says. Generation requests are only read here.

import { renderExposition } from './exposition.ts';
import {
  parseChat,
  parseCompletion,
  parseJsonBody,
  parseTokenize,
  type Generation,
  type JsonObject,
  type ParseContext,
} from './parse.ts';
import { methodNotAllowed, NOT_FOUND, UNAUTHORIZED, type Reply } from '../reply.ts';
import type { HttpCall } from '../surface.ts';
import type { EngineModel } from '../../model.ts';
import { detokenize } from '../../tokenizer.ts';

export const VLLM_VERSION = '0.32.0';

/** The server as it is at the moment of the request. Wall times in ms since 1970. */
export interface ServerState {
  readonly modelName: string;
  readonly apiKey: string | null;
  readonly model: EngineModel;
  readonly startedWallMs: number;
  readonly createdWallMs: number;
  readonly nowWallMs: number;
  /** Generation requests that are being answered. */
  readonly generating: number;
  /** Random hex digits. */
  readonly hex: (digits: number) => string;
}

/** Routes by path: the method it takes. */
const ROUTES: Readonly<Record<string, 'GET' | 'POST'>> = {
  '/health': 'GET',
  '/ping': 'GET',
  '/version': 'GET',
  '/load': 'GET',
  '/metrics': 'GET',
  '/is_sleeping': 'GET',
  '/v1/models': 'GET',
  '/v1/chat/completions': 'POST',
  '/v1/completions': 'POST',
  '/tokenize': 'POST',
  '/detokenize': 'POST',
};

/** A reply, or a generation request to run. */
export function routeRequest(state: ServerState, request: HttpCall): Reply | Generation {
  return refusal(state, request) ?? answer(state, request);
}

/** What is wrong before the body is looked at; null when nothing is. */
function refusal(state: ServerState, { method, path, headers }: HttpCall): Reply | null {
  const { apiKey } = state;
  if (apiKey !== null && path.startsWith('/v1/') && headers.authorization !== `Bearer ${apiKey}`) {
    return UNAUTHORIZED;
  }
  const allowed = Object.hasOwn(ROUTES, path) ? ROUTES[path] : undefined;
  if (allowed === undefined) return NOT_FOUND;
  return allowed === method ? null : methodNotAllowed(allowed);
}

function answer(state: ServerState, request: HttpCall): Reply | Generation {
  const json = (body: object): Reply => ({ status: 200, body });
  switch (request.path) {
    case '/health':
    case '/ping':
      return { status: state.model.phase === 'dead' ? 503 : 200, body: '' };
    case '/version':
      return json({ version: VLLM_VERSION });
    case '/load':
      return json({ server_load: state.generating });
    case '/is_sleeping':
      return json({ is_sleeping: false });
    case '/metrics':
      return metricsReply(state);
    case '/v1/models':
      return json(modelList(state));
    default:
      return answerJson(state, request);
  }
}

function answerJson(state: ServerState, request: HttpCall): Reply | Generation {
  const parsed = parseJsonBody(request.headers['content-type'], request.body.toString('utf8'));
  if (!parsed.ok) return parsed.reply;
  const context = { model: state.modelName, maxModelLen: state.model.maxModelLen };
  if (request.path === '/tokenize') return tokenizeReply(parsed.value, context);
  if (request.path === '/detokenize') return detokenizeReply(parsed.value);
  const parse = request.path === '/v1/chat/completions' ? parseChat : parseCompletion;
  const generation = parse(parsed.value, context);
  return generation.ok ? generation.value : generation.reply;
}

function metricsReply({ model, modelName, startedWallMs, createdWallMs }: ServerState): Reply {
  const body = renderExposition({
    modelName,
    profile: model.profile,
    maxModelLen: model.maxModelLen,
    stats: model.stats,
    startTimeSeconds: startedWallMs / 1000,
    createdSeconds: createdWallMs / 1000,
  });
  return { status: 200, body, contentType: 'text/plain; version=0.0.4; charset=utf-8' };
}

function modelList({ model, modelName, nowWallMs, hex }: ServerState): object {
  const created = Math.floor(nowWallMs / 1000);
  const permission = {
    id: `modelperm-${hex(16)}`,
    object: 'model_permission',
    created,
    allow_create_engine: false,
    allow_sampling: true,
    allow_logprobs: true,
    allow_search_indices: false,
    allow_view: true,
    allow_fine_tuning: false,
    organization: '*',
    group: null,
    is_blocking: false,
  };
  const entry = {
    id: modelName,
    object: 'model',
    created,
    owned_by: 'vllm',
    root: `/models/${modelName}`,
    parent: null,
    max_model_len: model.maxModelLen,
    permission: [permission],
  };
  return { object: 'list', data: [entry] };
}

function tokenizeReply(body: JsonObject, context: ParseContext): Reply {
  const tokens = parseTokenize(body, context);
  if (!tokens.ok) return tokens.reply;
  const { maxModelLen } = context;
  const answer = {
    count: tokens.value.length,
    max_model_len: maxModelLen,
    tokens: tokens.value,
    token_strs: null,
  };
  return { status: 200, body: answer };
}

function detokenizeReply(body: JsonObject): Reply {
  const tokens = Array.isArray(body['tokens']) ? body['tokens'] : [];
  const ids = tokens.filter((token): token is number => Number.isInteger(token));
  return { status: 200, body: { prompt: detokenize(ids) } };
}
