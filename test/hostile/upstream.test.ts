// Whatever an engine answers, its client gets an answer or an error in bounded time, never half of one that looks whole, and
// nothing of it stays.

import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { untilError } from '../e2e/broken-answer.ts';
import {
  answerOf,
  startScriptedEngine,
  streamOf,
  type ScriptedEngine,
} from '../e2e/scripted-engine.ts';
import { startHarness, type Harness } from '../e2e/shell-harness.ts';
import { until } from '../e2e/until.ts';
import { startRawEngine, type Play, type RawEngine } from './raw-engine.ts';
import { HOSTILE_ANSWERS } from './upstream-answers.ts';
import type { Attempt } from '../../router/regional/events.ts';
import type { Fate, HostileAnswer } from './upstream-plays.ts';

/**
 * ms that what waits for ever waits for. Only an attempt that must end by it has that deadline: any other may take longer on
 * a busy machine.
 */
const DEADLINE_MS = 150;
const CHAT = { model: 'm', messages: [{ role: 'user', content: 'a' }] };

let good: ScriptedEngine;
let bad: RawEngine;
let play: Play = () => undefined;
let harness: Harness;
beforeAll(async () => {
  good = await startScriptedEngine((received, response) =>
    String(received.body).includes('"stream":true')
      ? streamOf('good')(received, response)
      : answerOf('good')(received, response),
  );
  bad = await startRawEngine((socket, played) => play(socket, played));
  harness = await startHarness([]);
});
afterAll(async () => {
  await harness.close();
  await good.close();
  await bad.close();
});

const ask = async (stream: boolean) => {
  const answer = await request(`${harness.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(stream ? { ...CHAT, stream } : CHAT),
  });
  return {
    status: answer.statusCode,
    headers: answer.headers,
    text: await untilError(answer.body),
  };
};

/** How the first attempt ended. */
function firstEnd(): string | null {
  const ended = harness.core.events.find((event) => event.kind === 'attemptEnded');
  if (ended?.kind !== 'attemptEnded') return null;
  return ended.result.kind === 'serverFault' ? ended.result.cause : ended.result.kind;
}

async function nothingLeft(): Promise<void> {
  await until(() => harness.shell.requests.openRequests === 0);
  expect(harness.core.leaseCount).toBe(0);
  expect(harness.shell.requests.budget.heldBytes).toBe(0);
  await until(() => bad.sockets() === 0, { says: () => `${bad.sockets()} connections` });
  harness.core.urls = [good.url];
  const { status, text } = await ask(false);
  expect([status, text]).toEqual([200, expect.stringContaining('good')]);
  expect(harness.lines.filter(({ msg }) => msg === 'bug')).toEqual([]);
}

function deadlineOf(fate: Fate): Partial<Attempt> {
  const cause = 'cause' in fate ? fate.cause : null;
  if (cause === 'first_token_timeout') return { firstTokenTimeoutMs: DEADLINE_MS };
  return cause === 'stall' ? { stallTimeoutMs: DEADLINE_MS } : {};
}

async function answered({ stream, fate, ...entry }: HostileAnswer): Promise<void> {
  play = entry.play;
  harness.core.events.length = 0;
  harness.core.urls = [bad.url, good.url];
  harness.core.firstAttemptOptions = deadlineOf(fate);
  const { status, headers, text } = await ask(stream);
  harness.core.firstAttemptOptions = {};
  expect(headers['set-cookie'] ?? headers['location'] ?? headers['server'] ?? null).toBe(null);
  expect(headers['content-type']).toMatch(/^application\/json|^text\/event-stream/i);
  switch (fate.kind) {
    case 'failover':
      expect(firstEnd()).toBe(fate.cause);
      expect([status, text]).toEqual([200, expect.stringContaining('good')]);
      expect(headers['x-spillway-attempts']).toBe('2');
      break;
    case 'passes':
      expect([status, text]).toEqual([200, fate.body]);
      expect(firstEnd()).toBe('complete');
      break;
    case 'interrupted':
      expect(firstEnd()).toBe(fate.cause);
      expect(text.startsWith(`${fate.body}data: {"error":`)).toBe(true);
      expect(text.endsWith('"code":"stream_interrupted"}}\n\n')).toBe(true);
      break;
    case 'refused': {
      expect(status).toBe(fate.status);
      const { error } = JSON.parse(text) as { error: Record<string, unknown> };
      expect(error['code']).toBe(fate.code);
      expect(error['message']).toEqual(expect.any(String));
      expect(firstEnd()).toBe('clientError');
    }
  }
  await nothingLeft();
}

describe.each([true, false])('an engine that answers (stream: %s)', (streamed) => {
  const list = HOSTILE_ANSWERS.filter(({ stream }) => stream === streamed);
  test.each(list.map((entry) => [entry.name, entry] as const))('%s', (_name, entry) =>
    answered(entry),
  );
});
