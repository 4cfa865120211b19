// What the official Python library makes of a router's answers: the rules of `test/clients` (there they are held to the
// libraries of JavaScript), with this library's own words. Before simulated engines whose ends are chosen, and before real ones.

import { isDeepStrictEqual } from 'node:util';
import { until } from '../e2e/until.ts';
import { ABSENT, ClientRegion, KEY, MODEL, NARROW } from '../clients/region.ts';
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
} from '../clients/scripts.ts';
import type { Tap } from '../clients/tap.ts';
import {
  preparePython,
  PYTHON_OPENAI,
  PythonClient,
  type PythonJob,
  type PythonSight,
} from './python-client.ts';
import type { Run } from './stage.ts';
import type { Verdict } from './verdict.ts';
import { MODEL as ENGINE_MODEL } from './vllm.ts';

interface Place {
  readonly verdict: Verdict;
  readonly region: ClientRegion;
  readonly python: PythonClient;
}

type Job = Pick<PythonJob, 'prompt'> & Partial<PythonJob>;

/** Every rule before a region of simulated engines; seconds. */
export async function provePython(verdict: Verdict): Promise<void> {
  verdict.heading(`the official Python library, openai ${PYTHON_OPENAI}`);
  const interpreter = preparePython((line) => verdict.note(line));
  if (interpreter === null) return verdict.skip('its rules', 'python3 with venv, and openai');
  const region = await ClientRegion.open();
  const python = new PythonClient(interpreter);
  try {
    const place = { verdict, region, python };
    for (const rule of [answers, surface, breaks, waits, errors, retries]) await rule(place);
  } finally {
    python.close();
    await region.close();
  }
}

/** Before real engines: what is asked for comes, and what is refused is refused in words. */
export async function provePythonOnReal(run: Run): Promise<void> {
  const { verdict, fleet } = run;
  const interpreter = preparePython((line) => verdict.note(line));
  if (interpreter === null) return verdict.skip('Python before real engines', 'python3 with venv');
  const python = new PythonClient(interpreter);
  const ask = (job: Job): Promise<PythonSight> =>
    python.ask({ way: 'whole', url: fleet.url, key: 'unused', model: ENGINE_MODEL, ...job });
  try {
    const body = { max_tokens: 12, seed: 1, temperature: 0 };
    const usage = { stream_options: { include_usage: true } };
    const streamed = await ask({ way: 'stream', prompt: 'One.', body: { ...body, ...usage } });
    const whole = await ask({ prompt: 'One.', body });
    verdict.check(
      'Python: real engines: a stream has its usage, and the text of the whole answer',
      streamed.error === null &&
        streamed.usage?.completion_tokens === 12 &&
        streamed.pieces.join('') === whole.pieces.join(''),
      shown(streamed),
    );
    const long = await ask({ prompt: 'word '.repeat(60_000) });
    check(verdict, 'real engines: a prompt too long is a 400', long, { status: 400 });
  } finally {
    python.close();
  }
}

async function answers({ verdict, region, python }: Place): Promise<void> {
  const { ask } = await asker(region, python);
  const prompt = region.prompt(words);
  const body = { stream_options: { include_usage: true } };
  const streamed = await ask({ way: 'stream', prompt, body });
  verdict.check(
    'Python: a stream has every piece in order, its finish reason and its usage',
    isDeepStrictEqual(streamed.pieces, WORDS) &&
      streamed.finish === 'stop' &&
      streamed.usage?.prompt_tokens_details?.cached_tokens === 64,
    shown(streamed),
  );
  const plain = await ask({ way: 'stream', prompt });
  const whole = await ask({ prompt });
  verdict.check('Python: usage comes only where it is asked for', plain.usage === null);
  verdict.check('Python: whole it is the same text', whole.pieces.join('') === TEXT, shown(whole));
  await ask({ way: 'stream', prompt: 'Go on.', leave_after: 3, body: { max_tokens: 20_000 } });
  await region.whenIdle();
  verdict.check('Python: a stream that is closed is over for the engine', true);
}

