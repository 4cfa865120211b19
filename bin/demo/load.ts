// The demo's own clients: a few applications, each with a system prompt of its own and several people in conversation.
// Every turn carries the whole history, answers are streamed. Enough to see prefixes found again and replicas
// fill; not a benchmark.

import type { Random } from '../../shared/lib/random.ts';
import type { Timers } from '../../shared/runtime/timers.ts';

export interface DemoLoadOptions {
  readonly base: string;
  readonly model: string;
  /** Null: none is needed. */
  readonly key: string | null;
  readonly random: Random;
  readonly timers: Timers;
}

interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

const APPLICATIONS = 4;
const PEOPLE = 6;
const TURNS = 6;
const THINK_MS = 3_000;
const WORDS = 'river gate flow basin level spill turbine head tail crest sluice weir'.split(' ');

/** Runs until the returned function is called. */
export function startDemoLoad(options: DemoLoadOptions): () => void {
  const ended = new AbortController();
  for (let application = 0; application < APPLICATIONS; application += 1) {
    const shared = text(options.random, 600);
    for (let person = 0; person < PEOPLE; person += 1) void converse(options, shared, ended.signal);
  }
  return () => ended.abort();
}

/** One person: conversation after conversation, with time to think before every turn. */
async function converse(
  options: DemoLoadOptions,
  shared: string,
  ended: AbortSignal,
): Promise<void> {
  while (!ended.aborted) {
    const messages: Message[] = [{ role: 'system', content: shared }];
    for (let turn = 0; turn < TURNS && !ended.aborted; turn += 1) {
      await think(options, ended);
      messages.push({ role: 'user', content: text(options.random, 80) });
      const answer = await ask(options, messages, ended);
      if (answer === null) break;
      messages.push({ role: 'assistant', content: answer });
    }
  }
}

function think({ random, timers }: DemoLoadOptions, ended: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const cancel = timers.after(THINK_MS * (0.25 + 1.5 * random.next()), resolve);
    ended.addEventListener(
      'abort',
      () => {
        cancel();
        resolve();
      },
      { once: true },
    );
  });
}

/** The whole answer; null when there was none. */
async function ask(
  { base, model, key }: DemoLoadOptions,
  messages: readonly Message[],
  ended: AbortSignal,
): Promise<string | null> {
  try {
    const response = await fetch(`${base}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      },
      body: JSON.stringify({ model, messages, stream: true, max_tokens: 64 }),
      signal: ended,
    });
    const body = await response.text();
    return response.status === 200 ? contentOf(body) : null;
  } catch {
    return null;
  }
}

/** Joins the deltas of a streamed answer. */
function contentOf(stream: string): string {
  const pieces = stream.matchAll(/"content":("(?:[^"\\]|\\.)*")/g);
  return Array.from(pieces, ([, literal]) => String(JSON.parse(literal ?? '""'))).join('');
}

function text(random: Random, words: number): string {
  const pick = (): string => WORDS[Math.floor(random.next() * WORDS.length)] ?? '';
  return Array.from({ length: words }, pick).join(' ');
}
