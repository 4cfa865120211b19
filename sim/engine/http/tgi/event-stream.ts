// A stream of events with comments in its silences: whenever nothing was sent for 15 s, a comment is.

import type { ServerResponse } from 'node:http';

const SILENCE_MS = 15_000;
const COMMENT = ':\n\n';

export interface StreamTime {
  nowMs(): number;
  /** Runs `task` unless the process is gone before. */
  after(delayMs: number, task: () => void): void;
}

export class EventStream {
  readonly #response: ServerResponse;
  readonly #time: StreamTime;
  #sentMs: number;

  /** The head is out. */
  constructor(response: ServerResponse, time: StreamTime) {
    this.#response = response;
    this.#time = time;
    this.#sentMs = time.nowMs();
    this.#watch();
  }

  /** Events as text. */
  write(events: string): void {
    this.#sentMs = this.#time.nowMs();
    this.#response.write(events);
  }

  end(events: string): void {
    this.#response.end(events);
  }

  #watch(): void {
    const dueMs = this.#sentMs + SILENCE_MS - this.#time.nowMs();
    this.#time.after(dueMs, () => {
      if (this.#response.writableEnded || this.#response.destroyed) return;
      if (this.#time.nowMs() - this.#sentMs >= SILENCE_MS) this.write(COMMENT);
      this.#watch();
    });
  }
}
