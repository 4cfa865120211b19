// A real engine on this machine: whether it can run here, and how it gets onto it where it is not installed yet.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { inspectMachine, installFolder, missingFrom } from './requirements.ts';

/** Folder of the installed engine; null where this machine cannot have one, which is said. */
export function prepareEngine(
  out: (line: string) => void,
  err: (line: string) => void,
): string | null {
  const folder = installFolder();
  const missing = missingFrom(inspectMachine(folder));
  for (const line of missing) err(`cannot run real engines here: ${line}`);
  if (missing.length > 0) return null;
  out(`engine: ${folder}`);
  // A program that answers on stdout alone must not find an installer's words there.
  const script = join(import.meta.dirname, 'install.sh');
  const done = spawnSync(script, [folder], { stdio: ['ignore', process.stderr, process.stderr] });
  if (done.status === 0) return folder;
  err('the engine could not be installed');
  return null;
}
