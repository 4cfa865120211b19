// A real generation of a few tokens: the only proof that an engine generates, because it answers 200 and its
// headers before it has looked at the prompt.
//
// The time to the first token runs from sending to the first data event that is no error. The generation counts
// only when the stream then ends as the protocol says; an error event, `finish_reason: "abort"`, a cut stream or
// silence longer than the deadline are failures.
//
// A server that has no `/v1/completions` is asked through its chat, one that generates nothing for embeddings or scores
// (probe-ways.ts), from then on; where it no longer offers what it did, for all of them again. A whole answer is one
// first token.

import type { Dispatcher } from 'undici';
import type { Clock } from '../shared/runtime/clock.ts';
import { failureOf, type Deadline, type EngineClient } from './engines/client.ts';
import type { GenerateOrder, GenerationOutcome } from './events.ts';
import {
  isNotOffered,
  isWhole,
  PROBE_WAYS,
  probeBody,
  probePath,
  readWhole,
  type ProbeWay,
} from './probe-ways.ts';

export interface ProbeContext {
  readonly client: EngineClient;
  readonly clock: Clock;
  /** Ids must not meet another agent's. */
  readonly requestIdPrefix: string;
  /** Say the rank, where there are several. */
  readonly ranks: number;
  readonly dialect: GenerationDialect;
}

/** How an engine is asked for an answer: kept as long as the engine is known. */
export interface GenerationDialect {
  way: ProbeWay;
}

const BAD_REQUEST = 400;
const MAX_STREAM_BYTES = 1024 * 1024;
/** Of an error's text, where that tells what the engine does not serve. */
const MAX_ERROR_BYTES = 16 * 1024;

export async function generate(
  context: ProbeContext,
  order: GenerateOrder,
): Promise<GenerationOutcome> {
  const { client, clock } = context;
  const deadline = client.deadline(order.deadlineMs);
  const sentMs = clock.nowMs();
  try {
    const { status, way, response } = await ask(context, order, deadline.signal);
    const refused = refusalOf(context, order);
    if (response === null)
      return status === BAD_REQUEST ? refused : { kind: 'failed', cause: 'status' };
    const body = response.body as AsyncIterable<Buffer>;
    const elapsedMs = (): number => clock.nowMs() - sentMs;
    if (isWhole(way)) {
      const text = await readText(body, MAX_STREAM_BYTES);
      return text === null ? BROKEN : readWhole(text, elapsedMs());
    }
    const outcome = await readStream(body, { deadline, stallMs: order.deadlineMs, elapsedMs });
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

interface Asked {
  readonly status: number;
  readonly way: ProbeWay;
  /** Null unless the status is 200. */
  readonly response: Dispatcher.ResponseData | null;
}

/** By the way that worked last, then by the others while the engine does not offer it. */
async function ask(
  context: ProbeContext,
  order: GenerateOrder,
  signal: AbortSignal,
): Promise<Asked> {
  const { client, dialect } = context;
  const send = async (way: ProbeWay): Promise<Asked & { readonly offered: boolean }> => {
    const response = await client.open({
      method: 'POST',
      path: probePath(way),
      headers: headersFor(context, order),
      body: JSON.stringify(probeBody(way, order)),
      signal,
    });
    const status = response.statusCode;
    if (status === 200) return { status, way, response, offered: true };
    const text = status === BAD_REQUEST ? await readText(response.body, MAX_ERROR_BYTES) : null;
    if (status !== BAD_REQUEST) await response.body.dump();
    return { status, way, response: null, offered: !isNotOffered(status, text ?? '') };
  };
  const first = await send(dialect.way);
  if (first.offered) return first;
  for (const way of PROBE_WAYS) {
    if (way === dialect.way) continue;
    const next = await send(way);
    if (next.response !== null) dialect.way = way;
    if (next.offered) return next;
  }
  return first;
}

/** Null where it is longer. */
async function readText(body: AsyncIterable<Buffer>, maxBytes: number): Promise<string | null> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > maxBytes) return null;
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}

function headersFor(context: ProbeContext, order: GenerateOrder): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'x-request-id': `${context.requestIdPrefix}-${order.id}`,
  };
  if (context.ranks > 1) headers['x-data-parallel-rank'] = String(order.rank);
  return headers;
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
