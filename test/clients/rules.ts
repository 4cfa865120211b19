// What every client library must show of a router's answers, whatever its own way of showing it is. Streams are read in the
// plainest form that a library has, since that is what applications use.

import { describe, expect, test } from 'vitest';
import { poolOf } from '../e2e/fleet.ts';
import { until } from '../e2e/until.ts';
import { failureOf, outcomeOf, type Asked, type Library, type Shown } from './library.ts';
import { ABSENT, MODEL, NARROW, type ClientRegion } from './region.ts';
import {
  CUTS,
  cutShort,
  failingOnce,
  held,
  heldAndFailing,
  longAndCut,
  stopped,
  TEXT,
  tooLong,
  WORDS,
  words,
} from './scripts.ts';
import type { Tap } from './tap.ts';

const TWO_WORDS = WORDS.slice(0, 2);
/** Far more than any test waits for, tokens. */
const ENDLESS = 20_000;

interface Place {
  readonly library: Library;
  readonly region: () => ClientRegion;
}

/** To be called in the `describe` of a library. */
export function keepsTheRules(library: Library, region: () => ClientRegion): void {
  const place = { library, region };
  describe('an answer', () => answers(place));
  describe('a stream that breaks off', () => breaks(place));
  describe('a request that waits', () => waits(place));
  describe('a client that leaves', () => leaves(place));
  describe('an error', () => errors(place));
}

async function tapOf(region: ClientRegion): Promise<{ tap: Tap; ask: AskOf }> {
  const tap = await region.tap();
  return { tap, ask: (prompt, more = {}) => ({ url: tap.url, model: MODEL, prompt, ...more }) };
}
type AskOf = (prompt: string, more?: Partial<Asked>) => Asked;

function answers({ library, region }: Place): void {
  test('streamed has every piece in order, and whole the same text', async () => {
    const { ask } = await tapOf(region());
    const prompt = region().prompt(words);
    expect(await outcomeOf(library.stream(ask(prompt)))).toEqual({ pieces: WORDS, error: null });
    expect(await library.whole(ask(prompt))).toBe(TEXT);
  });

  test('of a simulated engine is the same both ways', async () => {
    const { ask } = await tapOf(region());
    const asked = ask('Say something.', { maxTokens: 24 });
    const { pieces, error } = await outcomeOf(library.stream(asked));
    expect(error).toBeNull();
    expect(pieces.length).toBeGreaterThan(10);
    expect(await library.whole(asked)).toBe(pieces.join(''));
  });
}

function breaks({ library, region }: Place): void {
  test.each(CUTS)('by %s of its engine raises behind what came', async (_name, end) => {
    const { tap, ask } = await tapOf(region());
    const seen = until(() => tap.answered().includes(TWO_WORDS[1] ?? ''));
    const prompt = region().prompt(cutShort(end, seen));
    const { pieces, error } = await outcomeOf(library.stream(ask(prompt)));
    expect(pieces).toEqual(TWO_WORDS);
    expect(shownBy(library, error)).toMatchObject(library.shows.cut);
    expect(tap.attempts).toHaveLength(1);
    expect(tap.answered()).not.toContain('[DONE]');
  });

  test.each(['reset', 'end'] as const)('by a connection cut (%s) raises', async (how) => {
    const { tap, ask } = await tapOf(region());
    const outcome = outcomeOf(library.stream(ask(region().prompt(stopped))));
    await until(() => tap.answered().includes(TWO_WORDS[1] ?? ''));
    tap.cut(how);
    expect((await outcome).error).toBeInstanceOf(Error);
    await region().whenIdle();
  });

  test('when it was not a stream raises too', async () => {
    const { ask } = await tapOf(region());
    const whole = library.whole(ask(region().prompt(longAndCut), { maxRetries: 0 }));
    expect(await failureOf(whole)).toBeInstanceOf(Error);
  });
}

function waits({ library, region }: Place): void {
  test('in the queue gets comments, which nobody sees, then its answer', async () => {
    const { tap, ask } = await tapOf(region());
    const holder = await region().holdNarrow();
    const asked = ask(region().prompt(words), { model: NARROW });
    const outcome = outcomeOf(library.stream(asked));
    await region().whenQueued(1);
    await until(() => (tap.answered().match(/^: keep-alive$/gm) ?? []).length >= 2);
    holder.release();
    expect(await outcome).toEqual({ pieces: WORDS, error: null });
    await region().whenIdle();
  });

  test('and fails when comments have said 200 raises', async () => {
    const { tap, ask } = await tapOf(region());
    const { script, release } = heldAndFailing();
    const outcome = outcomeOf(library.stream(ask(region().prompt(script))));
    await until(() => tap.answered().includes(': keep-alive'));
    release();
    const { pieces, error } = await outcome;
    expect(pieces).toEqual([]);
    expect(shownBy(library, error)).toMatchObject(library.shows.late);
    expect(tap.attempts).toHaveLength(1);
  });

  test('longer than the client does is over for the engine too', async () => {
    const { ask } = await tapOf(region());
    const { script, received } = held();
    const asked = ask(region().prompt(script), { timeoutMs: 300, maxRetries: 0 });
    const error = await failureOf(library.whole(asked));
    expect(shownBy(library, error)).toMatchObject(library.shows.timeout);
    await (
      await received
    ).cut;
    await region().whenIdle();
  });
}

