// `curl`, whose exit status is all that a script looks at.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { beforeEach, describe, expect, test } from 'vitest';
import { chunk, DONE } from '../e2e/scripted-engine.ts';
import { until } from '../e2e/until.ts';
import { openRegion } from './file-region.ts';
import { ABSENT, KEY, MODEL } from './region.ts';
import {
  CUTS,
  cutShort,
  heldAndFailing,
  held,
  stopped,
  TEXT,
  tooLong,
  WORDS,
  words,
} from './scripts.ts';
import type { Tap } from './tap.ts';

/** Exit statuses, as its manual has them. */
const HTTP_ERROR = 22;
const PARTIAL = 18;
const TIMED_OUT = 28;
const RECEIVE_ERROR = 56;

const missing = spawnSync('curl', ['--version']).error !== undefined;
const region = openRegion(!missing);
beforeEach(({ skip }) => skip(missing, 'curl is not here: apt-get install curl'));

interface Call {
  readonly flags?: readonly string[];
  readonly prompt: string;
  readonly model?: string;
  readonly stream?: boolean;
  readonly maxTokens?: number;
}

interface Running {
  readonly tap: Tap;
  readonly output: () => string;
  readonly kill: () => void;
  /** Its exit status. */
  readonly status: Promise<number | null>;
}

/** Without the comments that a stream has where a busy machine lets it wait. */
function eventsIn(output: string): string {
  return output.replaceAll(': keep-alive\n\n', '');
}

async function curl({ flags = [], prompt, stream = true, ...more }: Call): Promise<Running> {
  const tap = await region().tap();
  const { model = MODEL, maxTokens = 8 } = more;
  const messages = [{ role: 'user', content: prompt }];
  const body = JSON.stringify({ model, messages, stream, max_tokens: maxTokens });
  const child = spawn('curl', [
    ...['--silent', '--no-buffer', '--fail-with-body', ...flags],
    ...['--header', `authorization: Bearer ${KEY}`, '--json', body],
    `${tap.url}/v1/chat/completions`,
  ]);
  let output = '';
  child.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
  const status = once(child, 'close').then(([code]) => code as number | null);
  return { tap, output: () => output, kill: () => void child.kill('SIGTERM'), status };
}

describe('curl', () => {
  test('prints a stream as it comes, and ends well at its end', async () => {
    const { status, output } = await curl({ prompt: region().prompt(words) });
    expect(await status).toBe(0);
    const events = [...WORDS.map((word) => chunk(word)), chunk('', 'stop'), DONE];
    expect(eventsIn(output())).toBe(events.join(''));
  });

  test('prints a whole answer', async () => {
    const { status, output } = await curl({ prompt: region().prompt(words), stream: false });
    expect(await status).toBe(0);
    expect(JSON.parse(output())).toMatchObject({ choices: [{ message: { content: TEXT } }] });
  });

  test.each(CUTS)('fails where a stream breaks off by %s of its engine', async (_name, end) => {
    const { status, output } = await curl({ prompt: region().prompt(cutShort(end)) });
    expect(await status).toBe(PARTIAL);
    const came = WORDS.slice(0, 2).map((word) => chunk(word));
    expect(eventsIn(output()).startsWith(`${came.join('')}data: {"error":`)).toBe(true);
    expect(output()).toContain('"code":"stream_interrupted"');
    expect(output()).not.toContain('[DONE]');
  });

  test.each([
    ['reset', RECEIVE_ERROR],
    ['end', PARTIAL],
  ] as const)('fails where its connection is cut (%s)', async (how, expected) => {
    const { tap, status, output } = await curl({ prompt: region().prompt(stopped) });
    await until(() => output().includes(WORDS[1]));
    tap.cut(how);
    expect(await status).toBe(expected);
    await region().whenIdle();
  });

  test('fails where a request fails behind the comments', async () => {
    const { script, release } = heldAndFailing();
    const { status, output } = await curl({ prompt: region().prompt(script) });
    await until(() => output().includes(': keep-alive'));
    release();
    expect(await status).toBe(PARTIAL);
    expect(output()).toMatch(/^(?:: keep-alive\n\n)+data: \{"error":.*"upstream_failed"\}\}\n\n$/);
  });

  test.each([
    ['the router', 'hello', 'none', 'model_not_found'],
    ['the engine', null, MODEL, 400],
  ])('prints the refusal of %s and fails', async (_by, prompt, model, code) => {
    const call = { prompt: prompt ?? region().prompt(tooLong), model, stream: false };
    const { status, output, tap } = await curl({ ...call, flags: ['--retry', '2'] });
    expect(await status).toBe(HTTP_ERROR);
    expect(JSON.parse(output())).toMatchObject({ error: { code, message: expect.any(String) } });
    expect(tap.attempts).toHaveLength(1);
  });

  test('tries again where it is told to, after the time that it is told', async () => {
    const { status, tap } = await curl({ prompt: 'x', model: ABSENT, flags: ['--retry', '1'] });
    expect(await status).toBe(HTTP_ERROR);
    expect(tap.attempts).toHaveLength(2);
    const [first, second] = tap.attempts;
    const told = Number(/^retry-after: (\d+)\r$/m.exec(tap.answered())?.[1]);
    expect((second?.atMs ?? 0) - (first?.atMs ?? 0)).toBeGreaterThanOrEqual(told * 1_000);
  });

  test('that is killed, or out of time, ends the work of the engine', async () => {
    const endless = await curl({ prompt: 'Go on.', maxTokens: 20_000 });
    await until(() => endless.output().split('data:').length > 3);
    endless.kill();
    await endless.status;
    await region().whenIdle();
    const { script, received } = held();
    const call = { prompt: region().prompt(script), stream: false };
    const patient = await curl({ ...call, flags: ['--max-time', '0.5'] });
    expect(await patient.status).toBe(TIMED_OUT);
    await (
      await received
    ).cut;
    await region().whenIdle();
  });
});
