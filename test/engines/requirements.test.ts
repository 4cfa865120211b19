import { expect, test } from 'vitest';
import { missingFrom, type Machine } from './requirements.ts';

const FIT: Machine = {
  platform: 'linux',
  arch: 'x64',
  cpuFlags: ['sse4_2', 'avx2'],
  cores: 2,
  memoryBytes: 16e9,
  diskFreeBytes: 20e9,
  python: [3, 11],
  pythonHasVenv: true,
  installed: false,
  hasTaskset: true,
};

test('a machine that fits misses nothing', () => {
  expect(missingFrom(FIT)).toEqual([]);
});

test('everything that is missing is said at once', () => {
  const poor: Machine = {
    ...FIT,
    cpuFlags: [],
    cores: 1,
    memoryBytes: 4e9,
    diskFreeBytes: 1e9,
    python: [3, 9],
    hasTaskset: false,
  };
  expect(missingFrom(poor)).toHaveLength(6);
});

test('another platform is all that is said about it', () => {
  expect(missingFrom({ ...FIT, platform: 'darwin', arch: 'arm64', cores: 1 })).toEqual([
    'x86-64 Linux is needed; this is darwin on arm64',
  ]);
});

test('python and the room for the installation matter only until it is done', () => {
  expect(missingFrom({ ...FIT, installed: true, python: null, diskFreeBytes: 1e9 })).toEqual([]);
  expect(missingFrom({ ...FIT, python: null })).toHaveLength(1);
  expect(missingFrom({ ...FIT, pythonHasVenv: false })).toHaveLength(1);
});
