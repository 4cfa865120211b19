// HTTP as the checks need it: raw headers in the order in which they came, the time at which each event came, and
// connections that are cut on purpose. One connection a request; nothing is retried.

import { createParser } from 'eventsource-parser';
import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';

export interface Answer {
  readonly status: number;
  /** Name and value as they came, in order. */
  readonly headers: readonly (readonly [string, string])[];
  readonly text: string;
}

export interface Call {
  /** Default: GET, POST where there is a body. */
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON unless it is text. */
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

const QUIET_LIMIT_MS = 120_000;

const open = new Set<ClientRequest>();
let checksDone = 0;

/** Cuts what a check has left open, so that it does not burden the next one; calls that it waited for never settle. */
export function leaveAll(): void {
  checksDone += 1;
  for (const request of open) request.destroy();
}

/** For work that is begun now and waited for later: its failure may come first. */
export function begun<T>(work: Promise<T>): Promise<T> {
  work.catch(() => undefined);
  return work;
}

/** The whole answer. Rejects with the system's error where there is none. */
export async function call(url: string, path: string, options: Call = {}): Promise<Answer> {
  const check = checksDone;
  try {
    return await answerOf(url, path, options);
  } catch (error) {
    if (check !== checksDone) return new Promise(() => undefined);
    throw error;
  }
}

async function answerOf(url: string, path: string, options: Call): Promise<Answer> {
  const response = await begin(url, path, options);
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part as Buffer);
  return {
    status: response.statusCode ?? 0,
    headers: pairsOf(response.rawHeaders),
    text: Buffer.concat(parts).toString('utf8'),
  };
}

/** The body of an answer that must be 200. */
export async function json<T>(url: string, path: string, options: Call = {}): Promise<T> {
  const answer = await call(url, path, options);
  if (answer.status !== 200) {
    throw new Error(`${path} answered ${answer.status}: ${answer.text.slice(0, 300)}`);
  }
  return JSON.parse(answer.text) as T;
}

/** The status, or the system's error code (`ECONNREFUSED`, …). */
export async function statusOf(url: string, path: string): Promise<number | string> {
  try {
    return (await call(url, path, { signal: AbortSignal.timeout(5_000) })).status;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
}

export interface StreamEvent {
  /** ms since the request was sent. */
  readonly atMs: number;
  /** Of its `event` line; null where it has none. */
  readonly name: string | null;
  readonly data: string;
}

export interface Stream {
  readonly status: number;
  readonly headers: readonly (readonly [string, string])[];
  /** When the request was sent; ms, monotonic. */
  readonly openedMs: number;
  /** Grows as events come. */
  readonly events: readonly StreamEvent[];
  /** The body so far, as it came. */
  text(): string;
  /** How the body ended; null while it goes on. */
  ended(): 'whole' | 'cut' | null;
  /** When it has ended, one way or the other. */
  readonly end: Promise<'whole' | 'cut'>;
  /** Cuts the connection. */
  leave(): void;
}

/** A stream, once its head is there. */
export async function openStream(url: string, path: string, body: object): Promise<Stream> {
  const sentMs = performance.now();
  const response = await begin(url, path, { body: { ...body, stream: true } });
  const events: StreamEvent[] = [];
  const parser = createParser({
    onEvent: ({ data, event }) =>
      events.push({ atMs: performance.now() - sentMs, name: event ?? null, data }),
  });
  let text = '';
  response.setEncoding('utf8').on('data', (part: string) => {
    text += part;
    parser.feed(part);
  });
  let outcome: 'whole' | 'cut' | null = null;
  const end = new Promise<'whole' | 'cut'>((resolve) => {
    response.once('close', () => resolve((outcome = response.complete ? 'whole' : 'cut')));
    response.on('error', () => resolve((outcome = 'cut')));
  });
  return {
    status: response.statusCode ?? 0,
    headers: pairsOf(response.rawHeaders),
    openedMs: sentMs,
    events,
    text: () => text,
    ended: () => outcome,
    end,
    leave: () => response.destroy(),
  };
}

/** Sends a request and leaves it to its fate. */
export interface Sent {
  readonly answer: Promise<Answer | null>;
  leave(): void;
}

/** A whole answer that may be left; null once it was. */
export function send(url: string, path: string, body: object): Sent {
  const away = new AbortController();
  const answer = call(url, path, { body, signal: away.signal }).catch((error: unknown) => {
    if (away.signal.aborted) return null;
    throw error;
  });
  return { answer: begun(answer), leave: () => away.abort() };
}

function begin(url: string, path: string, options: Call): Promise<IncomingMessage> {
  const { body, signal } = options;
  const payload = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
  const method = options.method ?? (payload === undefined ? 'GET' : 'POST');
  const headers: Record<string, string> = {
    ...(payload === undefined ? {} : { 'content-type': 'application/json' }),
    ...options.headers,
  };
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      `${url}${path}`,
      { method, headers, agent: false, ...(signal === undefined ? {} : { signal }) },
      (response) => resolve(response),
    );
    request.setTimeout(QUIET_LIMIT_MS, () => request.destroy(new Error(`${path}: silence`)));
    open.add(request);
    request.once('close', () => open.delete(request));
    // For as long as it lives: a connection may break again after it was given up.
    request.on('error', reject);
    request.end(payload);
  });
}

function pairsOf(raw: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) pairs.push([raw[at] ?? '', raw[at + 1] ?? '']);
  return pairs;
}
