// The engine's log file as evidence, followed to its end. A file that is another one (rotated by renaming), or shorter
// than what was read (truncated in place), is read from its beginning. At most `CATCH_UP_BYTES` are read at a time and
// what lies before them is left out: only the end of a start's log matters. Reading is never awaited and never fatal.

import type { Clock } from '../shared/runtime/clock.ts';
import { closeQuietly, openQuietly } from './quiet-file.ts';
import { LoadLog } from './policy/load-log.ts';
import type { LogSight } from './policy/process-evidence.ts';

const CATCH_UP_BYTES = 256 * 1_024;
/** A line that does not end is cut here, bytes. */
const LINE_BYTES = 8 * 1_024;
// Progress bars redraw their line with a carriage return; colours are of no use.
const LINE_END = /\r\n|\r|\n/;
// oxlint-disable-next-line no-control-regex -- the escape character begins a colour.
const COLOUR = /\u001b\[[0-9;]*[A-Za-z]/g;

export class LogTail {
  readonly #path: string;
  #inode: number | null = null;
  #offset = 0;
  #rest = '';

  constructor(path: string) {
    this.#path = path;
  }

  /** Whole lines since the last call, and when the file was written last (ms since 1970); null without a file. */
  async read(): Promise<{ readonly lines: readonly string[]; readonly writtenMs: number } | null> {
    const file = await openQuietly(this.#path);
    if (file === null) return null;
    try {
      const stat = await file.stat();
      if (!stat.isFile()) return null;
      const { ino, size, mtimeMs } = stat;
      if (ino !== this.#inode || size < this.#offset) this.#startOver(ino);
      const from = Math.max(this.#offset, size - CATCH_UP_BYTES);
      const buffer = Buffer.alloc(Math.max(0, size - from));
      const { bytesRead } = await file.read(buffer, 0, buffer.length, from);
      if (from > this.#offset) this.#rest = '';
      this.#offset = from + bytesRead;
      return { lines: this.#split(buffer.toString('utf8', 0, bytesRead)), writtenMs: mtimeMs };
    } catch {
      return null;
    } finally {
      await closeQuietly(file);
    }
  }

  #startOver(inode: number): void {
    this.#inode = inode;
    this.#offset = 0;
    this.#rest = '';
  }

  #split(text: string): string[] {
    const lines = (this.#rest + text).split(LINE_END);
    this.#rest = (lines.pop() ?? '').slice(-LINE_BYTES);
    return lines.map((line) => line.replace(COLOUR, ''));
  }
}

export class LogWitness {
  readonly #tail: LogTail;
  readonly #clock: Clock;
  readonly #log = new LoadLog();
  #reading = false;
  #toldMs: number | null = null;

  constructor(path: string, clock: Clock) {
    this.#tail = new LogTail(path);
    this.#clock = clock;
  }

  /** What was read so far; null before a line told of a start. */
  sight(): LogSight | null {
    void this.#read();
    if (this.#toldMs === null) return null;
    return {
      progress: this.#log.progress,
      ageMs: Math.max(0, this.#clock.nowMs() - this.#toldMs),
    };
  }

  async #read(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    const read = await this.#tail.read();
    this.#reading = false;
    if (read === null) return;
    let told = false;
    for (const line of read.lines) told = this.#log.line(line) || told;
    // Lines of long ago, read at the agent's start, told then and not now.
    const agoMs = Math.max(0, this.#clock.wallMs() - read.writtenMs);
    if (told) this.#toldMs = this.#clock.nowMs() - agoMs;
  }
}
