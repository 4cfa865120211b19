// An OpenAI request as it came, and what the routing reads of it. Parsed once; what is not read here is
// never looked at: the engine judges it, and its answer passes through.

import { isUtf8 } from 'node:buffer';
import type { RequestId } from '../../shared/model/ids.ts';
import { FleetError } from '../../shared/errors.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { ChainSeed } from '../../shared/lib/chain-hash.ts';
import { MAX_CHAINS } from '../../shared/protocol/limits.ts';
import type { RequestWork } from '../policy/request-work.ts';
import { API_ROUTES, type ApiRoute } from './api-routes.ts';
import { isObject, type Canonicaliser, type JsonObject, type PromptInput } from './canonical.ts';
import { idInBody, type ConversationId } from './conversation-ids.ts';
import { scanMembers, type MemberSpan, type SpanScan } from './json-spans.ts';
import { isLiftedMember, type LiftedBody, type LiftedTexts } from './lifted-body.ts';
import { POOLING_MEMBERS, poolingPrompts } from './pooling-prompts.ts';
import { LimitError } from './read-body.ts';
import { spliceMembers, type Edits, type Scanned } from './splice.ts';

/** Members that the router reads or writes: repeated or escaped spellings of these are refused. */
export const OWNED_MEMBERS: readonly string[] = [
  'model',
  'messages',
  'prompt',
  'stream',
  'stream_options',
  'n',
  'max_tokens',
  'max_completion_tokens',
  'cache_salt',
  'priority',
  'tools',
  'tool_choice',
  'documents',
  'chat_template',
  'chat_template_kwargs',
  'reasoning_effort',
  'add_generation_prompt',
  'continue_final_message',
  'add_special_tokens',
  'truncate_prompt_tokens',
  'mm_processor_kwargs',
  ...POOLING_MEMBERS,
];
const OWNED = new Set(OWNED_MEMBERS);
/** Half of what Node keeps on the heap. */
const TEXT_PIECE_BYTES = 512 * 1024;
const UNNAMED: ConversationId = { id: null, tooLong: false };

export interface OpenAiRequest {
  readonly route: ApiRoute;
  readonly work: RequestWork;
  readonly bytes: Buffer;
  readonly scan: Scanned;
  /** As it is written: `name@revision` asks for one revision of it. */
  readonly model: string;
  /** Those that its tenant may use; null: every one. */
  readonly revisions: readonly string[] | null;
  readonly stream: boolean;
  /** The client asked for the usage chunk itself. */
  readonly usageAsked: boolean;
  readonly streamOptions: JsonObject | null;
  /** Lower is more urgent. A client may ask to wait longer than others, never to go before them. */
  readonly priority: number;
  /** 0 where nothing is generated. */
  readonly maxTokens: number | null;
  /** Of each prompt (`n`), at least 1. What an engine would refuse counts as 1. */
  readonly answers: number;
  /** The engine cuts a prompt that is too long instead of refusing it. */
  readonly truncates: boolean;
  /** None where the engine only tokenises. */
  readonly prompts: readonly PromptChain[];
  /** What its body calls its conversation. */
  readonly conversation: ConversationId;
}

export interface ParseContext {
  readonly canonicaliser: Canonicaliser;
  readonly jsonDepth: number;
  /** Members that name a conversation; null: none is looked at. */
  readonly idMembers: readonly string[] | null;
  seedOf(model: string): ChainSeed;
}

/**
 * Throws `FleetError` (400) for what cannot be routed. Without a route its members tell which it is: `messages` a chat,
 * `prompt` a completion, `input` embeddings, a query with documents a rerank.
 */
export function parseOpenAiRequest(
  given: ApiRoute | null,
  bytes: Buffer,
  context: ParseContext,
): OpenAiRequest {
  refuseNoUtf8(isUtf8(bytes));
  const read = readMembers(bytes, context.jsonDepth, true);
  const facts = factsOf(given, read.body, context);
  const seed = context.seedOf(facts.model);
  const prompts = readPrompts(facts.route, read.body, context, seed);
  return { ...facts, bytes, scan: read.scan, prompts };
}

/**
 * The same of a large body, in steps: it yields between them. Its route is one of those that `isLifted` names. Throws as
 * `parseOpenAiRequest` does, by the same rules.
 */
export function* parseLifted(
  given: ApiRoute,
  { bytes, skeleton, texts, isUtf8: utf8, broken }: LiftedBody,
  context: ParseContext,
): Generator<void, OpenAiRequest> {
  refuseNoUtf8(utf8);
  const { body, scan } = readMembers(skeleton, context.jsonDepth, !broken);
  const facts = factsOf(given, body, context);
  const seed = context.seedOf(facts.model);
  const prompts = yield* liftedPrompts(facts.route, body, { ...context, texts, seed });
  return { ...facts, bytes, scan: texts.place(scan), prompts };
}

