// Reads chat and completion requests as vLLM does: unknown members are ignored, wrong ones get its words.

import { ANSWERS_MAX } from '../generation.ts';
import type { Reply } from '../reply.ts';
import {
  BEGIN_TOKEN,
  renderChat,
  tokenize,
  type TemplateMessage,
  type TemplatePiece,
} from '../../tokenizer.ts';
import { laxBody, readSampling, relationFault, samplingFault, type Sampling } from './sampling.ts';
import { certainCall, certainJson, toolFault, toolFlagFault, type ToolCall } from './tools.ts';
import {
  integerOf,
  invalid,
  isObject,
  missing,
  modelFault,
  numberOf,
  textOf,
  valueFault,
  type JsonObject,
  type Parsed,
  type Problem,
} from './validation.ts';

export type { JsonObject } from './validation.ts';

export interface ParseContext {
  /** Served name of the base model. */
  readonly model: string;
  readonly maxModelLen: number;
  /** Names of the loaded adapters. */
  readonly adapters?: readonly string[];
  /** `--enable-auto-tool-choice` and a parser are set. Default true. */
  readonly toolsEnabled?: boolean;
}

/** A generation request that can be run. Lengths in tokens. */
export interface Generation extends Sampling {
  readonly kind: 'chat' | 'completion';
  readonly prompts: readonly Uint32Array[];
  /** The client gave token ids. */
  readonly tokenPrompts: boolean;
  /** Null: until the model stops by itself. */
  readonly maxTokens: number | null;
  /** Name of the adapter that was asked for. */
  readonly lora: string | undefined;
  /** Most likely tokens told for each; null where probabilities were not asked for. */
  readonly logprobs: number | null;
  /** This and nothing else is said. */
  readonly forced: string | null;
  /** The answer is a call. */
  readonly call: ToolCall | null;
  /** Told before the answer, where an echo was asked for. */
  readonly echoTexts: readonly string[];
}

export function parseChat(given: JsonObject, context: ParseContext): Parsed<Generation> {
  const body = laxBody(given);
  const early = relationFault(body) ?? toolFault(body);
  if (early !== null) return { ok: false, reply: early };
  const problems: Problem[] = [];
  const messages = readMessages(body, problems);
  const sampling = readSampling(body, problems);
  if (problems.length > 0) return { ok: false, reply: invalid(problems) };
  const maxTokens = integerOf(body['max_completion_tokens']) ?? integerOf(body['max_tokens']);
  const fault =
    modelFault(body['model'], context) ??
    toolFlagFault(body, context.toolsEnabled ?? true) ??
    samplingFault(body, maxTokens);
  if (fault !== null) return { ok: false, reply: fault };
  if (messages.length === 0) {
    const message =
      'Cannot apply chat template to an empty conversation. Provide at least one message.';
    return { ok: false, reply: valueFault(message) };
  }
  const tools = Array.isArray(body['tools']) ? JSON.stringify(body['tools']) : null;
  const call = certainCall(body);
  const generation: Generation = {
    ...sampling,
    kind: 'chat',
    prompts: [Uint32Array.from(renderChat(messages, tools))],
    tokenPrompts: false,
    maxTokens,
    lora: adapterOf(body, context),
    logprobs: body['logprobs'] === true ? (numberOf(body['top_logprobs']) ?? 0) : null,
    forced: call?.argumentsJson ?? certainJson(body['response_format']),
    call,
    echoTexts: [sampling.echo ? lastAssistantText(messages) : ''],
  };
  return limited(generation, context);
}

export function parseCompletion(given: JsonObject, context: ParseContext): Parsed<Generation> {
  const body = laxBody(given);
  const early = relationFault(body) ?? promptFault(body) ?? logprobsFault(body);
  if (early !== null) return { ok: false, reply: early };
  const problems: Problem[] = [];
  const sampling = readSampling(body, problems);
  const prompts = readPrompts(body['prompt'], problems);
  if (problems.length > 0) return { ok: false, reply: invalid(problems) };
  const maxTokens = body['max_tokens'] === null ? null : (integerOf(body['max_tokens']) ?? 16);
  const fault = modelFault(body['model'], context) ?? samplingFault(body, maxTokens);
  if (fault !== null) return { ok: false, reply: fault };
  if (prompts.length === 0) {
    const message = 'Either prompt or prompt_embeds must be provided and non-empty.';
    return { ok: false, reply: valueFault(message, { param: 'prompt' }) };
  }
  const generation: Generation = {
    ...sampling,
    kind: 'completion',
    prompts: prompts.map(({ ids }) => ids),
    tokenPrompts: prompts.some(({ text }) => text === null),
    maxTokens,
    lora: adapterOf(body, context),
    logprobs: numberOf(body['logprobs']),
    forced: certainJson(body['response_format']),
    call: null,
    echoTexts: prompts.map(({ text }) => (sampling.echo ? (text ?? '') : '')),
  };
  return limited(generation, context);
}

export function adapterOf(body: JsonObject, { adapters = [] }: ParseContext): string | undefined {
  const model = textOf(body['model']);
  return model !== undefined && adapters.includes(model) ? model : undefined;
}