async function surface({ verdict, region, python }: Place): Promise<void> {
  const { ask } = await asker(region, python);
  const tool = await ask({ way: 'tools', prompt: 'hello' });
  const inPieces = await ask({ way: 'tools', prompt: 'hello', streamed: true });
  verdict.check(
    'Python: a tool is called, whole and in pieces',
    tool.arguments.includes('"city"') && tool.arguments === inPieces.arguments,
    shown(tool),
  );
  const parsed = await ask({ way: 'parse', prompt: 'hello' });
  verdict.check('Python: structured output parses', parsed.parsed !== undefined, shown(parsed));
  const vector = region.prompt((received, response) => {
    const base64 = received.body.includes('"base64"');
    const bytes = Buffer.from(new Float32Array([0.5, -2]).buffer).toString('base64');
    const data = [{ object: 'embedding', index: 0, embedding: base64 ? bytes : [0.5, -2] }];
    const usage = { prompt_tokens: 3, total_tokens: 3 };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ object: 'list', model: MODEL, data, usage }));
  });
  const { embedding } = await ask({ way: 'embed', prompt: vector });
  verdict.check('Python: embeddings are numbers', isDeepStrictEqual(embedding, [0.5, -2]));
  const { models } = await ask({ way: 'models', prompt: '' });
  verdict.check('Python: models are listed and found', models?.includes(MODEL) === true);
}

async function breaks({ verdict, region, python }: Place): Promise<void> {
  const code = 'stream_interrupted';
  for (const [name, end] of CUTS) {
    const { tap, ask } = await asker(region, python);
    const seen = until(() => tap.answered().includes('two '));
    const sight = await ask({ way: 'stream', prompt: region.prompt(cutShort(end, seen)) });
    check(verdict, `a stream cut by ${name} raises`, sight, { kind: 'APIError', code });
    verdict.check(
      `Python: behind what came (${name}), with one attempt and no [DONE]`,
      sight.pieces.join('') === 'one two ' &&
        tap.attempts.length === 1 &&
        !tap.answered().includes('[DONE]'),
    );
  }
  for (const how of ['reset', 'end'] as const) {
    const { tap, ask } = await asker(region, python);
    const sight = ask({ way: 'stream', prompt: region.prompt(stopped) });
    await until(() => tap.answered().includes('two '));
    tap.cut(how);
    const { error } = await sight;
    verdict.check(`Python: a connection cut (${how}) raises`, error !== null, error?.kind);
    await region.whenIdle();
  }
  const { ask } = await asker(region, python);
  const { error } = await ask({ prompt: region.prompt(longAndCut), max_retries: 0 });
  verdict.check('Python: a whole answer that is cut raises', error !== null, error?.kind);
}

async function waits({ verdict, region, python }: Place): Promise<void> {
  const { tap, ask } = await asker(region, python);
  const holder = await region.holdNarrow();
  // Without comments it would have given up long before: its timeout is for each read.
  const job = { way: 'stream', prompt: region.prompt(words), model: NARROW, timeout: 1 } as const;
  const queued = ask(job);
  await region.whenQueued(1);
  await until(() => comments(tap) >= 15);
  holder.release();
  const { pieces, error, seconds } = await queued;
  verdict.check(
    'Python: comments keep a waiting stream beyond its read timeout, and do not show',
    error === null && isDeepStrictEqual(pieces, WORDS) && seconds > 1,
    `${comments(tap)} comments in ${seconds.toFixed(1)} s`,
  );
  const late = heldAndFailing();
  const second = await asker(region, python);
  const failed = second.ask({ way: 'stream', prompt: region.prompt(late.script) });
  await until(() => comments(second.tap) > 0);
  late.release();
  const shows = { kind: 'APIError', code: 'upstream_failed' };
  check(verdict, 'a failure behind comments raises', await failed, shows);
  const { script, received } = held();
  const prompt = region.prompt(script);
  const timedOut = await second.ask({ prompt, timeout: 0.5, max_retries: 0 });
  await (
    await received
  ).cut;
  await region.whenIdle();
  verdict.check(
    'Python: a whole answer beyond the timeout is an error, and over for the engine',
    timedOut.error !== null,
    timedOut.error?.kind,
  );
}

