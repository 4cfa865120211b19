// How the tests run: every `*.test.ts` beside what it checks, as many at a time as there are cores; then those that start
// processes or hold a small region, two files at a time. These wait more than they work (6 s of a core in 20 s), for
// conditions and not for times, so that each passes with both cores taken by others.
//
// Processes that tests start find their code compiled (`NODE_COMPILE_CACHE`): a start takes half the processor time, 0.25 s
// instead of 0.55 s, and there are hundreds.

import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

process.env['NODE_COMPILE_CACHE'] ??= join(import.meta.dirname, 'node_modules/.cache/spillway');

const PROCESSES = ['test/e2e/**/*.test.ts', 'bin/**/*.test.ts'];
const REGIONS = ['test/conformance/**/*.test.ts', 'test/clients/**/*.test.ts'];

export default defineConfig({
  test: {
    testTimeout: 30_000,
    hookTimeout: 30_000,
    setupFiles: ['test/seeded-properties.ts'],
    // What is polled for is a condition: a busy machine takes longer over it than the default second.
    expect: { poll: { timeout: 20_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['**/*.test.ts'],
          exclude: ['node_modules/**', ...PROCESSES, ...REGIONS],
          // The default leaves one core unused, of two that is half.
          maxWorkers: '100%',
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'processes',
          include: [...PROCESSES, ...REGIONS],
          globalSetup: ['test/compile-cache.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
