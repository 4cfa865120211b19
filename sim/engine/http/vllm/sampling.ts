// What every generation request may say of how it is generated, and what vLLM says to values that make no sense.

import { ANSWERS_MAX } from '../generation.ts';
import type { Reply } from '../reply.ts';
import {
  integerOf,
  isObject,
  numberOf,
  pythonFloat,
  textOf,
  valueFault,
  type JsonObject,
  type Problem,
} from './validation.ts';

/** Lengths in tokens. */
export interface Sampling {
  /** Answers per prompt. */
  readonly n: number;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  readonly cacheSalt: string | undefined;
  readonly priority: number;
  readonly stop: readonly string[];
  readonly includeStop: boolean;
  readonly ignoreEos: boolean;
  readonly minTokens: number;
  readonly seed: number | null;
  /** Not greedy: several answers are several. */
  readonly varied: boolean;
  readonly echo: boolean;
  readonly returnTokenIds: boolean;
}

const INTEGERS = ['max_tokens', 'max_completion_tokens', 'n', 'min_tokens', 'seed', 'priority'];
const BOOLEANS = ['stream', 'echo', 'ignore_eos', 'return_token_ids', 'include_stop_str_in_output'];
const TRUE = new Set<unknown>([1, '1', 'true', 't', 'yes', 'y', 'on']);
const FALSE = new Set<unknown>([0, '0', 'false', 'f', 'no', 'n', 'off']);
const NUMBERS = ['temperature', 'top_p', 'presence_penalty', 'frequency_penalty'];

/** Members with the values that pydantic makes of texts: `"5"` is 5, `"true"` and 1 are true. */
export function laxBody(body: JsonObject): JsonObject {
  const changed: Record<string, unknown> = {};
  for (const name of INTEGERS) {
    const value = body[name];
    if (typeof value === 'string' && /^\s*[+-]?\d+\s*$/.test(value)) changed[name] = Number(value);
  }
  for (const name of NUMBERS) {
    const value = body[name];
    if (typeof value !== 'string' || value.trim() === '') continue;
    if (Number.isFinite(Number(value))) changed[name] = Number(value);
  }
  for (const name of BOOLEANS) {
    const value = body[name];
    const text = typeof value === 'string' ? value.toLowerCase() : value;
    if (TRUE.has(text)) changed[name] = true;
    else if (FALSE.has(text)) changed[name] = false;
  }
  return Object.keys(changed).length === 0 ? body : { ...body, ...changed };
}

export function readSampling(body: JsonObject, problems: Problem[]): Sampling {
  for (const name of INTEGERS) pushWhere(problems, body, { name, fault: integerFault });
  for (const name of BOOLEANS) pushWhere(problems, body, { name, fault: booleanFault });
  for (const name of NUMBERS) pushWhere(problems, body, { name, fault: numberFault });
  pushWhere(problems, body, { name: 'model', fault: textFault });
  const options = isObject(body['stream_options']) ? body['stream_options'] : {};
  const { stop } = body;
  return {
    n: Math.max(1, integerOf(body['n']) ?? 1),
    stream: body['stream'] === true,
    includeUsage: options['include_usage'] === true,
    continuousUsage:
      options['include_usage'] === true && options['continuous_usage_stats'] === true,
    cacheSalt: textOf(body['cache_salt']),
    priority: integerOf(body['priority']) ?? 0,
    stop: typeof stop === 'string' ? [stop] : Array.isArray(stop) ? stop.filter(isText) : [],
    includeStop: body['include_stop_str_in_output'] === true,
    ignoreEos: body['ignore_eos'] === true,
    minTokens: integerOf(body['min_tokens']) ?? 0,
    seed: integerOf(body['seed']),
    varied: (numberOf(body['temperature']) ?? 1) > 0,
    echo: body['echo'] === true,
    returnTokenIds: body['return_token_ids'] === true,
  };
}

/** The first value that cannot be, in the order in which vLLM looks; null when all can. */
export function samplingFault(body: JsonObject, maxTokens: number | null): Reply | null {
  return countFault(body) ?? rangeFault(body) ?? lengthFault(body, maxTokens) ?? choiceFault(body);
}

function countFault(body: JsonObject): Reply | null {
  const n = integerOf(body['n']) ?? 1;
  if (n < 1) return valueFault(`n must be at least 1, got ${n}.`);
  if (n <= ANSWERS_MAX) return null;
  const hint = 'To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable.';
  return valueFault(`n must be at most ${ANSWERS_MAX}, got ${n}. ${hint}`);
}

