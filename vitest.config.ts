// How the tests run: every `*.test.ts` beside what it checks, and those in `test/` that cross processes. Tests that
// start processes run last and one file after another, so that their deadlines mean something on two cores.

import { defineConfig } from 'vitest/config';

const PROCESSES = ['bin/**/*.test.ts', 'test/e2e/**/*.test.ts'];
// An engine each, which mostly waits: two files at a time.
const CONFORMANCE = ['test/conformance/**/*.test.ts'];

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
          exclude: ['node_modules/**', ...PROCESSES, ...CONFORMANCE],
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'processes',
          include: PROCESSES,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'conformance',
          include: CONFORMANCE,
          maxWorkers: 2,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
