// Reads OpenAI's responses: a text or a list of items, with instructions before them.

import { renderChat, type TemplateMessage } from '../../tokenizer.ts';
import type { Reply } from '../reply.ts';
import { adapterOf, limited, readContent, type Generation, type ParseContext } from './parse.ts';
import { laxBody, readSampling, samplingFault } from './sampling.ts';
import { certainCall, certainJson, toolFault } from './tools.ts';
import {
  integerOf,
  invalid,
  isObject,
  missing,
  modelFault,
  textOf,
  type JsonObject,
  type Parsed,
  type Problem,
} from './validation.ts';

export function parseResponses(given: JsonObject, context: ParseContext): Parsed<Generation> {
  const body = laxBody(given);
  const early = toolFault(body);
  if (early !== null) return { ok: false, reply: early };
  const problems: Problem[] = [];
  const sampling = readSampling(body, problems);
  const messages = readInput(body, problems);
  if (problems.length > 0) return { ok: false, reply: invalid(problems) };
  const maxTokens = integerOf(body['max_output_tokens']);
  const fault =
    modelFault(body['model'], context) ?? storedFault(body) ?? samplingFault(body, maxTokens);
  if (fault !== null) return { ok: false, reply: fault };
  const tools = Array.isArray(body['tools']) ? JSON.stringify(body['tools']) : null;
  const call = certainCall(body);
  const format = isObject(body['text']) ? body['text']['format'] : null;
  const generation: Generation = {
    ...sampling,
    n: 1,
    kind: 'chat',
    tokenPrompts: false,
    prompts: [Uint32Array.from(renderChat(messages, tools))],
    maxTokens,
    lora: adapterOf(body, context),
    logprobs: null,
    forced: call?.argumentsJson ?? certainJson(format),
    call,
    echoTexts: [''],
  };
  return limited(generation, context);
}

/** Nothing is stored, as without VLLM_ENABLE_RESPONSES_API_STORE. */
function storedFault(body: JsonObject): Reply | null {
  const id = textOf(body['previous_response_id']);
  if (id === undefined) return null;
  const error = {
    message: `Response with id '${id}' not found.`,
    type: 'invalid_request_error',
    param: 'response_id',
    code: 404,
  };
  return { status: 404, body: { error } };
}

function readInput(body: JsonObject, problems: Problem[]): TemplateMessage[] {
  const { input, instructions } = body;
  const loc = 'body.input';
  const first: TemplateMessage[] =
    typeof instructions === 'string' && instructions !== ''
      ? [{ role: 'system', pieces: [{ kind: 'text', text: instructions }] }]
      : [];
  if (typeof input === 'string') {
    return [...first, { role: 'user', pieces: [{ kind: 'text', text: input }] }];
  }
  if (Array.isArray(input)) return [...first, ...input.filter(isObject).map(messageOf)];
  if (input === undefined) problems.push(missing(loc, body));
  else {
    const msg = 'Input should be a valid';
    problems.push({ type: 'string_type', loc, msg: `${msg} string`, input });
    problems.push({ type: 'list_type', loc, msg: `${msg} list`, input });
  }
  return [];
}

function messageOf(item: JsonObject): TemplateMessage {
  const role = textOf(item['role']) ?? 'tool';
  const pieces = readContent(item);
  return pieces.length > 0
    ? { role, pieces }
    : { role, pieces: [{ kind: 'text', text: JSON.stringify(item) }] };
}
