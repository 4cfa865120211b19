// Reads Anthropic's messages as the chat that vLLM makes of them.

import { renderChat, type TemplateMessage, type TemplatePiece } from '../../tokenizer.ts';
import type { Reply } from '../reply.ts';
import { adapterOf, limited, readMessages, type Generation, type ParseContext } from './parse.ts';
import { laxBody, readSampling, samplingFault } from './sampling.ts';
import { certainCall } from './tools.ts';
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

export function parseMessages(given: JsonObject, context: ParseContext): Parsed<Generation> {
  const body = laxBody(given);
  const problems = requiredProblems(body, ['model']);
  const messages = templateMessages(body, problems);
  problems.push(...requiredProblems(body, ['max_tokens']));
  const sampling = readSampling(body, problems);
  if (problems.length > 0) return { ok: false, reply: invalid(problems) };
  const maxTokens = integerOf(body['max_tokens']);
  if (maxTokens !== null && maxTokens < 1) {
    const msg = 'Value error, max_tokens must be positive';
    const ctx = "{'error': ValueError('max_tokens must be positive')}";
    const problem = { type: 'value_error', loc: 'body.max_tokens', msg, input: maxTokens, ctx };
    return { ok: false, reply: invalid([problem]) };
  }
  const fault = modelFault(body['model'], context) ?? samplingFault(body, maxTokens);
  if (fault !== null) return { ok: false, reply: anthropicReply(fault) };
  const stops = body['stop_sequences'];
  const call = certainCall(chatTools(body));
  const generation: Generation = {
    ...sampling,
    n: 1,
    includeUsage: true,
    continuousUsage: true,
    stop: Array.isArray(stops) ? stops.filter((stop) => typeof stop === 'string') : [],
    kind: 'chat',
    tokenPrompts: false,
    prompts: [promptOf(messages, body)],
    maxTokens,
    lora: adapterOf(body, context),
    logprobs: null,
    forced: call?.argumentsJson ?? null,
    call,
    echoTexts: [''],
  };
  const read = limited(generation, context);
  return read.ok ? read : { ok: false, reply: anthropicReply(read.reply) };
}

export function countTokensReply(body: JsonObject, context: ParseContext): Reply {
  const problems = requiredProblems(body, ['model']);
  const messages = templateMessages(body, problems);
  if (problems.length > 0) return invalid(problems);
  const fault = modelFault(body['model'], context);
  if (fault !== null) return anthropicReply(fault);
  const input_tokens = promptOf(messages, body).length;
  const answer = { input_tokens, context_management: { original_input_tokens: input_tokens } };
  return { status: 200, body: answer };
}

/** vLLM's own errors in Anthropic's envelope; those of validation stay as they are. */
export function anthropicReply(reply: Reply): Reply {
  const { error } = reply.body as { error: { type: string; message: string } };
  return {
    ...reply,
    body: { type: 'error', error: { type: error.type, message: error.message } },
  };
}

function requiredProblems(body: JsonObject, names: readonly string[]): Problem[] {
  return names
    .filter((name) => body[name] === undefined)
    .map((name) => missing(`body.${name}`, body));
}

function templateMessages(body: JsonObject, problems: Problem[]): TemplateMessage[] {
  const { system } = body;
  const messages = readMessages(body, problems);
  const pieces = systemPieces(system);
  return pieces.length === 0 ? messages : [{ role: 'system', pieces }, ...messages];
}

function systemPieces(system: unknown): TemplatePiece[] {
  if (typeof system === 'string') return system === '' ? [] : [{ kind: 'text', text: system }];
  if (!Array.isArray(system)) return [];
  return system.flatMap((part: unknown): TemplatePiece[] => {
    const text = isObject(part) ? textOf(part['text']) : undefined;
    return text === undefined ? [] : [{ kind: 'text', text }];
  });
}

function promptOf(messages: readonly TemplateMessage[], body: JsonObject): Uint32Array {
  const { tools } = chatTools(body);
  return Uint32Array.from(renderChat(messages, tools === null ? null : JSON.stringify(tools)));
}

/** Tools and choice in chat's form. */
function chatTools(body: JsonObject): JsonObject & { readonly tools: readonly unknown[] | null } {
  const given = Array.isArray(body['tools']) ? (body['tools'] as readonly unknown[]) : [];
  if (given.length === 0) return { tools: null };
  const tools = given.filter(isObject).map(({ name, description, input_schema }) => ({
    type: 'function',
    function: { name, description, parameters: input_schema },
  }));
  const choice = isObject(body['tool_choice']) ? body['tool_choice'] : {};
  switch (choice['type']) {
    case 'any':
      return { tools, tool_choice: 'required' };
    case 'tool':
      return { tools, tool_choice: { type: 'function', function: { name: choice['name'] } } };
    case 'none':
      return { tools, tool_choice: 'none' };
    default:
      return { tools, tool_choice: 'auto' };
  }
}
