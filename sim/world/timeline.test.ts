import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Timeline } from './timeline.ts';

test('tasks run by instant, then in the order of their planning, whatever the heap looks like', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 200 }), (instants) => {
      const timeline = new Timeline();
      const ran: [number, number][] = [];
      instants.forEach((atMs, index) => timeline.at(atMs, () => ran.push([atMs, index])));
      while (timeline.step(100));
      const expected = instants
        .map((atMs, index): [number, number] => [atMs, index])
        .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      expect(ran).toEqual(expected);
    }),
  );
});

test('a cancelled task does not run and a task planned in the past runs now', () => {
  const timeline = new Timeline();
  const ran: string[] = [];
  const cancelled = timeline.at(5, () => ran.push('cancelled'));
  timeline.at(10, () => timeline.at(3, () => ran.push(`late at ${timeline.nowMs}`)));
  timeline.cancel(cancelled);
  while (timeline.step(10));
  expect(ran).toEqual(['late at 10']);
});