function leaves({ library, region }: Place): void {
  test('in the middle of a stream ends the work of the engine', async () => {
    const { ask } = await tapOf(region());
    const abort = new AbortController();
    const asked = ask('Go on for ever.', { maxTokens: ENDLESS, signal: abort.signal });
    let pieces = 0;
    const read = async (): Promise<void> => {
      for await (const _ of library.stream(asked)) {
        pieces += 1;
        if (pieces === 3) await untilBusy(region());
        if (pieces === 3) abort.abort();
      }
    };
    await failureOf(read());
    await region().whenIdle();
    expect(pieces).toBeLessThan(ENDLESS / 10);
  });

  test('the queue leaves no place in it', async () => {
    const { ask } = await tapOf(region());
    const holder = await region().holdNarrow();
    const abort = new AbortController();
    const asked = ask('Never.', { model: NARROW, signal: abort.signal });
    const outcome = outcomeOf(library.stream(asked));
    await region().whenQueued(1);
    abort.abort();
    await region().whenQueued(0);
    expect((await outcome).pieces).toEqual([]);
    holder.release();
    await region().whenIdle();
  });
}

function errors({ library, region }: Place): void {
  /** The error of a whole answer, and its attempts. */
  const failed = async (asked: (ask: AskOf) => Asked): Promise<{ error: Shown; tap: Tap }> => {
    const { tap, ask } = await tapOf(region());
    const error = await failureOf(library.whole(asked(ask)));
    return { error: shownBy(library, error), tap };
  };
  const cases: [string, keyof Library['shows'], (ask: AskOf) => Asked][] = [
    ['a wrong key', 'invalidKey', (ask) => ask('hello', { key: 'sk-wrong' })],
    ['no such model', 'noModel', (ask) => ask('hello', { model: 'none' })],
    ['a prompt too long', 'tooLong', (ask) => ask('word '.repeat(60_000))],
    ["the engine's refusal", 'engineRefuses', (ask) => ask(region().prompt(tooLong))],
  ];
  test.each(cases)('by %s is shown, and not retried', async (_name, shows, asked) => {
    const { error, tap } = await failed(asked);
    expect(error).toMatchObject(library.shows[shows]);
    expect(tap.attempts).toHaveLength(1);
    expect(tap.answered()).toMatch(/^x-should-retry: false\r$/m);
  });

  test('by a full queue is a 429 with a time to come back', async () => {
    const holder = await region().holdNarrow();
    const waiting = region().fill();
    await region().whenQueued(1);
    const { error, tap } = await failed((ask) => ask('hello', { model: NARROW, maxRetries: 0 }));
    expect(error).toMatchObject(library.shows.saturated);
    expect(toldMs(tap)).toBeGreaterThanOrEqual(1_000);
    holder.release();
    await waiting;
    await region().whenIdle();
  });

  test('that passes is retried, and the answer is whole', async () => {
    const { tap, ask } = await tapOf(region());
    expect(await library.whole(ask(region().prompt(failingOnce())))).toBe(TEXT);
    expect(tap.attempts).toHaveLength(2);
    expect(tap.answered()).toMatch(/^x-should-retry: true\r$/m);
  });

  test('that stays is shown after the retries; between them it waits as told', async () => {
    const { error, tap } = await failed((ask) => ask('hello', { model: ABSENT, maxRetries: 1 }));
    expect(error).toMatchObject(library.shows.noReplica);
    const [first, second, third] = tap.attempts;
    expect([first, second, third].map((each) => each !== undefined)).toEqual([true, true, false]);
    const waitedMs = (second?.atMs ?? 0) - (first?.atMs ?? 0);
    if (library.waitsAsTold) expect(waitedMs).toBeGreaterThanOrEqual(toldMs(tap));
  });
}

function shownBy(library: Library, error: unknown): Shown {
  expect(error).toBeInstanceOf(Error);
  return library.shown(error);
}

/** The wait that the first refusal named, ms. */
function toldMs(tap: Tap): number {
  const ms = Number(/^retry-after-ms: (\d+)\r$/m.exec(tap.answered())?.[1]);
  const s = Number(/^retry-after: (\d+)\r$/m.exec(tap.answered())?.[1]);
  expect(s).toBe(Math.ceil(ms / 1_000));
  return ms;
}

async function untilBusy(region: ClientRegion): Promise<void> {
  await region.fleet.whenStatus(
    (status) => poolOf(status, 'chat')?.replicas[0]?.targets[0]?.leases === 1,
  );
}
