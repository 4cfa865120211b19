// How the tests run: every `*.test.ts` beside what it checks, and those in `test/` that cross processes.
// Files of `test/e2e/` start processes and listen on sockets, hence the longer deadline.

import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['**/*.test.ts'],
    exclude: ['node_modules/**'],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    reporters: ['default'],
    fileParallelism: true,
  },
});
