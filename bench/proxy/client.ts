// One connection of the load: a request at a time, its answer read as it comes. As light as Node can be (no HTTP client, one
// buffer that all connections read into), since what the load takes of its core is time in which no replica answers.

import { connect, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { AnswerReader } from './answer-reader.ts';

const READ_BYTES = 65_536;
/** A read's callback has run before the next read. */
const READ_INTO = Buffer.allocUnsafe(READ_BYTES);

export interface Answered {
  /** ms from before the request is written to the first byte of the answer's body; null where none came. */
  readonly ttftMs: number | null;
  /** What was wrong with the answer as HTTP. */
  readonly fault: string | null;
  readonly answer: AnswerReader;
}

export class Client {
  readonly #answer = new AnswerReader();
  readonly #socket: Socket;
  #sentMs = 0;
  #ttftMs: number | null = null;
  #done: ((answered: Answered) => void) | null = null;
  #gone = false;

  constructor(host: string, port: number) {
    this.#socket = connect({
      ...{ host, port, noDelay: true },
      onread: {
        buffer: READ_INTO,
        callback: (length: number): boolean => {
          this.#read(READ_INTO.subarray(0, length));
          return true;
        },
      },
    });
    this.#socket.on('error', (error) => this.#left(error.message));
    this.#socket.on('close', () => this.#left('the connection ended'));
  }

  /** Whether it can carry another request. */
  get usable(): boolean {
    return !this.#gone && this.#done === null;
  }

  send(request: Buffer, done: (answered: Answered) => void): void {
    this.#answer.reset();
    this.#ttftMs = null;
    this.#done = done;
    this.#sentMs = performance.now();
    this.#socket.write(request);
  }

  close(): void {
    this.#gone = true;
    this.#socket.destroy();
  }

  #read(bytes: Buffer): void {
    const answer = this.#answer;
    const fault = this.#done === null ? 'bytes that nobody asked for' : answer.take(bytes);
    if (answer.begun) this.#ttftMs ??= performance.now() - this.#sentMs;
    if (fault !== null) this.#left(fault);
    else if (answer.whole) this.#ended(null);
  }

  /** It cannot go on. */
  #left(fault: string): void {
    this.close();
    this.#ended(fault);
  }

  #ended(fault: string | null): void {
    const done = this.#done;
    if (!this.#answer.kept) this.close();
    this.#done = null;
    done?.({ ttftMs: this.#ttftMs, fault, answer: this.#answer });
  }
}
