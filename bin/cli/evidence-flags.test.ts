import { expect, test } from 'vitest';
import { evidenceOf } from './evidence-flags.ts';

const NONE = { pidFile: null, unit: null, log: null };

test('none given: none for any engine', () => {
  expect(evidenceOf({}, 2)).toEqual([NONE, NONE]);
  expect(evidenceOf({}, 0)).toEqual([]);
});

test('one for each engine; an empty one is none', () => {
  const flags = { engineUnit: ['a.service', ''], engineLog: ['', '/var/log/b.log'] };
  expect(evidenceOf(flags, 2)).toEqual([
    { ...NONE, unit: 'a.service' },
    { ...NONE, log: '/var/log/b.log' },
  ]);
  expect(evidenceOf({ enginePidFile: ['/run/v.pid'] }, 1)).toEqual([
    { ...NONE, pidFile: '/run/v.pid' },
  ]);
});

test('another number is refused, and evidence of no engine', () => {
  expect(() => evidenceOf({ engineUnit: ['a'] }, 2)).toThrow(
    '2 × --engine and 1 × --engine-unit: give one for each --engine, in the same order',
  );
  expect(() => evidenceOf({ engineLog: ['a'] }, 0)).toThrow('--engine-log needs --engine');
});
