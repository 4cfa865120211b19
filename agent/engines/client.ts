// Speaking HTTP to one engine: every answer bounded in time and bytes, every failure a value.

import type { Dispatcher } from 'undici';
import { errorCode } from '../../shared/lib/error-code.ts';
import type { HttpPools, PeerTrust } from '../../shared/runtime/http-pool.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import type { ScrapeResult } from '../events.ts';

export interface EngineClientOptions {
  /** Base URL, no path. */
  readonly url: string;
  readonly apiKey: string | null;
  /** For an `https` engine; null or absent: the system's CAs. */
  readonly trust?: PeerTrust | null;
  readonly pools: HttpPools;
  readonly timers: Timers;
}

export type Fetched =
  | { readonly kind: 'answer'; readonly status: number; readonly body: string }
  | EngineFailure;

export type EngineFailure =
  /** Nothing listens. */
  | { readonly kind: 'refused' }
  | { readonly kind: 'timeout' }
  | { readonly kind: 'failed'; readonly detail: string };

export interface EngineRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal: AbortSignal;
}

const MAX_BODY_BYTES = 8 * 1024 * 1024;

export class EngineClient {
  readonly url: string;
  readonly #origin: string;
  readonly #options: EngineClientOptions;

  constructor(options: EngineClientOptions) {
    this.url = options.url;
    this.#origin = new URL(options.url).origin;
    this.#options = options;
  }

  /** A whole answer within `timeoutMs` and `maxBytes`. */
  async get(path: string, timeoutMs: number, maxBytes = MAX_BODY_BYTES): Promise<Fetched> {
    const deadline = this.deadline(timeoutMs);
    try {
      const response = await this.open({ method: 'GET', path, signal: deadline.signal });
      const body = await bodyText(response.body, maxBytes);
      return { kind: 'answer', status: response.statusCode, body };
    } catch (error) {
      return deadline.signal.aborted ? { kind: 'timeout' } : failureOf(error);
    } finally {
      deadline.cancel();
    }
  }

  /** Throws as undici does; `failureOf` names it. */
  open(request: EngineRequest): Promise<Dispatcher.ResponseData> {
    const { apiKey, pools, trust } = this.#options;
    return pools.get(this.#origin, trust ?? null).request({
      method: request.method,
      path: request.path,
      headers: {
        accept: '*/*',
        ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }),
        ...request.headers,
      },
      ...(request.body === undefined ? {} : { body: request.body }),
      signal: request.signal,
    });
  }

  deadline(afterMs: number): Deadline {
    return new Deadline(this.#options.timers, afterMs);
  }
}

/** Aborts its signal when the time is up; can be set anew while it runs. */
export class Deadline {
  readonly #timers: Timers;
  readonly #controller = new AbortController();
  #cancel: () => void;

  constructor(timers: Timers, afterMs: number) {
    this.#timers = timers;
    this.#cancel = timers.after(afterMs, () => this.#controller.abort());
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  restart(afterMs: number): void {
    this.#cancel();
    this.#cancel = this.#timers.after(afterMs, () => this.#controller.abort());
  }

  cancel(): void {
    this.#cancel();
  }
}

/** What a scrape that got no answer says. */
export function scrapeFailure(failure: EngineFailure): ScrapeResult {
  return failure.kind === 'refused'
    ? { kind: 'refused' }
    : { kind: 'failed', detail: detailOf(failure) };
}

export function detailOf(failure: EngineFailure): string {
  return failure.kind === 'failed' ? failure.detail : failure.kind;
}

export function failureOf(error: unknown): EngineFailure {
  const code = errorCode(error);
  if (code === 'ECONNREFUSED') return { kind: 'refused' };
  if (code === 'UND_ERR_CONNECT_TIMEOUT' || code === 'UND_ERR_ABORTED') return { kind: 'timeout' };
  const text = error instanceof Error ? error.message : String(error);
  return { kind: 'failed', detail: code === null ? text : `${code}: ${text}` };
}

async function bodyText(body: Dispatcher.ResponseData['body'], maxBytes: number): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > maxBytes) throw new Error(`answer longer than ${maxBytes} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}
