// Reads generation requests as vLLM does: unknown members are ignored, wrong ones get its words.
//
// Stop strings, sampling, log probabilities, tools' grammar and `echo` have no effect on what a simulated model
// says; they are accepted.

import { errorReply, type Reply } from '../reply.ts';
import {
  BEGIN_TOKEN,
  renderChat,
  tokenize,
  type TemplateMessage,
  type TemplatePiece,
} from '../../tokenizer.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

export interface ParseContext {
  readonly model: string;
  readonly maxModelLen: number;
}

/** A generation request that can be run. Lengths in tokens. */
export interface Generation {
  readonly kind: 'chat' | 'completion';
  readonly prompts: readonly Uint32Array[];
  /** Answers per prompt. */
  readonly n: number;
  /** Null: until the model stops by itself. */
  readonly maxTokens: number | null;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  readonly cacheSalt: string | undefined;
}

export type Parsed<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly reply: Reply };

interface Problem {
  readonly type: string;
  readonly loc: string;
  readonly msg: string;
  readonly input: unknown;
}

/** The body of a JSON route. */
export function parseJsonBody(contentType: string | undefined, body: string): Parsed<JsonObject> {
  const mediaType = (contentType ?? '').split(';')[0]?.trim().toLowerCase();
  if (mediaType !== 'application/json') {
    const message =
      "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
    return { ok: false, reply: errorReply(400, 'Bad Request', message) };
  }
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (error) {
    return { ok: false, reply: malformedJson(error, body) };
  }
  if (isObject(value)) return { ok: true, value };
  const problem = {
    type: 'model_attributes_type',
    loc: 'body',
    msg: 'Input should be a valid dictionary or object to extract fields from',
    input: value,
  };
  return { ok: false, reply: invalid([problem]) };
}

function malformedJson(error: unknown, body: string): Reply {
  const text = error instanceof Error ? error.message : '';
  const at = /position (\d+)/.exec(text)?.[1] ?? String(body.length);
  const loc = `body.${at}`;
  const message = `1 validation error:\n  {'type': 'json_invalid', 'loc': '${loc}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': '${text.replaceAll("'", '')}'}}`;
  return errorReply(400, 'Bad Request', message, loc);
}

export function parseChat(body: JsonObject, context: ParseContext): Parsed<Generation> {
  const problems: Problem[] = [];
  const messages = readMessages(body, problems);
  const common = readCommon(body, problems);
  if (problems.length > 0) return { ok: false, reply: invalid(problems) };
  const fault = modelFault(body, context) ?? valueFault(body);
  if (fault !== null) return { ok: false, reply: fault };
  if (messages.length === 0) {
    const message =
      'Cannot apply chat template to an empty conversation. Provide at least one message.';
    return { ok: false, reply: errorReply(400, 'BadRequestError', message) };
  }
  const tools =
    Array.isArray(body['tools']) && body['tools'].length > 0 ? JSON.stringify(body['tools']) : null;
  const maxTokens = integerOf(body['max_completion_tokens']) ?? integerOf(body['max_tokens']);
  const prompts = [Uint32Array.from(renderChat(messages, tools))];
  return limited({ ...common, kind: 'chat', prompts, maxTokens }, context);
}

export function parseCompletion(body: JsonObject, context: ParseContext): Parsed<Generation> {
  const problems: Problem[] = [];
  const common = readCommon(body, problems);
  const prompts = readPrompts(body['prompt'], problems);
  if (problems.length > 0) return { ok: false, reply: invalid(problems) };
  const fault = modelFault(body, context) ?? valueFault(body);
  if (fault !== null) return { ok: false, reply: fault };
  if (prompts.length === 0) {
    const message = 'Either prompt or prompt_embeds must be provided and non-empty.';
    return { ok: false, reply: errorReply(400, 'BadRequestError', message) };
  }
  const maxTokens = body['max_tokens'] === null ? null : (integerOf(body['max_tokens']) ?? 16);
  return limited({ ...common, kind: 'completion', prompts, maxTokens }, context);
}

/** Token ids of `/tokenize`: a prompt or messages. */
export function parseTokenize(body: JsonObject, context: ParseContext): Parsed<readonly number[]> {
  const fault = modelFault(body, context);
  if (fault !== null) return { ok: false, reply: fault };
  if (typeof body['prompt'] === 'string') {
    return { ok: true, value: [BEGIN_TOKEN, ...tokenize(body['prompt'])] };
  }
  const problems: Problem[] = [];
  const messages = readMessages(body, problems);
  if (problems.length > 0) return { ok: false, reply: invalid(problems) };
  return { ok: true, value: renderChat(messages, null) };
}

function readCommon(
  body: JsonObject,
  problems: Problem[],
): Pick<Generation, 'n' | 'stream' | 'includeUsage' | 'continuousUsage' | 'cacheSalt'> {
  for (const name of ['max_tokens', 'max_completion_tokens', 'n']) {
    const input = body[name];
    if (input === undefined || input === null || Number.isInteger(input)) continue;
    problems.push({
      type: 'int_parsing',
      loc: `body.${name}`,
      msg: 'Input should be a valid integer',
      input,
    });
  }
  const stream = body['stream'] ?? false;
  if (typeof stream !== 'boolean') {
    problems.push({
      type: 'bool_type',
      loc: 'body.stream',
      msg: 'Input should be a valid boolean',
      input: stream,
    });
  }
  const model = body['model'] ?? '';
  if (typeof model !== 'string') {
    problems.push({
      type: 'string_type',
      loc: 'body.model',
      msg: 'Input should be a valid string',
      input: model,
    });
  }
  const options = isObject(body['stream_options']) ? body['stream_options'] : {};
  const salt = body['cache_salt'];
  return {
    n: Math.max(1, integerOf(body['n']) ?? 1),
    stream: stream === true,
    includeUsage: options['include_usage'] === true,
    continuousUsage: options['continuous_usage_stats'] === true,
    cacheSalt: typeof salt === 'string' ? salt : undefined,
  };
}

