import { expect, test } from 'vitest';
import { SaidLately } from './said-lately.ts';

test('the same words are due once a minute, others beside them', () => {
  const said = new SaidLately();
  const due = [
    said.due('a', 0),
    said.due('a', 59_999),
    said.due('b', 59_999),
    said.due('a', 60_000),
    said.due('a', 119_999),
  ];
  expect(due).toEqual([true, false, true, true, false]);
});

test('of ever new words no more are kept than a thousand: some come sooner', () => {
  const said = new SaidLately();
  said.due('first', 0);
  for (let k = 0; k < 1_023; k += 1) expect(said.due(`w${k}`, 1)).toBe(true);
  expect(said.due('first', 2)).toBe(false);
  expect(said.due('one more', 2)).toBe(true);
  expect(said.due('first', 3)).toBe(true);
  expect(said.due('one more', 3)).toBe(false);
});
