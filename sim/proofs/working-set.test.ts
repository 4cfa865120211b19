// A small part of `npm run prove -- working-set`: two loads, one seed.

import { expect, test } from 'vitest';
import { overruns, pauses, sweep } from './working-set.ts';
import { rushes } from './working-set-rush.ts';

const said: string[] = [];
const print = (line: string): number => said.push(line);

test('just below capacity nobody waits; at twice as much turns go on as with the best bound, and without the rule collapse', () => {
  const { failures, rows } = sweep(
    { loads: [0.9, 2], statics: ['none', 0.9], seeds: [1], warmMs: 80_000, measureMs: 50_000 },
    print,
  );
  expect(failures).toEqual([]);
  expect(rows).toHaveLength(6);
}, 180_000);

test('where prefill serves far more than the cache would, nobody is kept out for those who rest', () => {
  expect(pauses({ print }, [1]).failures).toEqual([]);
}, 120_000);

test('of a rush that wants more KV than there is few wait, and turns go on as if there were enough', () => {
  expect(rushes({ print }, [1, 2, 3], ['small-kv']).failures).toEqual([]);
}, 120_000);

test('turns that wait long before slow engines keep their conversations alive: new ones do not push them out', () => {
  expect(rushes({ print }, [1], ['slow-engines']).failures).toEqual([]);
}, 120_000);

test('one and eight routers admit no more than the bound and one conversation each; alone or without the rule they would', () => {
  const { failures, rows } = overruns({ print }, [1], [1, 8]);
  expect(failures).toEqual([]);
  expect(rows.every(({ admissions }) => Number(admissions) > 50)).toBe(true);
}, 120_000);
