// How much prefill an embedding, rerank or score request is: one prompt an input or pair, with its length and nothing
// else. Inputs are documents that hardly share a prefix, so they have no chain: they neither look for a cached prefix
// nor push a conversation's out of the index.
//
//   embeddings  input: a text, token ids, a list of either, parts; or messages
//   rerank      query × documents
//   score       text_1 × text_2, also as data_1 × data_2, queries × documents, queries × items

import type { PromptChain } from '../../shared/model/prompt.ts';
import { FleetError } from '../../shared/errors.ts';
import { MAX_CHAINS } from '../../shared/protocol/limits.ts';
import { isObject, type JsonObject } from './canonical.ts';
import { LimitError } from './read-body.ts';

/** Length of one input: its text, its parts that are none, or its exact tokens. */
interface Size {
  readonly bytes: number;
  readonly others: number;
  readonly tokens: number | null;
}

const NO_HASHES = new Uint32Array(0);
const ID_BYTES = 4;
/** What the pairs of a score request are made of, by the spellings that engines know. */
const SCORE_SIDES: readonly (readonly [string, string])[] = [
  ['text_1', 'text_2'],
  ['data_1', 'data_2'],
  ['queries', 'documents'],
  ['queries', 'items'],
];

/** Members that are read; repeated or escaped spellings of them are refused. */
export const POOLING_MEMBERS: readonly string[] = [
  'input',
  'query',
  ...new Set(SCORE_SIDES.flat()),
  'max_tokens_per_doc',
];

export function poolingPrompts(
  route: 'embeddings' | 'rerank' | 'score',
  body: JsonObject,
): PromptChain[] {
  if (route === 'embeddings') return embeddingSizes(body).map(promptOf);
  const [left, right] = route === 'rerank' ? rerankSides(body) : scoreSides(body);
  return pairs(left, right).map(promptOf);
}

function embeddingSizes(body: JsonObject): Size[] {
  const { input, messages } = body;
  if (input === undefined && Array.isArray(messages)) return [sum(messages.map(messageSize))];
  if (input === undefined || input === null) {
    throw new FleetError('invalid_request', "'input' is required.", { param: 'input' });
  }
  return listOf(input, 'input');
}

function rerankSides(body: JsonObject): [Size[], Size[]] {
  for (const param of ['query', 'documents'] as const) {
    if (body[param] !== undefined && body[param] !== null) continue;
    throw new FleetError('invalid_request', `'${param}' is required.`, { param });
  }
  return [[sizeOf(body['query'], 'query')], listOf(body['documents'], 'documents')];
}

function scoreSides(body: JsonObject): [Size[], Size[]] {
  for (const [left, right] of SCORE_SIDES) {
    const [first, second] = [body[left] ?? null, body[right] ?? null];
    if (first !== null && second !== null) return [listOf(first, left), listOf(second, right)];
  }
  throw new FleetError('invalid_request', "'text_1' and 'text_2' are required.", {
    param: body['text_1'] === undefined ? 'text_1' : 'text_2',
  });
}

/** One to one; a side of one goes with each of the other. The engine judges lengths that do not match. */
function pairs(left: readonly Size[], right: readonly Size[]): Size[] {
  const count = left.length === 0 || right.length === 0 ? 0 : Math.max(left.length, right.length);
  return Array.from({ length: count }, (_, k) =>
    sum([left[Math.min(k, left.length - 1)] as Size, right[Math.min(k, right.length - 1)] as Size]),
  );
}

/** A value that is one input or a list of them. */
function listOf(value: unknown, param: string): Size[] {
  if (!Array.isArray(value) || isTokenIds(value)) return [sizeOf(value, param)];
  if (value.length > MAX_CHAINS) {
    const message = `'${param}' has more than ${MAX_CHAINS} elements.`;
    throw new LimitError('prompts', 'invalid_request', message);
  }
  return value.map((item: unknown) => sizeOf(item, param));
}

function sizeOf(value: unknown, param: string): Size {
  if (typeof value === 'string') return { ...NOTHING, bytes: Buffer.byteLength(value) };
  if (isTokenIds(value)) {
    const { length } = value as number[];
    return { bytes: length * ID_BYTES, others: 0, tokens: length };
  }
  if (isObject(value)) return partsSize(value);
  const expected = "a text, token ids, an object with a 'text' or 'content', or a list of these";
  throw new FleetError('invalid_request', `'${param}' must be ${expected}.`, { param });
}

/** `{text}`, `{content: [parts]}` or a single part. What is no text counts as one part. */
function partsSize(value: JsonObject): Size {
  const { text, content, multi_modal: multiModal } = value;
  if (typeof text === 'string') return { ...NOTHING, bytes: Buffer.byteLength(text) };
  const parts = content ?? multiModal;
  if (typeof parts === 'string') return { ...NOTHING, bytes: Buffer.byteLength(parts) };
  if (Array.isArray(parts))
    return sum(parts.map((part) => (isObject(part) ? flat(part) : NOTHING)));
  return { ...NOTHING, others: 1 };
}

function flat({ text }: JsonObject): Size {
  return typeof text === 'string'
    ? { ...NOTHING, bytes: Buffer.byteLength(text) }
    : { ...NOTHING, others: 1 };
}

function messageSize(message: unknown): Size {
  return isObject(message) ? partsSize({ content: message['content'] ?? '' }) : NOTHING;
}

const NOTHING: Size = { bytes: 0, others: 0, tokens: null };

/** Exact only where all of it is. */
function sum(sizes: readonly Size[]): Size {
  let bytes = 0;
  let others = 0;
  let tokens: number | null = 0;
  for (const size of sizes) {
    bytes += size.bytes;
    others += size.others;
    tokens = tokens === null || size.tokens === null ? null : tokens + size.tokens;
  }
  return { bytes, others, tokens: sizes.length === 0 ? null : tokens };
}

function promptOf({ bytes, others, tokens }: Size): PromptChain {
  return {
    keySpace: 'none',
    bytes,
    hashes: NO_HASHES,
    turnEnds: [],
    end: { offset: bytes, chunks: 0, hashLow: 0, hashHigh: 0 },
    parts: others === 0 ? {} : { other: others },
    tokenIds: tokens,
  };
}

function isTokenIds(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((id) => Number.isSafeInteger(id) && id >= 0)
  );
}