async function errors({ verdict, region, python }: Place): Promise<void> {
  const cases: [string, Job, Partial<PythonSight['error'] & object>][] = [
    [
      'a wrong key',
      { prompt: 'x', key: 'sk-wrong' },
      { kind: 'AuthenticationError', status: 401, code: 'invalid_api_key' },
    ],
    [
      'no such model',
      { prompt: 'x', model: 'none' },
      { kind: 'NotFoundError', status: 404, code: 'model_not_found' },
    ],
    [
      'a prompt too long',
      { prompt: 'word '.repeat(60_000) },
      { kind: 'BadRequestError', status: 400, code: 'context_length_exceeded' },
    ],
    [
      "the engine's refusal",
      { prompt: region.prompt(tooLong) },
      // vLLM's number, which the library makes a text.
      { kind: 'BadRequestError', status: 400, code: '400' },
    ],
  ];
  for (const [name, job, shows] of cases) {
    const { tap, ask } = await asker(region, python);
    const sight = await ask(job);
    check(verdict, `${name} is shown with its id`, sight, shows);
    const id = sight.error?.request_id ?? '';
    verdict.check(`Python: ${name} is not retried`, tap.attempts.length === 1 && id !== '', id);
  }
}

async function retries({ verdict, region, python }: Place): Promise<void> {
  const { tap, ask } = await asker(region, python);
  const passing = await ask({ prompt: region.prompt(failingOnce()) });
  verdict.check(
    'Python: an error that passes is retried',
    passing.pieces.join('') === TEXT && tap.attempts.length === 2,
    shown(passing),
  );
  const second = await asker(region, python);
  const staying = await second.ask({ prompt: 'x', model: ABSENT, max_retries: 1 });
  const shows = { kind: 'InternalServerError', status: 503, code: 'no_replica' };
  check(verdict, 'one that stays is shown', staying, shows);
  const [first, next] = second.tap.attempts;
  const waitedMs = (next?.atMs ?? 0) - (first?.atMs ?? 0);
  const toldMs = Number(/^retry-after-ms: (\d+)\r$/m.exec(second.tap.answered())?.[1]);
  verdict.check(
    'Python: it waits as told between two tries',
    second.tap.attempts.length === 2 && waitedMs >= toldMs,
    `told ${toldMs} ms, waited ${waitedMs.toFixed(0)} ms`,
  );
  const third = await asker(region, python);
  const fails = region.prompt((_received, response) => void response.writeHead(500).end());
  await third.ask({ prompt: fails });
  verdict.check(
    'Python: three tries in all',
    third.tap.attempts.length === 3,
    `${third.tap.attempts.length}`,
  );
}

async function asker(
  region: ClientRegion,
  python: PythonClient,
): Promise<{ tap: Tap; ask: (job: Job) => Promise<PythonSight> }> {
  const tap = await region.tap();
  const ask = (job: Job): Promise<PythonSight> =>
    python.ask({ way: 'whole', url: tap.url, key: KEY, model: MODEL, ...job });
  return { tap, ask };
}

/** The error has the members that are named. */
function check(
  verdict: Verdict,
  name: string,
  { error }: PythonSight,
  shows: Partial<PythonSight['error'] & object>,
): void {
  const seen = new Map(Object.entries(error ?? {}));
  const same = Object.entries(shows).every(([member, value]) => seen.get(member) === value);
  verdict.check(`Python: ${name}`, error !== null && same, JSON.stringify(error));
}

function comments(tap: Tap): number {
  return (tap.answered().match(/^: keep-alive$/gm) ?? []).length;
}

function shown(sight: PythonSight): string {
  return JSON.stringify(sight.error ?? { ...sight, pieces: sight.pieces.join('|') });
}
