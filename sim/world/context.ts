// What the parts of a world share: its time, its randomness, the record of what happened, and the checks.

import { seededRandom, type Random } from '../../shared/lib/random.ts';
import { Timeline } from './timeline.ts';

/** Runs after every event that a core has handled, with its effects carried out; throws to fail the run. */
export type Check = () => void;

export class WorldContext {
  readonly timeline = new Timeline();
  readonly log = new EventLog();
  readonly #seed: number;
  readonly #checks: Check[] = [];

  constructor(seed: number) {
    this.#seed = seed;
  }

  /** A source for each name: what one part draws never moves what another part draws. */
  stream(name: string): Random {
    return seededRandom(hashText(name, this.#seed ^ 0x811c9dc5));
  }

  addCheck(check: Check): void {
    this.#checks.push(check);
  }

  /** Notes an event of a core and runs the checks. */
  handled(line: string): void {
    this.log.add(`${this.timeline.nowMs.toFixed(6)} ${line}`);
    for (const check of this.#checks) check();
  }

  /** Names the seed and the last events where a run fails. */
  guard(run: () => void): void {
    try {
      run();
    } catch (cause) {
      const tail = this.log.tail().join('\n');
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new Error(`seed ${this.#seed}: ${why}, after\n${tail}`, { cause });
    }
  }
}

/** A running hash of all lines, and the last of them for people. */
export class EventLog {
  lines = 0;
  #hash = 0x811c9dc5;
  readonly #ring: string[] = [];

  add(line: string): void {
    this.#hash = hashText(line, this.#hash);
    this.#ring[this.lines % TAIL] = line;
    this.lines++;
  }

  get hash(): string {
    return `${this.lines}:${this.#hash.toString(16)}`;
  }

  tail(): string[] {
    const next = this.lines % TAIL;
    return [...this.#ring.slice(next), ...this.#ring.slice(0, next)];
  }
}

const TAIL = 12;

/** FNV-1a over UTF-16 units. */
function hashText(text: string, start: number): number {
  let hash = start;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}
