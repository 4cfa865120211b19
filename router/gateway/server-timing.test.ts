import { expect, test } from 'vitest';
import { serverTiming, type ServerTimes } from './server-timing.ts';

const TIMES: ServerTimes = {
  arrivedMs: 100,
  readMs: 103,
  decideMs: 0.5,
  firstAttemptMs: 123.5,
  lastAttemptMs: 123.5,
  attempts: 1,
  nowMs: 323.5,
  firstToken: true,
};

test('the parts of a first token add up to its time', () => {
  expect(serverTiming(TIMES)).toBe(
    'read;dur=3, decide;dur=0.5, queue;dur=20, engine;dur=200, ttft;dur=223.5',
  );
});

test('failed attempts have their own part', () => {
  expect(serverTiming({ ...TIMES, attempts: 2, lastAttemptMs: 223.5 })).toBe(
    'read;dur=3, decide;dur=0.5, queue;dur=20, retry;dur=100, engine;dur=100, ttft;dur=223.5',
  );
});

test('a refusal has neither engine nor first token', () => {
  const refused = { firstAttemptMs: null, lastAttemptMs: null, attempts: 0, firstToken: false };
  expect(serverTiming({ ...TIMES, ...refused, decideMs: null })).toBe(
    'read;dur=3, queue;dur=220.5, total;dur=223.5',
  );
});

test('a clock that is read twice makes no negative time', () => {
  expect(serverTiming({ ...TIMES, firstAttemptMs: 103.2, lastAttemptMs: 103.2 })).toContain(
    'queue;dur=0,',
  );
});
