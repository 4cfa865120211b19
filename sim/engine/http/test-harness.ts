// What the HTTP tests share: an engine in time moved by hand, calls that show raw answers, recorded answers as shapes.

import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { afterEach } from 'vitest';

import { seededRandom } from '../../../shared/lib/random.ts';
import { createLog } from '../../../shared/runtime/log.ts';
import { ManualTime } from '../../../shared/runtime/manual-time.ts';
import { systemTimers } from '../../../shared/runtime/timers.ts';
import type { EngineServerOptions } from './options.ts';
import { startEngineServer, type RunningEngine } from './server.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../profiles.ts';

export const CHAT_PATH = '/v1/chat/completions';

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

export interface Recorded {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** The recorded engine: 16,384 tokens of context, steps of 1,024, here with a KV cache of 8,192. */
export const RECORDED_PROFILE: EngineProfile = {
  ...(ENGINE_PROFILES['cpu-tiny-llama'] as EngineProfile),
  kvBlocks: 1_024,
};

export interface TestEngine {
  readonly engine: RunningEngine;
  readonly time: ManualTime;
}

export async function startTestEngine(
  options: Partial<EngineServerOptions> = {},
): Promise<TestEngine> {
  const time = new ManualTime();
  const runtime = {
    clock: time,
    timers: time,
    random: seededRandom(1),
    log: createLog({ level: 'silent', readable: false }),
  };
  const defaults = { host: '127.0.0.1', port: 0, model: 'tiny-llama', loadingMs: 0 };
  const engine = await startEngineServer(
    { ...defaults, profile: RECORDED_PROFILE, ...options },
    runtime,
  );
  return { engine, time };
}

/** Starts engines of such options, each closed after its test. To be called at the top of a test file. */
export function openEngines(
  defaults: Partial<EngineServerOptions> = {},
): (options?: Partial<EngineServerOptions>) => Promise<TestEngine> {
  const running: TestEngine[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map(({ engine }) => engine.close()));
  });
  return async (options = {}) => {
    const test = await startTestEngine({ ...defaults, ...options });
    running.push(test);
    return test;
  };
}

export interface Call {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON unless it is text. */
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

/** Settles with the response's head. */
export function open(
  engine: RunningEngine,
  path: string,
  call: Call = {},
): Promise<IncomingMessage> {
  const { body, headers, signal } = call;
  const method = call.method ?? (body === undefined ? 'GET' : 'POST');
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const json = body === undefined ? {} : { 'content-type': 'application/json' };
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      `${engine.url}${path}`,
      { method, agent: false, headers: { ...json, ...headers }, ...(signal ? { signal } : {}) },
      resolve,
    );
    request.on('error', reject);
    request.end(text);
  });
}

export async function readText(response: IncomingMessage): Promise<string> {
  let text = '';
  response.setEncoding('utf8');
  for await (const part of response as AsyncIterable<string>) text += part;
  return text;
}

export async function call(
  engine: RunningEngine,
  path: string,
  options: Call = {},
): Promise<Answer> {
  const response = await open(engine, path, options);
  const text = await readText(response);
  return { status: response.statusCode ?? 0, headers: response.headers, text };
}

/** Time goes on, in steps of `stepMs`, until the answer is there. */
export async function settled<T>(
  { time }: TestEngine,
  answer: Promise<T>,
  stepMs = 100,
): Promise<T> {
  let done = false;
  const end = (): void => {
    done = true;
  };
  answer.then(end, end);
  while (!done) {
    time.advance(stepMs);
    await aMoment();
  }
  return answer;
}

/** A whole answer, streamed or not, for which time goes on. */
export function answered(test: TestEngine, body: object, path = CHAT_PATH): Promise<Answer> {
  return settled(test, call(test.engine, path, { body }));
}

/** Until so many requests are inside the engine. */
export async function whenInside({ engine }: TestEngine, count: number): Promise<void> {
  while (engine.state().openRequests !== count) await aMoment();
}

/** What is on its way over HTTP comes in meanwhile. */
function aMoment(): Promise<void> {
  return new Promise((resolve) => systemTimers.after(1, resolve));
}

/** Data of the events of a stream, `[DONE]` included. */
export function dataOf(stream: string): string[] {
  return stream
    .split('\n\n')
    .filter((event) => event !== '')
    .map((event) => event.replace(/^data: /, ''));
}

export function recorded(name: string): Recorded {
  const url = new URL(`../../../test/fixtures/vllm-0.32.0/${name}`, import.meta.url);
  const text = readFileSync(url, 'utf8');
  const end = text.indexOf('\n\n');
  const [status = '', ...lines] = text.slice(0, end).split('\n');
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)]),
  );
  return { status: Number(status.split(' ')[1]), headers, body: text.slice(end + 2) };
}

/** Members in order, types, and what is no free value: null, booleans, roles, reasons, objects' names. */
export function shapeOf(value: unknown, name = ''): unknown {
  if (Array.isArray(value)) return value.map((each) => shapeOf(each));
  if (typeof value === 'object' && value !== null) {
    return Object.entries(value).map(([key, each]) => [key, shapeOf(each, key)]);
  }
  const fixed = ['object', 'role', 'finish_reason', 'owned_by', 'type', 'model'];
  if (typeof value === 'string' && !fixed.includes(name)) return 'text';
  return typeof value === 'number' ? 'number' : value;
}

/** Shapes of a stream's events, runs of equal ones as one. */
export function streamShape(stream: string): unknown[] {
  const shapes: unknown[] = [];
  for (const data of dataOf(stream)) {
    const shape: unknown = data === '[DONE]' ? data : shapeOf(JSON.parse(data));
    if (JSON.stringify(shape) !== JSON.stringify(shapes.at(-1))) shapes.push(shape);
  }
  return shapes;
}
