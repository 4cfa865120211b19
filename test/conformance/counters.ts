// Looks at an engine's exposition: once, as differences, or again and again while something happens.

import { call } from './client.ts';
import { parseExposition, valueOf, type Family } from './exposition.ts';
import { delay, eventually } from './run.ts';
import type { ConformanceSubject } from './subject.ts';

type Labels = Readonly<Record<string, string>>;

/** One look at the exposition. */
export class Reading {
  readonly families: ReadonlyMap<string, Family>;
  /** ms, monotonic: when it was asked for and when it was there. */
  readonly askedMs: number;
  readonly atMs: number;

  constructor(text: string, askedMs: number) {
    this.families = parseExposition(text);
    this.askedMs = askedMs;
    this.atMs = performance.now();
  }

  /** Sum over the matching series of `vllm:` and the name; null where there is none. */
  value(name: string, labels?: Labels): number | null {
    return valueOf(this.families, `vllm:${name}`, labels);
  }

  /** As `value`, for what must be there. */
  count(name: string, labels?: Labels): number {
    const value = this.value(name, labels);
    if (value === null) throw new Error(`the exposition has no vllm:${name}`);
    return value;
  }
}

export async function read(subject: ConformanceSubject): Promise<Reading> {
  const askedMs = performance.now();
  return new Reading((await call(subject.url, '/metrics')).text, askedMs);
}

/** What a counter has grown since. */
export function grown(before: Reading, after: Reading, name: string, labels?: Labels): number {
  return after.count(name, labels) - (before.value(name, labels) ?? 0);
}

/** Looks again and again until the work is done, and once more then. */
export async function watch<T>(
  subject: ConformanceSubject,
  work: Promise<T>,
  everyMs = 25,
): Promise<{ readonly value: T; readonly readings: readonly Reading[] }> {
  const readings: Reading[] = [];
  let open = true;
  const done = work.finally(() => {
    open = false;
  });
  done.catch(() => undefined);
  while (open) {
    readings.push(await read(subject));
    if (open) await delay(everyMs);
  }
  const value = await done;
  readings.push(await read(subject));
  return { value, readings };
}

/** The first look that shows nothing running and nothing waiting. */
export function untilIdle(subject: ConformanceSubject): Promise<Reading> {
  return eventually('the engine is idle', async () => {
    const reading = await read(subject);
    const busy = reading.count('num_requests_running') + reading.count('num_requests_waiting');
    return busy === 0 ? reading : null;
  });
}

/** The first look for which the condition holds. */
export function untilReads(
  subject: ConformanceSubject,
  what: string,
  holds: (reading: Reading) => boolean,
): Promise<Reading> {
  return eventually(what, async () => {
    const reading = await read(subject);
    return holds(reading) ? reading : null;
  });
}
