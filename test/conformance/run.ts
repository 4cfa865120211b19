// Runs checks on a subject, one after another: brings it into the state that each begins with, bounds each in time.

import { missingFor, type Check, type Outcome } from './check.ts';
import { leaveAll, statusOf } from './client.ts';
import type { ConformanceSubject } from './subject.ts';

const LIMIT_MS = 30_000;
const LOOK_MS = 100;

export function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The first value that is not null; throws after the limit. */
export async function eventually<T>(
  what: string,
  look: () => T | null | Promise<T | null>,
  { limitMs = 20_000, everyMs = 20 }: { limitMs?: number; everyMs?: number } = {},
): Promise<T> {
  const until = performance.now() + limitMs;
  for (;;) {
    const value = await look();
    if (value !== null) return value;
    if (performance.now() > until) throw new Error(`not within ${limitMs} ms: ${what}`);
    await delay(everyMs);
  }
}

/** Starts the engine where it is not running, and waits until it serves. */
export async function untilServing(subject: ConformanceSubject): Promise<void> {
  const { controls, url, startLimitMs } = subject;
  if (controls.running() && (await statusOf(url, '/health')) === 200) return;
  if (controls.running()) await controls.stop();
  await controls.start();
  await eventually(
    'the engine serves',
    async () => {
      if (!controls.running()) throw new Error(`${subject.name} ended while it was loading`);
      return (await statusOf(url, '/health')) === 200 ? true : null;
    },
    { limitMs: startLimitMs, everyMs: LOOK_MS },
  );
}

/** Runs one check; never rejects. */
export async function runCheck(check: Check, subject: ConformanceSubject): Promise<Outcome> {
  const missing = missingFor(check, subject);
  if (missing.length > 0) return { result: 'skipped', missing };
  let startMs = performance.now();
  const spentMs = (): number => performance.now() - startMs;
  try {
    if (check.begins === 'stopped') await subject.controls.stop();
    else await untilServing(subject);
    startMs = performance.now();
    const limitMs = check.limitMs ?? LIMIT_MS;
    await withLimit(check.run(subject), limitMs);
    return { result: 'ok', ms: spentMs() };
  } catch (error) {
    return { result: 'failed', ms: spentMs(), why: wordsOf(error) };
  } finally {
    leaveAll();
  }
}

async function withLimit(work: Promise<void>, limitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${limitMs} ms`)), limitMs);
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const place = /test\/conformance\/(?!run)[\w-]+\.ts:\d+/.exec(error.stack ?? '')?.[0];
  return place === undefined ? error.message : `${error.message} (${place})`;
}
