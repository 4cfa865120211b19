// How the tests run: every `*.test.ts` beside what it checks, and those in `test/` that cross processes. Tests whose faults
// and deadlines mean something only on a machine with a core to spare run one file after another.
//
// Processes that tests start find their code compiled (`NODE_COMPILE_CACHE`): a start takes half the processor time, 0.25 s
// instead of 0.55 s, and there are hundreds.

import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

process.env['NODE_COMPILE_CACHE'] ??= join(import.meta.dirname, 'node_modules/.cache/spillway');

const PROCESSES = ['test/e2e/**/*.test.ts'];
// Commands that start and end: two files at a time.
const COMMANDS = ['bin/**/*.test.ts'];
// An engine or a small region each, which mostly waits: two files at a time.
const CONFORMANCE = ['test/conformance/**/*.test.ts', 'test/clients/**/*.test.ts'];

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
          exclude: ['node_modules/**', ...PROCESSES, ...COMMANDS, ...CONFORMANCE],
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'processes',
          include: PROCESSES,
          globalSetup: ['test/compile-cache.ts'],
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'commands',
          include: COMMANDS,
          globalSetup: ['test/compile-cache.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 2 },
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
