// No check of the list is left out of the tests on the simulated engine, and each has a name of its own.

import { readFileSync, readdirSync } from 'node:fs';
import { expect, it } from 'vitest';
import { RANK_THEMES, THEMES } from './list.ts';

const all = [...THEMES, ...RANK_THEMES];

it('every theme of the list is held by some test file', () => {
  const files = readdirSync(import.meta.dirname).filter((name) => name.endsWith('.test.ts'));
  const texts = files.map((name) => readFileSync(`${import.meta.dirname}/${name}`, 'utf8')).join();
  const held = [...texts.matchAll(/holdSimulated\(\[([^\]]*)\]/g)].flatMap(([, names = '']) =>
    names.split(',').map((name) => name.trim()),
  );
  expect(held.length).toBe(all.length);
  expect(new Set(held).size).toBe(held.length);
});

it('no two checks have one name', () => {
  const names = all.flatMap(({ checks }) => checks.map(({ name }) => name));
  expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
});
