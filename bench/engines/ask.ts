// One streamed request as a client sees it: when its first piece of text came, what the engine counted, and whether the
// answer is whole. A failure is a value.
//
// A refusal is tried again as the official Node library does: twice, after what `Retry-After` says up to a minute, else
// after half a second and then a whole one; `x-should-retry` has the last word. Times count from the first try.

import { request, type Agent, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { delay } from '../../test/engines/wait.ts';

export interface Asking {
  readonly url: URL;
  readonly agent: Agent;
  readonly session: string;
  readonly body: Buffer;
}

export interface Answer {
  /** ms from sending to the first piece of text; null where none came. */
  readonly ttftMs: number | null;
  readonly totalMs: number;
  readonly promptTokens: number | null;
  /** Of the prompt, as the engine reports it. */
  readonly cachedTokens: number | null;
  readonly completionTokens: number | null;
  /** As Spillway names its requests and where they went; null from others. */
  readonly requestId: string | null;
  readonly replica: string | null;
  readonly retries: number;
  readonly error: string | null;
}

const RETRIES = 2;
const RETRY_MS = 500;
const RETRY_AFTER_MAX_MS = 60_000;
/** A client that has heard nothing for so long gives up, ms. */
const PATIENCE_MS = 120_000;

export async function ask(asking: Asking): Promise<Answer> {
  const startMs = performance.now();
  for (let retry = 0; ; retry += 1) {
    const tried = await attempt(asking, { startMs, retry });
    if (tried.againInMs === null || retry === RETRIES) return tried.answer;
    await delay(tried.againInMs);
  }
}

interface Tried {
  readonly answer: Answer;
  /** Null where a client does not try again. */
  readonly againInMs: number | null;
}

function attempt(
  { url, agent, session, body }: Asking,
  { startMs, retry }: { readonly startMs: number; readonly retry: number },
): Promise<Tried> {
  return new Promise((resolve) => {
    const reading = new Reading(startMs, retry);
    const end = (error: string | null, againInMs: number | null = null): void =>
      resolve({ answer: reading.answer(error), againInMs });
    const sent = request(url, {
      method: 'POST',
      agent,
      timeout: PATIENCE_MS,
      headers: {
        'content-type': 'application/json',
        'content-length': body.length,
        'x-session-id': session,
        'x-stainless-retry-count': String(retry),
      },
    });
    sent.on('response', (response) => {
      const status = response.statusCode ?? 0;
      reading.headers(response);
      response.setEncoding('utf8');
      response.on('data', (text: string) => reading.take(text));
      response.on('end', () =>
        end(reading.fault(status), retryInMs(status, response.headers, retry)),
      );
      response.on('error', (error) => end(error.message));
    });
    sent.on('timeout', () => sent.destroy(new Error(`silent for ${PATIENCE_MS} ms`)));
    sent.on('error', (error) => end(error.message));
    sent.end(body);
  });
}

/** Null where the answer is taken as it is. */
export function retryInMs(
  status: number,
  headers: IncomingHttpHeaders,
  retry: number,
): number | null {
  const told = headers['x-should-retry'];
  const retryable = status === 408 || status === 409 || status === 429 || status >= 500;
  if (told === 'false' || (told !== 'true' && !retryable)) return null;
  const afterMs =
    headers['retry-after-ms'] === undefined
      ? 1_000 * Number(headers['retry-after'])
      : Number(headers['retry-after-ms']);
  return afterMs >= 0 && afterMs < RETRY_AFTER_MAX_MS ? afterMs : RETRY_MS * 2 ** retry;
}

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null };
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  } | null;
  readonly error?: unknown;
}

/** The events of one answer, as they come in pieces of any size. */
export class Reading {
  readonly #startMs: number;
  #open = '';
  #ttftMs: number | null = null;
  #usage: Chunk['usage'] = null;
  #finished = false;
  #done = false;
  #fault: string | null = null;
  #requestId: string | null = null;
  #replica: string | null = null;
  readonly #retries: number;

  constructor(startMs: number, retries = 0) {
    this.#startMs = startMs;
    this.#retries = retries;
  }

  headers({ headers }: IncomingMessage): void {
    this.#requestId = single(headers['x-spillway-request-id']);
    this.#replica = single(headers['x-spillway-replica']);
  }

  take(text: string): void {
    this.#open += text;
    for (let end = this.#open.indexOf('\n'); end >= 0; end = this.#open.indexOf('\n')) {
      this.#line(this.#open.slice(0, end).trimEnd());
      this.#open = this.#open.slice(end + 1);
    }
  }

  /** Why the answer is not whole; null where it is. */
  fault(status: number): string | null {
    if (status !== 200) return `status ${status}: ${this.#open.slice(0, 200)}`;
    if (this.#fault !== null) return this.#fault;
    if (this.#ttftMs === null) return 'no text';
    return this.#finished && this.#done ? null : 'cut before its end';
  }

  answer(error: string | null): Answer {
    const usage = this.#usage ?? null;
    return {
      ttftMs: error === null ? this.#ttftMs : null,
      totalMs: performance.now() - this.#startMs,
      promptTokens: usage?.prompt_tokens ?? null,
      cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? null,
      completionTokens: usage?.completion_tokens ?? null,
      requestId: this.#requestId,
      replica: this.#replica,
      retries: this.#retries,
      error,
    };
  }

  #line(line: string): void {
    if (!line.startsWith('data:')) return;
    const data = line.slice(5).trimStart();
    if (data === '[DONE]') {
      this.#done = true;
      return;
    }
    try {
      this.#chunk(JSON.parse(data) as Chunk, data);
    } catch {
      this.#fault ??= `an event that is no JSON: ${data.slice(0, 200)}`;
    }
  }

  #chunk(chunk: Chunk, data: string): void {
    if (chunk.error !== undefined) this.#fault ??= data.slice(0, 200);
    const choice = chunk.choices?.[0];
    if (choice?.delta?.content) this.#ttftMs ??= performance.now() - this.#startMs;
    if (choice?.finish_reason) this.#finished = true;
    if (chunk.usage) this.#usage = chunk.usage;
  }
}

function single(value: string | string[] | undefined): string | null {
  return typeof value === 'string' ? value : null;
}
