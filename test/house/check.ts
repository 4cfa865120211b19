// `npm run check`: everything that a change must pass, cheapest first. Each step runs although an earlier one
// failed, so that one run shows all there is to repair. The tests run last, and where all is good their count is the
// last line.

import { spawnSync } from 'node:child_process';

interface Step {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
}

const STEPS: readonly Step[] = [
  { name: 'format', command: ['oxfmt', '--check'] },
  { name: 'lint', command: ['oxlint'] },
  { name: 'types', command: ['tsc', '--noEmit'] },
  { name: 'unused', command: ['knip'] },
  { name: 'docs', command: ['node', 'docs/generate.ts', '--check'] },
  { name: 'decide', command: ['node', 'bench/decide/main.ts', '--quick'] },
  { name: 'tests', command: ['node', 'test/run.ts'] },
];

const failed: string[] = [];
for (const { name, command } of STEPS) {
  const [program, ...args] = command;
  console.log(`== ${name}: ${command.join(' ')}`);
  const started = performance.now();
  const { status, error } = spawnSync(program, args, { stdio: 'inherit' });
  const seconds = ((performance.now() - started) / 1_000).toFixed(1);
  if (error !== undefined) console.error(error.message);
  if (status !== 0) failed.push(name);
  if (status === 0 && name === 'tests') continue;
  console.log(`== ${name} ${status === 0 ? 'good' : 'FAILED'} after ${seconds} s`);
}
if (failed.length > 0) console.log(`check: failed: ${failed.join(', ')}`);
process.exit(failed.length === 0 ? 0 : 1);
