// The load generator of the proxy benchmark: a fixed number of clients, each of whom sends one request after the other; or so many
// requests a second, whatever becomes of those before. It counts every chunk, so that a proxy that loses or merges events is
// seen, and measures from before the request is written.
//
// A client that streams pauses between two streams, for up to `pauseMs` at random and to a fraction of a millisecond: the replica's
// timers go off at whole ones, several at once, and a request that began with them would always wait for their chunks.

import { performance } from 'node:perf_hooks';
import { seededRandom, type Random } from '../../shared/lib/random.ts';
import type { AnswerReader } from './answer-reader.ts';
import { Client, type Answered } from './client.ts';
import { requestTemplate } from './request-template.ts';

export interface LoadShape {
  /** Requests at any time; with `perSecond`, connections. */
  readonly concurrency: number;
  /** Requests that begin in a second, as independent clients send them (exponential distances). Absent: each is followed by the next. */
  readonly perSecond?: number;
  /** Bytes of the prompt. */
  readonly promptBytes: number;
  /** Data events of a stream before its last one; null asks for a JSON answer. */
  readonly chunks: number | null;
  readonly gapMs: number;
  /** ms that a stream stays open after its chunks. */
  readonly holdMs: number;
  /** ms that a client waits between two requests at most. Absent: it does not wait. */
  readonly pauseMs?: number;
}

export interface LoadResult {
  readonly completed: number;
  /** Answers that were not what they must be, with the first fault. */
  readonly wrong: number;
  readonly fault: string | null;
  readonly ttftMs: readonly number[];
}

/** The golden ratio's fraction: any number of multiples of it lie evenly, in a stream's length and in its gaps too. */
const EVEN = 0.618_033_988_75;

/** ms after the start of the load at which its request number `index` begins. */
export function startMs(shape: LoadShape, index: number): number {
  return ((index * EVEN) % 1) * streamMs(shape);
}

/** ms from the first chunk of a stream to where its next one would be; 0 for a JSON answer. */
export function streamMs({ chunks, gapMs }: LoadShape): number {
  return (chunks ?? 0) * gapMs;
}

/** Open requests for each connection beyond which the rate is not kept: an arm, or the load, is too slow for it. */
const BEHIND_MAX = 16;
/** ms before a request's time from where the loop looks at the clock at each turn: a timer is late by up to one. */
const CLOSE_MS = 1;
/** ms before a client comes again whose answer was wrong: who refuses at once must not be flooded. */
const FAULT_PAUSE_MS = 5;

/** Keeps `shape.concurrency` clients at `url`, or begins `shape.perSecond`, until it is stopped. */
export class Load {
  readonly #url: URL;
  readonly #shape: LoadShape;
  readonly #request: () => Buffer;
  readonly #random: Random;
  /** Connections that carry nothing now, the last one used last. */
  #idle: Client[] = [];
  readonly #clients = new Set<Client>();
  /** Requests that wait for a connection. */
  #waiting = 0;
  #stopped = false;
  #cut = false;
  #open = 0;
  #completed = 0;
  #wrong = 0;
  #fault: string | null = null;
  #ttftMs: number[] = [];
  #allEnded: (() => void) | null = null;

  constructor(url: string, shape: LoadShape) {
    this.#url = new URL('/v1/chat/completions', url);
    this.#shape = shape;
    this.#request = requestTemplate(this.#url, shape);
    this.#random = seededRandom(shape.perSecond ?? shape.concurrency);
  }

  /** Streams begin spread over the length of one: all at once they would come again all at once, for ever. */
  start(): void {
    const { concurrency, perSecond } = this.#shape;
    if (perSecond !== undefined) return this.#pace(perSecond);
    const nowMs = performance.now();
    for (let index = 0; index < concurrency; index += 1) {
      this.#sendAt(nowMs + startMs(this.#shape, index));
    }
  }

  /** Requests under way, those that wait for a connection with them. */
  get open(): number {
    return this.#open;
  }

  /** What has ended since the last time. */
  take(): LoadResult {
    const result = {
      completed: this.#completed,
      wrong: this.#wrong,
      fault: this.#fault,
      ttftMs: this.#ttftMs,
    };
    this.#completed = 0;
    this.#wrong = 0;
    this.#ttftMs = [];
    return result;
  }

