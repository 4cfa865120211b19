import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const MODULE = join(import.meta.dirname, 'collector-priority.ts');
const SCRIPT = `
import { getPriority } from 'node:os';
import { readdirSync, readFileSync } from 'node:fs';
const { putCollectorsBehind } = await import(${JSON.stringify(MODULE)});
const all = () => readdirSync('/proc/self/task').map((thread) => [
  readFileSync('/proc/self/task/' + thread + '/comm', 'utf8').trim(), getPriority(Number(thread)),
]);
const before = all();
const behind = putCollectorsBehind();
console.log(JSON.stringify({ behind, before, after: all() }));
`;

type Threads = [name: string, priority: number][];

// In a process of its own: a priority that was given away does not come back.
test.runIf(process.platform === 'linux')(
  'threads that collect go behind the main one, and no other thread does',
  () => {
    const flags = ['--v8-pool-size=2', '--input-type=module', '-e', SCRIPT];
    const { stdout } = spawnSync(process.execPath, flags, { encoding: 'utf8' });
    const seen = JSON.parse(stdout) as { behind: number; before: Threads; after: Threads };
    const base = seen.before.find(([name]) => !name.startsWith('V8Worker'))?.[1] ?? 0;
    expect(seen.behind).toBe(2);
    const collectors = seen.after.filter(([name]) => name.startsWith('V8Worker'));
    expect(collectors.map(([, priority]) => priority)).toEqual(
      [5, 5].map((p) => Math.max(p, base)),
    );
    const others = seen.after.filter(([name]) => !name.startsWith('V8Worker'));
    expect(others.every(([, priority]) => priority === base)).toBe(true);
  },
);
