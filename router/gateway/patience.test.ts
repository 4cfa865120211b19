import { describe, expect, test } from 'vitest';
import { clientPatience, keepAliveAfter } from './patience.ts';

describe('what a client waits for', () => {
  test.each([
    ['Node, streamed', { 'x-stainless-timeout': '600' }, true, [599_750, null]],
    ['Node, not streamed', { 'x-stainless-timeout': '600' }, false, [599_750, null]],
    ['Python, streamed', { 'x-stainless-read-timeout': '1.5' }, true, [null, 1_500]],
    ['Python, not streamed', { 'x-stainless-read-timeout': '1.5' }, false, [1_350, null]],
    ['anybody', { 'x-spillway-deadline-ms': '2500' }, true, [2_250, null]],
    [
      'the least',
      { 'x-spillway-deadline-ms': '900', 'x-stainless-timeout': '2' },
      false,
      [810, null],
    ],
    ['no number', { 'x-stainless-timeout': 'soon' }, true, [null, null]],
    ['less than a second of Node', { 'x-stainless-timeout': '0' }, true, [null, null]],
    ['nothing', {}, true, [null, null]],
    ['an array', { 'x-stainless-timeout': ['5', '6'] }, true, [null, null]],
    ['no end', { 'x-stainless-timeout': '1e308' }, true, [86_399_750, null]],
    ['infinity', { 'x-spillway-deadline-ms': 'Infinity' }, true, [86_399_750, null]],
    ['the past', { 'x-stainless-timeout': '-Infinity' }, true, [null, null]],
  ])('%s', (_, headers, stream, [deadlineMs, silenceMs]) => {
    expect(clientPatience(headers, stream)).toMatchObject({ deadlineMs, silenceMs });
  });

  test.each([
    ['0', 0],
    ['2', 2],
    ['999999', 1_000],
    ['-1', null],
    ['1.5', null],
    ['9999999', null],
    [undefined, null],
  ])('after %s tries', (value, retries) => {
    expect(clientPatience({ 'x-stainless-retry-count': value }, true).retries).toBe(retries);
  });
});

test('a silence that the client bears shorter is filled sooner', () => {
  expect(keepAliveAfter(10_000, null)).toBe(10_000);
  expect(keepAliveAfter(10_000, 600_000)).toBe(10_000);
  expect(keepAliveAfter(10_000, 5_000)).toBe(4_000);
  expect(keepAliveAfter(10_000, 1)).toBe(100);
});