/** Whether large bodies of a route are read in steps: where texts are inputs, their lengths are all that counts. */
export function isLifted(route: ApiRoute, idMembers: readonly string[] | null): boolean {
  if (API_ROUTES[route].work === 'prefill') return false;
  // A conversation's name is never lifted.
  return idMembers === null || !idMembers.some(isLiftedMember);
}

interface Members {
  readonly body: JsonObject;
  readonly scan: Scanned;
}

/** `valid`: what is not in these bytes is valid JSON. */
function readMembers(bytes: Buffer, jsonDepth: number, valid: boolean): Members {
  const scan = scanMembers(bytes, jsonDepth);
  refuseTooDeep(scan, jsonDepth);
  const body = parseJson(bytes, valid);
  if (!isObject(body)) throw invalid('The request body must be a JSON object.');
  if (!scan.ok) throw new FleetError('invalid_json', 'The request body is not valid JSON.');
  refuseRepeated(scan.members);
  return { body, scan };
}

function factsOf(
  given: ApiRoute | null,
  body: JsonObject,
  { idMembers }: ParseContext,
): Omit<OpenAiRequest, 'bytes' | 'scan' | 'prompts'> {
  const route = given ?? routeByMembers(body);
  const { work } = API_ROUTES[route];
  const model = readModel(body['model']);
  const generates = work === 'generation';
  const streamOptions = generates ? readStreamOptions(body['stream_options']) : null;
  return {
    route,
    work,
    model,
    revisions: null,
    // Elsewhere it means nothing: whether an engine minds is the engine's to say.
    stream: generates && readBoolean(body['stream'], 'stream'),
    usageAsked: streamOptions?.['include_usage'] === true,
    streamOptions,
    priority: Math.max(0, readInteger(body['priority'], 'priority') ?? 0),
    maxTokens: generates ? readMaxTokens(body) : 0,
    answers: generates ? answersOf(body['n']) : 1,
    truncates: (body['truncate_prompt_tokens'] ?? body['max_tokens_per_doc'] ?? null) !== null,
    conversation: idMembers === null ? UNNAMED : idInBody({ members: idMembers }, body),
  };
}

/** What a pool wants to be written into requests to its engines. */
export interface EngineSplices {
  readonly engineModel: string;
  readonly cacheSalt: string | null;
  readonly enginePriority: boolean;
}

/** The bytes for one engine: the client's own but for the closed list of members. */
export function engineBody(request: OpenAiRequest, splices: EngineSplices): Buffer {
  // What only tokenises has neither a cache to keep apart nor a place in the scheduler.
  const { cacheSalt, enginePriority } =
    request.work === 'light' ? { cacheSalt: null, enginePriority: false } : splices;
  const edits = new Map<string, string | null>([
    ['cache_salt', cacheSalt === null ? null : JSON.stringify(cacheSalt)],
    ['priority', enginePriority ? String(request.priority) : null],
  ]);
  if (splices.engineModel !== request.model) {
    edits.set('model', JSON.stringify(splices.engineModel));
  }
  if (request.stream && !request.usageAsked) edits.set(...askingUsage(request));
  return spliceMembers(request.bytes, request.scan, edits satisfies Edits);
}

/** The bytes for another tier: the client's own, but that a stream is asked to end with its usage. */
export function tierBody(request: OpenAiRequest): Buffer {
  if (!request.stream || request.usageAsked) return request.bytes;
  return spliceMembers(request.bytes, request.scan, new Map([askingUsage(request)]));
}

function askingUsage({ streamOptions }: OpenAiRequest): [string, string] {
  return ['stream_options', JSON.stringify({ ...streamOptions, include_usage: true })];
}

/** Id of a request of ours. */
export function requestIdOf(hex: string): RequestId {
  return `req-${hex}` as RequestId;
}

function routeByMembers(body: JsonObject): ApiRoute {
  if ('messages' in body) return 'chat';
  if ('input' in body) return 'embeddings';
  return 'query' in body && 'documents' in body ? 'rerank' : 'completions';
}

/** What an engine made of other bytes could count against it: it would fail where the request is at fault. */
function refuseNoUtf8(utf8: boolean): void {
  if (!utf8) throw new FleetError('invalid_json', 'The request body is not valid UTF-8.');
}

function refuseTooDeep(scan: SpanScan, jsonDepth: number): void {
  if (scan.ok || scan.reason !== 'too_deep') return;
  const message = `The request's JSON is nested deeper than ${jsonDepth} levels.`;
  throw new LimitError('json_depth', 'invalid_request', message);
}

function parseJson(bytes: Buffer, valid: boolean): unknown {
  try {
    if (!valid) throw new SyntaxError('a long string is not valid JSON');
    return JSON.parse(textOf(bytes)) as unknown;
  } catch (cause) {
    throw new FleetError('invalid_json', 'The request body is not valid JSON.', { cause });
  }
}

