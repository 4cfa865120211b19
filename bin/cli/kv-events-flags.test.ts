import { expect, test } from 'vitest';
import { kvEventsOf } from './kv-events-flags.ts';

test('none given: none for any engine', () => {
  expect(kvEventsOf({}, 2)).toEqual([null, null]);
});

test('one for each engine, replays beside them', () => {
  const kvEvents = ['tcp://*:1', 'tcp://*:2'];
  expect(kvEventsOf({ kvEvents }, 2)).toEqual([
    { endpoint: 'tcp://*:1', replay: null },
    { endpoint: 'tcp://*:2', replay: null },
  ]);
  expect(kvEventsOf({ kvEvents, kvEventsReplay: ['tcp://*:3', 'tcp://*:4'] }, 2)).toMatchObject([
    { replay: 'tcp://*:3' },
    { replay: 'tcp://*:4' },
  ]);
});

test.each([
  [{ kvEvents: ['tcp://*:1'] }, /2 × --engine and 1 × --kv-events: give one --kv-events/],
  [{ kvEventsReplay: ['a', 'b'] }, /--kv-events-replay needs --kv-events/],
  [{ kvEvents: ['a', 'b'], kvEventsReplay: ['c'] }, /give one --kv-events-replay/],
])('%o is refused', (flags, message) => {
  expect(() => kvEventsOf(flags, 2)).toThrow(message);
});
