// Where log lines leave the process: a file descriptor whose other end may be slow, stopped or gone, and none of that
// is a reason to stop serving, to fill the memory or not to end.
//
//   quiet     a line leaves at once
//   busy      lines gather for `GATHER_MS` from one write to the next, `BATCH_CHARS` of them at most: a write, which another
//             thread has to be woken for, costs more than a line does
//   slow      lines wait, `MAX_WAITING_CHARS` of them; then they are dropped, and a line says how many
//   gone      (EPIPE and its like) every further line is dropped in silence: nobody is there to be told
//   at exit   what waits is written at once, unless the reader has not even taken the write before it

import { write, writeSync } from 'node:fs';
import type { Clock } from './clock.ts';
import type { Timers } from './timers.ts';

const MAX_WAITING_CHARS = 4 * 1024 * 1024;
const BATCH_CHARS = 64 * 1024;
const GATHER_MS = 100;
/** ms between two attempts where the reader takes nothing for now, and attempts at exit. */
const AGAIN_MS = 20;
const LAST_ATTEMPTS = 10;
/** A write that takes so many ms has a reader that stands still. */
const STUCK_MS = 1_000;

export interface SinkFile {
  /** As `fs.write`: one call back, with what was written or why not. */
  write(
    bytes: Uint8Array,
    done: (error: NodeJS.ErrnoException | null, written: number) => void,
  ): void;
  writeSync(bytes: Uint8Array): number;
}

export function fileOf(fd: number): SinkFile {
  return {
    write: (bytes, done) => write(fd, bytes, done),
    writeSync: (bytes) => writeSync(fd, bytes),
  };
}

export class LogSink {
  readonly #file: SinkFile;
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #timers: Pick<Timers, 'after'>;
  #lines: string[] = [];
  #waitingChars = 0;
  #dropped = 0;
  /** What an unfinished write left over. */
  #rest: Uint8Array | null = null;
  #writingSinceMs: number | null = null;
  /** When the next write may begin. */
  #nextMs = Number.NEGATIVE_INFINITY;
  #planned = false;
  #gone = false;

  constructor(file: SinkFile, clock: Pick<Clock, 'nowMs'>, timers: Pick<Timers, 'after'>) {
    this.#file = file;
    this.#clock = clock;
    this.#timers = timers;
  }

  write(line: string): void {
    if (this.#gone) return;
    if (this.#waitingChars + line.length > MAX_WAITING_CHARS) {
      this.#dropped += 1;
      return;
    }
    this.#lines.push(line);
    this.#waitingChars += line.length;
    if (this.#writingSinceMs === null) this.#plan();
  }

  /** For the end of the process. */
  flushSync(): void {
    const stuck =
      this.#writingSinceMs !== null && this.#clock.nowMs() - this.#writingSinceMs > STUCK_MS;
    let bytes = stuck ? null : this.#take();
    for (let attempts = 0; bytes !== null && !this.#gone;) {
      try {
        const written = this.#file.writeSync(bytes);
        bytes = written < bytes.length ? bytes.subarray(written) : this.#take();
      } catch (error) {
        attempts += 1;
        if (!isAgain(error) || attempts === LAST_ATTEMPTS) return this.#leave();
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, AGAIN_MS);
      }
    }
  }

  /** The next write: now, or when lines have gathered. */
  #plan(): void {
    if (this.#waitingChars >= BATCH_CHARS) return this.#next();
    if (this.#planned) return;
    const waitMs = this.#nextMs - this.#clock.nowMs();
    if (waitMs <= 0) return this.#next();
    this.#planned = true;
    this.#timers.after(waitMs, () => {
      this.#planned = false;
      // A full batch may be on its way by now.
      if (!this.#gone && this.#writingSinceMs === null) this.#next();
    });
  }

  #next(): void {
    const bytes = this.#take();
    this.#writingSinceMs = bytes === null ? null : this.#clock.nowMs();
    if (bytes === null) return;
    this.#nextMs = this.#clock.nowMs() + GATHER_MS;
    this.#file.write(bytes, (error, written) => {
      if (error !== null && !isAgain(error)) return this.#leave();
      const taken = error === null ? written : 0;
      if (taken < bytes.length) this.#rest = bytes.subarray(taken);
      if (error !== null) return this.#again();
      this.#writingSinceMs = null;
      if (this.#rest !== null) this.#next();
      else if (this.#lines.length > 0 || this.#dropped > 0) this.#plan();
    });
  }

  /** The write that is under way, once more. */
  #again(): void {
    this.#timers.after(AGAIN_MS, () => {
      if (!this.#gone) this.#next();
    });
  }

  #take(): Uint8Array | null {
    const rest = this.#rest;
    this.#rest = null;
    if (rest !== null) return rest;
    let count = 0;
    let length = 0;
    while (count < this.#lines.length && length < BATCH_CHARS) {
      length += this.#lines[count]?.length ?? 0;
      count += 1;
    }
    const taken = this.#lines.splice(0, count);
    this.#waitingChars -= length;
    if (this.#dropped > 0 && this.#lines.length === 0) taken.push(this.#droppedLine());
    return taken.length === 0 ? null : Buffer.from(taken.join(''));
  }

  #droppedLine(): string {
    const lines = this.#dropped;
    this.#dropped = 0;
    return `${JSON.stringify({ level: 40, lines, msg: 'log lines dropped: nobody read them in time' })}\n`;
  }

  #leave(): void {
    this.#gone = true;
    this.#lines = [];
    this.#rest = null;
    this.#waitingChars = 0;
  }
}

function isAgain(error: unknown): boolean {
  const code = (error as { code?: unknown }).code;
  return code === 'EAGAIN' || code === 'EBUSY' || code === 'EINTR';
}