/**
 * Text of valid UTF-8, in pieces: one that is long would be memory outside of the heap, of which little is let become
 * garbage before all of the heap is collected. Pieces go with the young generation.
 */
function textOf(bytes: Buffer): string {
  let text = '';
  for (let from = 0; from < bytes.length;) {
    let to = Math.min(bytes.length, from + TEXT_PIECE_BYTES);
    while (to < bytes.length && ((bytes[to] as number) & 0xc0) === 0x80) to -= 1;
    text += bytes.toString('utf8', from, to);
    from = to;
  }
  return text;
}

function refuseRepeated(members: readonly MemberSpan[]): void {
  const seen = new Set<string>();
  for (const member of members) {
    if (!OWNED.has(member.name)) continue;
    if (member.escaped || seen.has(member.name)) {
      const how = member.escaped ? 'is spelled with an escape' : 'appears more than once';
      throw new FleetError('repeated_member', `The member '${member.name}' ${how}.`, {
        param: member.name,
      });
    }
    seen.add(member.name);
  }
}

function readModel(value: unknown): string {
  if (typeof value === 'string' && value !== '') return value;
  throw invalid("'model' is required and must be a string.", 'model');
}

function readBoolean(value: unknown, param: string): boolean {
  if (value === undefined || value === null) return false;
  if (typeof value === 'boolean') return value;
  throw invalid(`'${param}' must be a boolean.`, param);
}

function readStreamOptions(value: unknown): JsonObject | null {
  if (value === undefined || value === null) return null;
  if (isObject(value)) return value;
  throw invalid("'stream_options' must be an object.", 'stream_options');
}

function readInteger(value: unknown, param: string): number | null {
  if (value === undefined || value === null) return null;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return value;
  throw invalid(`'${param}' must be an integer.`, param);
}

function readMaxTokens(body: JsonObject): number | null {
  const value =
    readInteger(body['max_completion_tokens'], 'max_completion_tokens') ??
    readInteger(body['max_tokens'], 'max_tokens');
  return value === null || value < 0 ? null : value;
}

/** The engine judges it. */
function answersOf(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 1;
}

function readPrompts(
  route: ApiRoute,
  body: JsonObject,
  context: ParseContext,
  seed: ChainSeed,
): PromptChain[] {
  const { canonicaliser } = context;
  if (route === 'tokenize' || route === 'detokenize') return [];
  if (route !== 'chat' && route !== 'completions') return poolingPrompts(route, body);
  if (route === 'chat') return [canonicaliser.chat(body, readMessages(body['messages']), seed)];
  return readPromptList(body['prompt']).map((prompt) =>
    canonicaliser.completion(prompt, body, seed),
  );
}

function* liftedPrompts(
  route: ApiRoute,
  body: JsonObject,
  context: ParseContext & { readonly texts: LiftedTexts; readonly seed: ChainSeed },
): Generator<void, PromptChain[]> {
  const { canonicaliser, seed } = context;
  if (route === 'chat') {
    const messages = readMessages(body['messages']);
    return [yield* canonicaliser.liftedChat(body, messages, context)];
  }
  if (route !== 'completions') return [];
  const prompts: PromptChain[] = [];
  for (const prompt of readPromptList(body['prompt'])) {
    if (typeof prompt !== 'string') prompts.push(canonicaliser.completion(prompt, body, seed));
    else prompts.push(yield* canonicaliser.liftedCompletion(prompt, body, context));
  }
  return prompts;
}

function readMessages(value: unknown): readonly JsonObject[] {
  if (!Array.isArray(value))
    throw invalid("'messages' is required and must be an array.", 'messages');
  value.forEach((message: unknown, index) => {
    if (!isObject(message) || typeof message['role'] !== 'string') {
      throw invalid(
        `'messages[${index}]' must be an object with a string 'role'.`,
        `messages[${index}]`,
      );
    }
  });
  return value as JsonObject[];
}

/** A prompt is a string, a list of strings, a list of token ids, or a list of those. */
function readPromptList(value: unknown): PromptInput[] {
  if (value === undefined || value === null) return [''];
  if (typeof value === 'string') return [value];
  if (Array.isArray(value)) {
    if (value.length === 0 || isTokenIds(value)) return [value as number[]];
    // Each is hashed, weighed against every replica and told to its agent.
    if (value.length > MAX_CHAINS) {
      const message = `'prompt' has more than ${MAX_CHAINS} elements.`;
      throw new LimitError('prompts', 'invalid_request', message);
    }
    if (value.every((item) => typeof item === 'string')) return value as string[];
    if (value.every(isTokenIds)) return value as number[][];
  }
  throw invalid("'prompt' must be a string, a list of strings, or token ids.", 'prompt');
}

function isTokenIds(value: unknown): boolean {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0);
}

function invalid(message: string, param?: string): FleetError {
  return new FleetError('invalid_request', message, param === undefined ? {} : { param });
}
