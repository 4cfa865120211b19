// Fills the compile cache that vitest.config.ts names, once before the tests that start processes: one that is killed, as
// tests do, leaves nothing in it.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** What the commands load when they run. */
const ROOTS = [
  'bin/program.ts',
  'router/regional/start.ts',
  'agent/start.ts',
  'sim/engine/http/server.ts',
];

export function setup(): void {
  const urls = ROOTS.map((path) => pathToFileURL(join(import.meta.dirname, '..', path)).href);
  const loads = urls.map((url) => `await import(${JSON.stringify(url)});`).join('');
  // A root that does not load fails the tests that need it, and says why there.
  spawnSync(process.execPath, ['--input-type=module', '-e', `${loads} process.exit(0)`]);
}
