// Tools and response formats: what a grammar would make the model say.
//
// A tool that must be called is called, with arguments that its schema allows; a JSON answer is the smallest one of its
// schema. `auto` never calls: the model talks.

import type { Reply } from '../reply.ts';
import { isObject, pythonText, textOf, valueFault, type JsonObject } from './validation.ts';

/** The call that the answer consists of. */
export interface ToolCall {
  readonly name: string;
  readonly argumentsJson: string;
  /** One that the client named ends by `stop`, one that was only required by `tool_calls`. */
  readonly named: boolean;
}

const DEPTH_MAX = 16;
const NAMED_TOOL = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`';

/** What is wrong with tools and choice; null when nothing is. */
export function toolFault(body: JsonObject): Reply | null {
  const { tools } = body;
  if (Array.isArray(tools) && tools.length === 0) {
    const message =
      '`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.';
    return valueFault(message, { param: 'tools' });
  }
  const choice = body['tool_choice'];
  if (choice === undefined || choice === null || choice === 'none') return null;
  const param = 'tool_choice';
  if (!Array.isArray(tools)) {
    return valueFault('When using `tool_choice`, `tools` must be set.', { param });
  }
  if (isObject(choice)) return namedFault(choice, tools);
  if (choice === 'auto' || choice === 'required') return null;
  const message = `Invalid value for \`tool_choice\`: ${pythonText(choice)}! Only named tools, "none", "auto" or "required" are supported.`;
  return valueFault(message, { param });
}

function namedFault(choice: JsonObject, tools: readonly unknown[]): Reply | null {
  const named = choice['function'];
  if (!isObject(named) || textOf(named['name']) === undefined) {
    const message = `Expected field \`name\` in \`function\` in \`tool_choice\`! ${NAMED_TOOL}`;
    return valueFault(message, { param: 'tool_choice.function.name' });
  }
  if (tools.some((tool) => nameOf(tool) === named['name'])) return null;
  const message = 'The tool specified in `tool_choice` does not match any of the specified `tools`';
  return valueFault(message, { param: 'tool_choice' });
}

/** What vLLM answers to a choice that its flags do not allow; null when they do. */
export function toolFlagFault(body: JsonObject, toolsEnabled: boolean): Reply | null {
  const choice = choiceOf(body);
  if (toolsEnabled || choice === null || choice === 'none') return null;
  if (choice === 'auto') {
    return valueFault(
      '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    );
  }
  const named = isObject(choice) && isObject(choice['function']) ? choice['function'] : null;
  const described = named === null ? '"required"' : `function "${pythonText(named['name'])}"`;
  return valueFault(`tool_choice=${described} requires --tool-call-parser to be set`);
}

/** The call that the request makes certain; null when the model may talk. */
export function certainCall(body: JsonObject): ToolCall | null {
  const choice = choiceOf(body);
  const tools = Array.isArray(body['tools']) ? (body['tools'] as readonly unknown[]) : [];
  const named =
    isObject(choice) && isObject(choice['function']) ? choice['function']['name'] : null;
  if (choice !== 'required' && named === null) return null;
  const tool = tools.find((each) => named === null || nameOf(each) === named);
  const name = nameOf(tool);
  if (!isObject(tool) || name === undefined) return null;
  const { parameters } = isObject(tool['function']) ? tool['function'] : tool;
  const argumentsJson = JSON.stringify(isObject(parameters) ? sampleOf(parameters) : {});
  return { name, argumentsJson, named: named !== null };
}

/** The answer that `response_format` makes certain; null when the model may talk. */
export function certainJson(format: unknown): string | null {
  if (!isObject(format)) return null;
  if (format['type'] === 'json_object') return '{}';
  if (format['type'] !== 'json_schema') return null;
  const inner = isObject(format['json_schema']) ? format['json_schema'] : format;
  const { schema } = inner;
  return JSON.stringify(isObject(schema) ? sampleOf(schema) : {});
}

/** A small value that the schema allows, where the schema is a simple one. */
export function sampleOf(schema: JsonObject, depth = 0): unknown {
  if (depth > DEPTH_MAX) return null;
  if ('const' in schema) return schema['const'];
  const choices = schema['enum'] ?? schema['examples'];
  if (Array.isArray(choices) && choices.length > 0) return choices[0];
  for (const name of ['anyOf', 'oneOf', 'allOf']) {
    const [first] = Array.isArray(schema[name]) ? (schema[name] as unknown[]) : [];
    if (isObject(first)) return sampleOf(first, depth + 1);
  }
  return sampleOfType(schema, depth);
}

function sampleOfType(schema: JsonObject, depth: number): unknown {
  const type = Array.isArray(schema['type']) ? schema['type'][0] : schema['type'];
  switch (type ?? (isObject(schema['properties']) ? 'object' : 'null')) {
    case 'object':
      return sampleObject(schema, depth);
    case 'array':
      return sampleArray(schema, depth);
    case 'string':
      return 'sea'.padEnd(Math.min(1_000, Number(schema['minLength'] ?? 0)), 'a');
    case 'integer':
      return Math.ceil(numberIn(schema));
    case 'number':
      return numberIn(schema);
    case 'boolean':
      return true;
    default:
      return null;
  }
}

function sampleObject(schema: JsonObject, depth: number): JsonObject {
  const properties = isObject(schema['properties']) ? schema['properties'] : {};
  return Object.fromEntries(
    Object.entries(properties).map(([name, each]) => [
      name,
      isObject(each) ? sampleOf(each, depth + 1) : null,
    ]),
  );
}

function sampleArray(schema: JsonObject, depth: number): unknown[] {
  const { items } = schema;
  const length = Math.min(100, Math.max(1, Number(schema['minItems'] ?? 1)));
  return isObject(items) ? Array.from({ length }, () => sampleOf(items, depth + 1)) : [];
}

function numberIn(schema: JsonObject): number {
  const least = Number(schema['minimum'] ?? schema['exclusiveMinimum'] ?? 1);
  const most = Number(schema['maximum'] ?? schema['exclusiveMaximum'] ?? Math.max(1, least + 1));
  if (schema['minimum'] !== undefined) return least;
  return schema['exclusiveMinimum'] === undefined ? Math.min(1, most) : Math.min(least + 1, most);
}

/** vLLM's default: `auto` where there are tools. */
function choiceOf(body: JsonObject): unknown {
  const choice = body['tool_choice'];
  if (choice === undefined) return Array.isArray(body['tools']) ? 'auto' : null;
  return choice;
}

function nameOf(tool: unknown): string | undefined {
  if (!isObject(tool)) return undefined;
  return textOf(isObject(tool['function']) ? tool['function']['name'] : tool['name']);
}
