// The load generator of the proxy benchmark: a fixed number of requests at any time, each followed by the next; or so many a
// second, whatever becomes of those before. It counts every chunk, so that a proxy that loses or merges events is seen, and
// measures from the last byte of the request.

import { Agent, request as httpRequest, type RequestOptions } from 'node:http';
import { performance } from 'node:perf_hooks';
import { seededRandom } from '../../shared/lib/random.ts';

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

/** Keeps `shape.concurrency` requests open at `url`, or begins `shape.perSecond`, until it is stopped. */
export class Load {
  readonly #url: URL;
  readonly #shape: LoadShape;
  readonly #agent: Agent;
  readonly #prompt: string;
  #stopped = false;
  #cut = false;
  #open = 0;
  #count = 0;
  #completed = 0;
  #wrong = 0;
  #fault: string | null = null;
  #ttftMs: number[] = [];
  #idle: (() => void) | null = null;

  constructor(url: string, shape: LoadShape) {
    this.#url = new URL('/v1/chat/completions', url);
    this.#shape = shape;
    this.#agent = new Agent({ keepAlive: true, maxSockets: shape.concurrency });
    this.#prompt = 'the quick brown fox jumps over the lazy dog '
      .repeat(Math.ceil(shape.promptBytes / 44))
      .slice(0, shape.promptBytes);
  }

  /** Streams begin spread over the length of one: all at once they would come again all at once, for ever. */
  start(): void {
    const { concurrency, perSecond } = this.#shape;
    if (perSecond !== undefined) return this.#pace(perSecond);
    for (let index = 0; index < concurrency; index += 1) {
      const afterMs = startMs(this.#shape, index);
      if (afterMs === 0) this.#send();
      else setTimeout(() => this.#send(), afterMs);
    }
  }

  get open(): number {
    return this.#open;
  }

  /** What has completed since the last look. */
  take(): LoadResult {
    const result: LoadResult = {
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
    if (this.#open > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    this.#agent.destroy();
  }

  /** Ends at once, whatever is open. */
  cut(): void {
    this.#stopped = true;
    this.#cut = true;
    this.#agent.destroy();
  }

  /** Those that are due begin together: a turn of the loop is a millisecond at least. */
  #pace(perSecond: number): void {
    const random = seededRandom(perSecond);
    let dueMs = performance.now();
    const turn = (): void => {
      if (this.#stopped) return;
      const nowMs = performance.now();
      for (; dueMs <= nowMs; dueMs += (-Math.log(1 - random.next()) * 1_000) / perSecond) {
        if (this.#open < BEHIND_MAX * this.#shape.concurrency) this.#send();
        else this.#wrongly('the rate is not kept');
      }
      setTimeout(turn, dueMs - nowMs);
    };
    turn();
  }

  #wrongly(fault: string): void {
    this.#wrong += 1;
    this.#fault ??= fault;
  }

  #body(): Buffer {
    const { chunks, gapMs, holdMs } = this.#shape;
    // Distinct from its first bytes on: what a router remembers of prompts grows with each.
    const prompt = `${process.pid}-${this.#count++} ${this.#prompt}`;
    const metadata =
      chunks === null
        ? {}
        : { chunks: String(chunks), gapMs: String(gapMs), holdMs: String(holdMs) };
    return Buffer.from(
      JSON.stringify({
        model: 'bench-model',
        stream: chunks !== null,
        max_tokens: chunks ?? 2,
        metadata,
        messages: [{ role: 'user', content: prompt }],
      }),
    );
  }

  #send(): void {
    if (this.#stopped) return;
    this.#open += 1;
    const body = this.#body();
    const events = new EventCount();
    let sentMs = performance.now();
    let first = true;
    let tail = '';
    let over = false;
    const ended = (fault: string | null): void => {
      if (over) return;
      over = true;
      this.#ended(fault);
    };
    const asked = httpRequest(this.#url, this.#options(body.length), (response) => {
      response.on('data', (piece: Buffer) => {
        if (first) this.#ttftMs.push(performance.now() - sentMs);
        first = false;
        events.take(piece);
        tail = (tail + piece.toString('latin1')).slice(-200);
      });
      response.on('end', () => ended(this.#faultOf(response.statusCode ?? 0, events.count, tail)));
      response.on('error', (error) => ended(error.message));
    });
    asked.on('error', (error) => ended(error.message));
    asked.end(body, () => (sentMs = performance.now()));
  }

  #options(bytes: number): RequestOptions {
    return {
      method: 'POST',
      agent: this.#agent,
      headers: { 'content-type': 'application/json', 'content-length': bytes },
    };
  }

  #ended(fault: string | null): void {
    this.#open -= 1;
    if (this.#cut) return;
    this.#completed += 1;
    if (fault !== null) this.#wrongly(fault);
    if (this.#stopped && this.#open === 0) this.#idle?.();
    if (this.#shape.perSecond !== undefined) return;
    // A proxy that refuses at once must not be flooded from within one turn of the loop.
    setImmediate(() => this.#send());
  }

  #faultOf(status: number, events: number, tail: string): string | null {
    if (status !== 200) return `status ${status}: ${tail.slice(0, 200)}`;
    const { chunks } = this.#shape;
    if (chunks === null) return tail.endsWith('}') ? null : 'a JSON answer without its end';
    if (!tail.endsWith('data: [DONE]\n\n')) return 'a stream without [DONE]';
    // Each chunk, the one with the finish reason, and [DONE].
    return events === chunks + 2 ? null : `${events} events, not ${chunks + 2}`;
  }
}

/** Events end with an empty line, and a socket may cut anywhere. */
class EventCount {
  count = 0;
  #carry = '';

  take(piece: Buffer): void {
    const text = this.#carry + piece.toString('latin1');
    for (let at = text.indexOf('\n\n'); at >= 0; at = text.indexOf('\n\n', at + 2)) {
      this.count += 1;
    }
    this.#carry = text.endsWith('\n') && !text.endsWith('\n\n') ? '\n' : '';
  }
}
