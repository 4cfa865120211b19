// A real generation of a few tokens: the only proof that an engine generates, because it answers 200 and its
// headers before it has looked at the prompt.
//
// The time to the first token runs from sending to the first data event that is no error. The generation counts
// only when the stream then ends as the protocol says; an error event, `finish_reason: "abort"`, a cut stream or
// silence longer than the deadline are failures.
//
// A server that has no `/v1/completions` is asked through its chat, from then on.

import type { Dispatcher } from 'undici';
import type { Clock } from '../shared/runtime/clock.ts';
import { failureOf, type Deadline, type EngineClient } from './engines/client.ts';
import type { GenerateOrder, GenerationOutcome } from './events.ts';

export interface ProbeContext {
  readonly client: EngineClient;
  readonly clock: Clock;
  /** Ids must not meet another agent's. */
  readonly requestIdPrefix: string;
  /** Say the rank, where there are several. */
  readonly ranks: number;
  readonly dialect: GenerationDialect;
}

/** How an engine is asked for a generation: kept as long as the engine is known. */
export interface GenerationDialect {
  chat: boolean;
}

const BAD_REQUEST = 400;
const MAX_STREAM_BYTES = 1024 * 1024;

export async function generate(
  context: ProbeContext,
  order: GenerateOrder,
): Promise<GenerationOutcome> {
  const { client, clock } = context;
  const deadline = client.deadline(order.deadlineMs);
  const sentMs = clock.nowMs();
  try {
    const response = await ask(context, order, deadline.signal);
    const refused = refusalOf(context, order);
    if (response.statusCode !== 200) {
      await response.body.dump();
      return response.statusCode === BAD_REQUEST ? refused : { kind: 'failed', cause: 'status' };
    }
    const outcome = await readStream(response.body as AsyncIterable<Buffer>, {
      deadline,
      stallMs: order.deadlineMs,
      elapsedMs: () => clock.nowMs() - sentMs,
    });
    return outcome === 'bad_request' ? refused : outcome;
  } catch (error) {
    const failure = failureOf(error);
    if (failure.kind === 'refused') return { kind: 'failed', cause: 'refused' };
    const late = deadline.signal.aborted || failure.kind === 'timeout';
    return { kind: 'failed', cause: late ? 'timeout' : 'broken' };
  } finally {
    deadline.cancel();
  }
}

/** What an engine's 400 may mean: a rank other than the first need not be there. */
function refusalOf(context: ProbeContext, order: GenerateOrder): GenerationOutcome {
  return { kind: 'failed', cause: context.ranks > 1 && order.rank > 0 ? 'rank' : 'status' };
}

async function ask(
  context: ProbeContext,
  order: GenerateOrder,
  signal: AbortSignal,
): Promise<Dispatcher.ResponseData> {
  const { client, dialect } = context;
  const send = (chat: boolean): Promise<Dispatcher.ResponseData> =>
    client.open({
      method: 'POST',
      path: chat ? '/v1/chat/completions' : '/v1/completions',
      headers: headersFor(context, order),
      body: JSON.stringify(bodyOf(order, chat)),
      signal,
    });
  const response = await send(dialect.chat);
  if (dialect.chat || (response.statusCode !== 404 && response.statusCode !== 405)) return response;
  await response.body.dump();
  const chat = await send(true);
  dialect.chat = chat.statusCode === 200;
  return chat;
}

function headersFor(context: ProbeContext, order: GenerateOrder): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'x-request-id': `${context.requestIdPrefix}-${order.id}`,
  };
  if (context.ranks > 1) headers['x-data-parallel-rank'] = String(order.rank);
  return headers;
}

function bodyOf(order: GenerateOrder, chat: boolean): object {
  return {
    model: order.model,
    ...(chat ? { messages: [{ role: 'user', content: order.prompt }] } : { prompt: order.prompt }),
    max_tokens: order.maxTokens,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  };
}

interface StreamWatch {
  readonly deadline: Deadline;
  readonly stallMs: number;
  readonly elapsedMs: () => number;
}

const BROKEN: GenerationOutcome = { kind: 'failed', cause: 'broken' };

async function readStream(
  body: AsyncIterable<Buffer>,
  watch: StreamWatch,
): Promise<GenerationOutcome | 'bad_request'> {
  const decoder = new TextDecoder();
  const seen: Seen = {
    ttftMs: null,
    usage: null,
    finished: false,
    done: false,
    badRequest: false,
  };
  let rest = '';
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > MAX_STREAM_BYTES) return BROKEN;
    watch.deadline.restart(watch.stallMs);
    const lines = (rest + decoder.decode(piece, { stream: true })).split(/\r?\n/);
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (!readLine(line, seen, watch)) return seen.badRequest ? 'bad_request' : BROKEN;
    }
  }
  if (seen.ttftMs === null || !seen.finished || !seen.done) return BROKEN;
  return {
    kind: 'ok',
    ttftMs: seen.ttftMs,
    promptTokens: seen.usage?.prompt_tokens ?? null,
    cachedTokens: seen.usage?.prompt_tokens_details?.cached_tokens ?? null,
  };
}

interface StreamUsage {
  readonly prompt_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null;
}

interface StreamEvent {
  readonly error?: unknown;
  readonly choices?: readonly { readonly finish_reason?: string | null }[];
  readonly usage?: StreamUsage | null;
}

interface Seen {
  ttftMs: number | null;
  usage: StreamUsage | null;
  finished: boolean;
  done: boolean;
  /** The stream is an error that names status 400, and nothing else: so vLLM refuses a rank. */
  badRequest: boolean;
}

/** False where the stream has failed. */
function readLine(line: string, seen: Seen, watch: StreamWatch): boolean {
  if (!line.startsWith('data:')) return true;
  const data = line.slice(5).trim();
  if (data === '[DONE]') {
    seen.done = true;
    return true;
  }
  const event = eventOf(data);
  if (event === null) return false;
  if (event.error !== undefined) {
    seen.badRequest = seen.ttftMs === null && codeOf(event.error) === BAD_REQUEST;
    return false;
  }
  const reason = event.choices?.[0]?.finish_reason;
  if (reason === 'abort') return false;
  if ((event.choices?.length ?? 0) > 0) seen.ttftMs ??= watch.elapsedMs();
  if (typeof reason === 'string') seen.finished = true;
  if (event.usage !== undefined && event.usage !== null) seen.usage = event.usage;
  return true;
}

function codeOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'code' in error ? error.code : null;
}

function eventOf(data: string): StreamEvent | null {
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === 'object' && value !== null ? (value as StreamEvent) : null;
  } catch {
    // An event that is not JSON is a broken stream; the caller says so.
    return null;
  }
}
