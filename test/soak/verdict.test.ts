import { describe, expect, test } from 'vitest';
import { dropOld, faultOf, type Breaks, type Ended, type Window } from './verdict.ts';

function ended(end: Ended['end'], router = 0): Ended {
  return { kind: 'long', router, end, fromMs: 1_000, toMs: 2_000, detail: 'said' };
}

function window(breaks: Breaks, fromMs = 1_500, toMs: number | null = 1_600): Window {
  return { name: 'it', breaks, fromMs, toMs };
}

const ENDS = ['interrupted', 'refused', 'unconnected', 'hung', 'wrong'] as const;

describe('a fault is', () => {
  test.each([
    ['nothing is broken', [], []],
    ['links are', [window('nothing')], []],
    ['engines are', [window('engines')], ['interrupted']],
    ['its router is', [window({ router: 0 })], ['interrupted', 'unconnected']],
    ['another router is', [window({ router: 1 })], []],
    ['engines were, before it began', [window('engines', 500, 999)], []],
    ['engines were, after its end', [window('engines', 2_001, null)], []],
    ['engines still are', [window('engines', 500, null)], ['interrupted']],
  ] as const)('while %s, all but %o', (_, windows, excused) => {
    const free = ENDS.filter((end) => faultOf(ended(end), windows) === null);
    expect(free).toEqual([...excused]);
  });

  test('never a complete answer', () => {
    expect(faultOf(ended('complete'), [])).toBeNull();
  });

  test('said with what was broken meanwhile', () => {
    expect(faultOf(ended('refused'), [window('engines')])).toBe(
      'refused (long, router 0, during it): said',
    );
  });
});

test('what is long over is forgotten, what lasts is not', () => {
  const windows = [window('engines', 0, 10), window('engines', 5, null), window('engines', 6, 90)];
  dropOld(windows, 50);
  expect(windows.map(({ fromMs }) => fromMs)).toEqual([5, 6]);
});
