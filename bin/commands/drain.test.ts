// `spillway drain` against something that answers as agents and routers do.

import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { UsageError } from '../cli/usage-error.ts';
import { drainCommand } from './drain.ts';

interface State {
  readonly draining: boolean;
  readonly drained: boolean;
  readonly open: number;
}

const IN_USE: State = { draining: false, drained: false, open: 0 };
const BUSY: State = { draining: true, drained: false, open: 3 };
const OVER: State = { draining: true, drained: true, open: 0 };

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
  vi.restoreAllMocks();
  delete process.env['SPILLWAY_LINK_SECRET'];
  process.exitCode = undefined;
});

interface Answering {
  readonly url: string;
  readonly asked: string[];
  readonly secrets: (string | undefined)[];
}

/** Answers with the states in order, the last one for ever. */
async function answering(states: readonly unknown[], status = 200): Promise<Answering> {
  const asked: string[] = [];
  const secrets: (string | undefined)[] = [];
  const server = createServer((call: IncomingMessage, answer) => {
    asked.push(`${call.method} ${call.url}`);
    secrets.push(call.headers.authorization);
    const state = states[Math.min(asked.length, states.length) - 1];
    answer.writeHead(status, { 'content-type': 'application/json' });
    answer.end(typeof state === 'string' ? state : JSON.stringify(state));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, secrets };
}

/** Begins an answer and goes. */
async function breakingOff(): Promise<{ readonly url: string }> {
  const server = createServer((_call, answer) => {
    answer.writeHead(200, { 'content-length': 100 });
    answer.write('{', () => answer.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

/** What it prints. */
async function drain(...words: string[]): Promise<string> {
  const said = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  await drainCommand().parseAsync(words, { from: 'user' });
  return said.mock.calls.flat().join('\n');
}

test('marks, and says how much is open', async () => {
  const { url, asked } = await answering([BUSY]);
  expect(await drain(url)).toBe(`${url}: draining, 3 requests open`);
  expect(asked).toEqual(['POST /v1/drain']);
  expect(process.exitCode).toBeUndefined();
});

test('takes the mark off', async () => {
  const { url, asked } = await answering([IN_USE]);
  expect(await drain(url, '--undo')).toBe(`${url}: in use`);
  expect(asked).toEqual(['DELETE /v1/drain']);
});

test('names one engine, and shows the first secret', async () => {
  process.env['SPILLWAY_LINK_SECRET'] = 'new-secret,old-secret';
  const { url, asked, secrets } = await answering([BUSY]);
  await drain(url, '--replica', '10.0.1.7:8000');
  expect(asked).toEqual(['POST /v1/drain?replica=10.0.1.7%3A8000']);
  expect(secrets).toEqual(['Bearer new-secret']);
});

test('waits until it may be stopped', async () => {
  const { url, asked } = await answering([BUSY, BUSY, OVER]);
  expect(await drain(url, '--wait', '20')).toBe(`${url}: drained: it may be stopped`);
  expect(asked).toEqual(['POST /v1/drain', 'GET /v1/drain', 'GET /v1/drain']);
  expect(process.exitCode).toBeUndefined();
});

test('ends with 1 where the time is over first', async () => {
  const { url } = await answering([BUSY]);
  expect(await drain(url, '--wait', '0')).toContain('3 requests open');
  expect(process.exitCode).toBe(1);
});

test.each([
  ['a refusal', 403, { error: 'From another machine …' }, '403 From another machine …'],
  ['a refusal of a router', 503, { error: { message: 'told to end' } }, '503 told to end'],
  ['something else', 200, '<html>', 'neither an agent nor a router'],
])('%s is told in one line', async (_what, status, state, told) => {
  const { url } = await answering([state], status);
  const failed = drain(url);
  await expect(failed).rejects.toThrow(UsageError);
  await expect(failed).rejects.toThrow(told);
});

test('an answer that breaks off is told in one line', async () => {
  const { url } = await breakingOff();
  const failed = drain(url);
  await expect(failed).rejects.toThrow(UsageError);
  await expect(failed).rejects.toThrow(`${url}: `);
});

test.each([
  ['is not there', join(import.meta.dirname, 'no-such-file.pem'), 'cannot be read'],
  ['is none', import.meta.filename, 'holds no certificate'],
])('a file of CAs that %s is told in one line', async (_how, file, told) => {
  const failed = drain('https://127.0.0.1:1', '--ca', file);
  await expect(failed).rejects.toThrow(UsageError);
  await expect(failed).rejects.toThrow(told);
});