  /** Begins nothing new and resolves when all has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#open > 0) await new Promise<void>((resolve) => (this.#allEnded = resolve));
    this.#close();
  }

  /** Ends at once, whatever is open. */
  cut(): void {
    this.#stopped = true;
    this.#cut = true;
    this.#close();
  }

  #close(): void {
    for (const client of this.#clients) client.close();
    this.#clients.clear();
    this.#idle = [];
  }

  /** Those that are due begin together: a turn of the loop is a millisecond at least. */
  #pace(perSecond: number): void {
    let dueMs = performance.now();
    const turn = (): void => {
      if (this.#stopped) return;
      const nowMs = performance.now();
      for (; dueMs <= nowMs; dueMs += (-Math.log(1 - this.#random.next()) * 1_000) / perSecond) {
        if (this.#open < BEHIND_MAX * this.#shape.concurrency) this.#send();
        else this.#wrongly('the rate is not kept');
      }
      setTimeout(turn, dueMs - nowMs);
    };
    turn();
  }

  #sendAt(dueMs: number): void {
    if (this.#stopped) return;
    const leftMs = dueMs - performance.now();
    if (leftMs <= 0) this.#send();
    else if (leftMs <= CLOSE_MS) setImmediate(() => this.#sendAt(dueMs));
    else setTimeout(() => this.#sendAt(dueMs), Math.floor(leftMs - CLOSE_MS));
  }

  #send(): void {
    if (this.#stopped) return;
    this.#open += 1;
    const client = this.#connection();
    if (client === null) this.#waiting += 1;
    else this.#ask(client);
  }

  /** Null while all that it may have are busy. */
  #connection(): Client | null {
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      if (idle.usable) return idle;
      this.#clients.delete(idle);
    }
    if (this.#clients.size >= this.#shape.concurrency) return null;
    const client = new Client(this.#url.hostname, Number(this.#url.port));
    this.#clients.add(client);
    return client;
  }

  #ask(client: Client): void {
    client.send(this.#request(), (answered) => {
      if (answered.ttftMs !== null) this.#ttftMs.push(answered.ttftMs);
      this.#answered(client, answered);
    });
  }

  #answered(client: Client, { fault, answer }: Answered): void {
    this.#open -= 1;
    if (client.usable) this.#idle.push(client);
    else this.#clients.delete(client);
    if (this.#cut) return;
    const wrong = fault ?? faultOf(this.#shape, answer);
    this.#completed += 1;
    if (wrong !== null) this.#wrongly(wrong);
    if (this.#waiting > 0) this.#askWaiting();
    if (this.#stopped && this.#open === 0) this.#allEnded?.();
    if (this.#shape.perSecond === undefined) this.#sendNext(wrong !== null);
  }

  #askWaiting(): void {
    const client = this.#connection();
    if (client === null) return;
    this.#waiting -= 1;
    this.#ask(client);
  }

  #sendNext(wrongly: boolean): void {
    const { pauseMs } = this.#shape;
    if (wrongly) setTimeout(() => this.#send(), FAULT_PAUSE_MS);
    else if (pauseMs === undefined) this.#send();
    else this.#sendAt(performance.now() + this.#random.next() * pauseMs);
  }

  #wrongly(fault: string): void {
    this.#wrong += 1;
    this.#fault ??= fault;
  }
}

/** What is wrong with an answer that is whole as HTTP. */
export function faultOf(
  { chunks }: Pick<LoadShape, 'chunks'>,
  { status, events, tail }: Pick<AnswerReader, 'status' | 'events' | 'tail'>,
): string | null {
  if (status !== 200) return `status ${status}: ${tail}`;
  if (chunks === null) return tail.endsWith('}') ? null : 'a JSON answer without its end';
  if (!tail.endsWith('data: [DONE]\n\n')) return 'a stream without [DONE]';
  // Each chunk, the one with the finish reason, and [DONE].
  return events === chunks + 2 ? null : `${events} events, not ${chunks + 2}`;
}