function readMessages(body: JsonObject, problems: Problem[]): TemplateMessage[] {
  const input = body['messages'];
  const loc = 'body.messages';
  if (input === undefined) {
    problems.push({ type: 'missing', loc, msg: 'Field required', input: body });
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
    problems.push({
      type: 'missing',
      loc: `${loc}.${at}.role`,
      msg: 'Field required',
      input: message,
    });
    return [];
  });
}

function readContent(message: JsonObject): TemplatePiece[] {
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

function readPrompts(prompt: unknown, problems: Problem[]): Uint32Array[] {
  if (prompt === undefined || prompt === null || prompt === '') return [];
  if (typeof prompt === 'string') return [promptOf(prompt)];
  if (Array.isArray(prompt)) {
    const list = prompt as readonly unknown[];
    if (list.length > 0 && list.every(isTokenId)) return [Uint32Array.from(list)];
    if (list.every((each) => typeof each === 'string')) return list.map(promptOf);
    if (list.every((each) => Array.isArray(each) && each.length > 0 && each.every(isTokenId))) {
      return list.map((each) => Uint32Array.from(each as number[]));
    }
  }
  problems.push({
    type: 'string_type',
    loc: 'body.prompt.str',
    msg: 'Input should be a valid string',
    input: prompt,
  });
  return [];
}

function promptOf(text: string): Uint32Array {
  return Uint32Array.from([BEGIN_TOKEN, ...tokenize(text)]);
}

function modelFault(body: JsonObject, context: ParseContext): Reply | null {
  const model = body['model'];
  if (typeof model !== 'string' || model === '' || model === context.model) return null;
  const message = `The model \`${model}\` does not exist. Valid aliases: ${context.model}.`;
  return errorReply(404, 'NotFoundError', message, 'model');
}

function valueFault(body: JsonObject): Reply | null {
  const temperature = body['temperature'];
  if (typeof temperature === 'number' && temperature < 0) {
    const value = Number.isInteger(temperature) ? `${temperature}.0` : String(temperature);
    return parameterFault('temperature', value, `temperature must be non-negative, got ${value}.`);
  }
  for (const name of ['max_tokens', 'max_completion_tokens']) {
    const value = integerOf(body[name]);
    if (value !== null && value < 1) {
      return parameterFault(
        'max_tokens',
        String(value),
        `max_tokens must be at least 1, got ${value}.`,
      );
    }
  }
  return null;
}

function limited(generation: Generation, context: ParseContext): Parsed<Generation> {
  const { maxModelLen } = context;
  const { maxTokens } = generation;
  if (maxTokens !== null && maxTokens > maxModelLen) {
    const message = `max_tokens=${maxTokens} cannot be greater than max_model_len=${maxModelLen}. Please request fewer output tokens.`;
    return { ok: false, reply: parameterFault('max_tokens', String(maxTokens), message) };
  }
  const start = `This model's maximum context length is ${maxModelLen} tokens. However, `;
  for (const { length } of generation.prompts) {
    if (length >= maxModelLen) {
      const least = maxModelLen + 1;
      const message = `${start}your prompt contains at least ${least} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.`;
      return { ok: false, reply: parameterFault('input_tokens', String(least), message) };
    }
    if (maxTokens !== null && length + maxTokens > maxModelLen) {
      const message = `${start}you requested ${maxTokens} output tokens and your prompt contains ${length} input tokens, for a total of ${length + maxTokens} tokens. Please reduce the length of the input prompt or the number of requested output tokens.`;
      return { ok: false, reply: parameterFault('input_tokens', String(length), message) };
    }
  }
  return { ok: true, value: generation };
}

function parameterFault(param: string, value: string, message: string): Reply {
  const text = `${message} (parameter=${param}, value=${value})`;
  return errorReply(400, 'BadRequestError', text, param);
}

function invalid(problems: readonly Problem[]): Reply {
  const head = `${problems.length} validation error${problems.length === 1 ? '' : 's'}:`;
  const lines = problems.map(
    ({ type, loc, msg, input }) =>
      `  {'type': '${type}', 'loc': '${loc}', 'msg': '${msg}', 'input': ${pythonInput(input)}}`,
  );
  return errorReply(400, 'Bad Request', [head, ...lines].join('\n'), problems[0]?.loc ?? null);
}

function pythonInput(input: unknown): string {
  if (Array.isArray(input)) return `'<list of ${input.length} items>'`;
  if (isObject(input)) return `'<dict of ${Object.keys(input).length} items>'`;
  if (typeof input === 'string') return `'${input.slice(0, 100)}'`;
  if (input === true) return 'True';
  if (input === false) return 'False';
  return typeof input === 'number' ? String(input) : 'None';
}

function integerOf(value: unknown): number | null {
  return Number.isInteger(value) ? (value as number) : null;
}

function isTokenId(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
