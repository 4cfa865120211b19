// How vLLM says what is wrong with a request: FastAPI's validation errors in its own envelope, and its own words for
// values that make no sense.

import { errorReply, type Reply } from '../reply.ts';
import { jsonFault } from './python-json.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

export type Parsed<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly reply: Reply };

/** One member that is not what it should be, in pydantic's terms. */
export interface Problem {
  readonly type: string;
  readonly loc: string;
  readonly msg: string;
  readonly input: unknown;
  /** Printed as it stands. */
  readonly ctx?: string;
}

const PROBLEMS_MAX = 10;
const INPUT_CHARS_MAX = 200;

/** The body of a JSON route. */
export function parseJsonBody(contentType: string | undefined, body: string): Parsed<JsonObject> {
  const mediaType = (contentType ?? '').split(';')[0]?.trim().toLowerCase();
  if (mediaType !== 'application/json') {
    const message =
      "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
    return { ok: false, reply: errorReply(400, 'Bad Request', message) };
  }
  if (body === '') return refused(missing('body', null));
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return { ok: false, reply: malformedJson(body) };
  }
  if (isObject(value)) return { ok: true, value };
  if (value === null) return refused(missing('body', null));
  return refused({
    type: 'model_attributes_type',
    loc: 'body',
    msg: 'Input should be a valid dictionary or object to extract fields from',
    input: value,
  });
}

function malformedJson(body: string): Reply {
  const { at, words } = jsonFault(body) ?? { at: 0, words: 'Expecting value' };
  const loc = `body.${at}`;
  const quoted = words.includes("'") ? `"${words}"` : `'${words}'`;
  const problem = `{'type': 'json_invalid', 'loc': '${loc}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': ${quoted}}}`;
  return errorReply(400, 'Bad Request', `1 validation error:\n  ${problem}`, loc);
}

export function missing(loc: string, input: unknown): Problem {
  return { type: 'missing', loc, msg: 'Field required', input };
}

export function refused(problem: Problem): { readonly ok: false; readonly reply: Reply } {
  return { ok: false, reply: invalid([problem]) };
}

export function invalid(problems: readonly Problem[]): Reply {
  const label = problems.length === 1 ? 'error' : 'errors';
  const lines = problems.slice(0, PROBLEMS_MAX).map(problemLine);
  const more = problems.length - lines.length;
  const rest = more > 0 ? [`  ...and ${more} more ${label}`] : [];
  const message = [`${problems.length} validation ${label}:`, ...lines, ...rest].join('\n');
  return errorReply(400, 'Bad Request', message, problems[0]?.loc ?? null);
}

function problemLine({ type, loc, msg, input, ctx }: Problem): string {
  const context = ctx === undefined ? '' : `, 'ctx': ${ctx}`;
  return `  {'type': '${type}', 'loc': '${loc}', 'msg': '${msg}', 'input': ${pythonInput(input)}${context}}`;
}

/** A value that vLLM refuses by itself; the parameter is named in the words as well. */
export function valueFault(message: string, about?: { param: string; value?: string }): Reply {
  if (about === undefined) return errorReply(400, 'BadRequestError', message);
  const value = about.value === undefined ? '' : `, value=${about.value}`;
  const text = `${message} (parameter=${about.param}${value})`;
  return errorReply(400, 'BadRequestError', text, about.param);
}

/** Adapters may be asked for, but vLLM does not name them. */
export function modelFault(
  model: unknown,
  served: { readonly model: string; readonly adapters?: readonly string[] },
): Reply | null {
  if (typeof model !== 'string' || model === '' || model === served.model) return null;
  if (served.adapters?.includes(model) === true) return null;
  const message = `The model \`${model}\` does not exist. Valid aliases: ${served.model}.`;
  return errorReply(404, 'NotFoundError', message, 'model');
}

function pythonInput(input: unknown): string {
  if (Array.isArray(input)) return `'<list of ${input.length} items>'`;
  if (isObject(input)) return `'<dict of ${Object.keys(input).length} items>'`;
  const text = pythonText(input);
  const long = text.length > INPUT_CHARS_MAX;
  return `'${long ? `${text.slice(0, INPUT_CHARS_MAX)}...[truncated]` : text}'`;
}

/** As Python's `str()` has it. */
export function pythonText(value: unknown): string {
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value === 'string') return value;
  return typeof value === 'number' ? String(value) : 'None';
}

/** A number that Python holds as a float. */
export function pythonFloat(value: number): string {
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

/** The same in a JSON body, where JavaScript would leave the `.0` out. */
export function pythonNumber(value: number): object {
  // Node has it; the library types of ES2024 do not know it.
  return (JSON as unknown as { rawJSON(text: string): object }).rawJSON(pythonFloat(value));
}

export function integerOf(value: unknown): number | null {
  return Number.isInteger(value) ? (value as number) : null;
}

export function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