function rangeFault(body: JsonObject): Reply | null {
  const temperature = numberOf(body['temperature']);
  if (temperature !== null && (temperature < 0 || temperature > 2)) {
    const value = pythonFloat(temperature);
    const rule = temperature < 0 ? 'must be non-negative' : 'must be in [0, 2]';
    return valueFault(`temperature ${rule}, got ${value}.`, { param: 'temperature', value });
  }
  const topP = numberOf(body['top_p']);
  if (topP !== null && (topP <= 0 || topP > 1)) {
    const value = pythonFloat(topP);
    return valueFault(`top_p must be in (0, 1], got ${value}.`, { param: 'top_p', value });
  }
  for (const name of ['presence_penalty', 'frequency_penalty']) {
    const value = numberOf(body[name]);
    if (value !== null && Math.abs(value) > 2) {
      return valueFault(`${name} must be in [-2, 2], got ${pythonFloat(value)}.`);
    }
  }
  return null;
}

function lengthFault(body: JsonObject, maxTokens: number | null): Reply | null {
  if (maxTokens !== null && maxTokens < 1) {
    const value = String(maxTokens);
    const message = `max_tokens must be at least 1, got ${value}.`;
    return valueFault(message, { param: 'max_tokens', value });
  }
  const minTokens = integerOf(body['min_tokens']) ?? 0;
  if (minTokens < 0) {
    return valueFault(`min_tokens must be greater than or equal to 0, got ${minTokens}.`);
  }
  if (maxTokens !== null && minTokens > maxTokens) {
    return valueFault(
      `min_tokens must be less than or equal to max_tokens=${maxTokens}, got ${minTokens}.`,
    );
  }
  return null;
}

function choiceFault(body: JsonObject): Reply | null {
  const n = integerOf(body['n']) ?? 1;
  if (n > 1 && numberOf(body['temperature']) === 0) {
    return valueFault(`n must be 1 when using greedy sampling, got ${n}.`);
  }
  const { stop } = body;
  if (stop === '' || (Array.isArray(stop) && stop.includes(''))) {
    return valueFault('stop cannot contain an empty string.');
  }
  return null;
}

/** Of members that do not go together, found before anything else is looked at; null when all do. */
export function relationFault(body: JsonObject): Reply | null {
  const salt = body['cache_salt'];
  if (salt !== undefined && salt !== null && (typeof salt !== 'string' || salt === '')) {
    const message = "Parameter 'cache_salt' must be a non-empty string if provided.";
    return valueFault(message, { param: 'cache_salt' });
  }
  const format = body['response_format'];
  if (isObject(format) && format['type'] === 'json_schema' && !isObject(format['json_schema'])) {
    const message =
      "When response_format type is 'json_schema', the 'json_schema' field must be provided.";
    return valueFault(message, { param: 'response_format' });
  }
  if (isObject(body['stream_options']) && body['stream'] !== true) {
    const message = 'Stream options can only be defined when `stream=True`.';
    return valueFault(message, { param: 'stream_options' });
  }
  const top = numberOf(body['top_logprobs']);
  if (top !== null && top > 0 && body['logprobs'] !== true) {
    const message = 'when using `top_logprobs`, `logprobs` must be set to true.';
    return valueFault(message, { param: 'top_logprobs' });
  }
  return null;
}

interface MemberFault {
  readonly type: string;
  readonly msg: string;
}

function pushWhere(
  problems: Problem[],
  body: JsonObject,
  { name, fault }: { name: string; fault: (value: unknown) => MemberFault | null },
): void {
  const input = body[name];
  if (input === undefined || input === null) return;
  const found = fault(input);
  if (found !== null) problems.push({ ...found, loc: `body.${name}`, input });
}

function integerFault(value: unknown): MemberFault | null {
  if (Number.isInteger(value)) return null;
  const msg = 'Input should be a valid integer';
  if (typeof value === 'string') {
    return { type: 'int_parsing', msg: `${msg}, unable to parse string as an integer` };
  }
  return typeof value === 'number'
    ? { type: 'int_from_float', msg: `${msg}, got a number with a fractional part` }
    : { type: 'int_type', msg };
}

function booleanFault(value: unknown): MemberFault | null {
  if (typeof value === 'boolean') return null;
  const msg = 'Input should be a valid boolean';
  return typeof value === 'string' || typeof value === 'number'
    ? { type: 'bool_parsing', msg: `${msg}, unable to interpret input` }
    : { type: 'bool_type', msg };
}

function numberFault(value: unknown): MemberFault | null {
  if (typeof value === 'number') return null;
  const msg = 'Input should be a valid number';
  return typeof value === 'string'
    ? { type: 'float_parsing', msg: `${msg}, unable to parse string as a number` }
    : { type: 'float_type', msg };
}

function textFault(value: unknown): MemberFault | null {
  return typeof value === 'string'
    ? null
    : { type: 'string_type', msg: 'Input should be a valid string' };
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}