export function readMessages(body: JsonObject, problems: Problem[]): TemplateMessage[] {
  const input = body['messages'];
  const loc = 'body.messages';
  if (input === undefined) {
    problems.push(missing(loc, body));
    return [];
  }
  if (!Array.isArray(input)) {
    problems.push({ type: 'list_type', loc, msg: 'Input should be a valid list', input });
    return [];
  }
  return input.flatMap((message: unknown, at): TemplateMessage[] => {
    if (isObject(message) && typeof message['role'] === 'string') {
      return [{ role: message['role'], pieces: readContent(message) }];
    }
    problems.push(missing(`${loc}.${at}.role`, message));
    return [];
  });
}

/** Text, other parts and tool calls of a message, in order. */
export function readContent(message: JsonObject): TemplatePiece[] {
  const pieces: TemplatePiece[] = [];
  const content = message['content'];
  if (typeof content === 'string') pieces.push({ kind: 'text', text: content });
  else if (Array.isArray(content)) {
    for (const part of content as readonly unknown[]) {
      if (isObject(part) && typeof part['text'] === 'string') {
        pieces.push({ kind: 'text', text: part['text'] });
      } else pieces.push({ kind: 'part', json: JSON.stringify(part) });
    }
  }
  const calls = message['tool_calls'];
  if (Array.isArray(calls)) pieces.push({ kind: 'text', text: JSON.stringify(calls) });
  return pieces;
}

/** The prompt must fit, and leave room for a token; an answer that would not fit is cut. */
export function limited(generation: Generation, context: ParseContext): Parsed<Generation> {
  const { maxModelLen } = context;
  const fault = contextFault(generation, maxModelLen);
  if (fault !== null) return { ok: false, reply: fault };
  const { maxTokens } = generation;
  const roomTokens = maxModelLen - Math.max(...generation.prompts.map(({ length }) => length));
  const cut = maxTokens === null ? null : Math.min(maxTokens, roomTokens);
  return { ok: true, value: { ...generation, maxTokens: cut } };
}

function contextFault(generation: Generation, maxModelLen: number): Reply | null {
  const { prompts, maxTokens, tokenPrompts, n } = generation;
  if (prompts.length * n > ANSWERS_MAX) {
    return valueFault(
      `${prompts.length} prompts of ${n} answers are more than the ${ANSWERS_MAX} answers that are simulated.`,
    );
  }
  if (maxTokens !== null && maxTokens > maxModelLen) {
    const message = `max_tokens=${maxTokens} cannot be greater than max_model_len=${maxModelLen}. Please request fewer output tokens.`;
    return valueFault(message, { param: 'max_tokens', value: String(maxTokens) });
  }
  for (const { length } of prompts) {
    if (length > maxModelLen) return tooLong(tokenPrompts ? length : maxModelLen + 1, maxModelLen);
    if (length === maxModelLen) {
      const message = 'max_tokens must be at least 1, got 0.';
      return valueFault(message, { param: 'max_tokens', value: '0' });
    }
  }
  return null;
}

/** A text is cut one token past the limit while it is tokenised, so that its length is not known. */
function tooLong(tokens: number, maxModelLen: number): Reply {
  const qualifier = tokens === maxModelLen + 1 ? 'at least ' : '';
  const message = `This model's maximum context length is ${maxModelLen} tokens. However, your prompt contains ${qualifier}${tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.`;
  return valueFault(message, { param: 'input_tokens', value: String(tokens) });
}

interface ReadPrompt {
  readonly ids: Uint32Array;
  /** Null where the client gave token ids. */
  readonly text: string | null;
}

function readPrompts(prompt: unknown, problems: Problem[]): ReadPrompt[] {
  if (prompt === undefined || prompt === null || prompt === '') return [];
  if (typeof prompt === 'string') return [promptOf(prompt)];
  if (Array.isArray(prompt)) {
    const list = prompt as readonly unknown[];
    if (list.length > 0 && list.every(isTokenId))
      return [{ ids: Uint32Array.from(list), text: null }];
    if (list.every((each) => typeof each === 'string')) return list.map(promptOf);
    if (list.every((each) => Array.isArray(each) && each.length > 0 && each.every(isTokenId))) {
      return list.map((each) => ({ ids: Uint32Array.from(each as number[]), text: null }));
    }
  }
  const list = { type: 'list_type', msg: 'Input should be a valid list' };
  const text = { type: 'string_type', msg: 'Input should be a valid string' };
  for (const each of [list, list, text, list]) {
    problems.push({ ...each, loc: 'body.prompt', input: prompt });
  }
  return [];
}

function promptOf(text: string): ReadPrompt {
  return { ids: Uint32Array.from([BEGIN_TOKEN, ...tokenize(text)]), text };
}

function promptFault(body: JsonObject): Reply | null {
  const { prompt } = body;
  if (prompt !== undefined && prompt !== null && prompt !== '') return null;
  const message = 'Either prompt or prompt_embeds must be provided and non-empty.';
  return valueFault(message, { param: 'prompt' });
}

function logprobsFault(body: JsonObject): Reply | null {
  const logprobs = numberOf(body['logprobs']);
  if (logprobs === null || logprobs >= -1) return null;
  const message = '`logprobs` must be a positive value or -1.';
  return valueFault(message, { param: 'logprobs', value: String(logprobs) });
}

function lastAssistantText(messages: readonly TemplateMessage[]): string {
  const last = messages.at(-1);
  if (last?.role !== 'assistant') return '';
  return last.pieces.map((piece) => (piece.kind === 'text' ? piece.text : '')).join('');
}

function isTokenId(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;
}
