// Spillway before two real vLLM engines: `npm run test:engines`, or `-- --smoke` for the first third in 3 minutes.
//
// Checks the machine, installs the engine outside the tree where it is missing, starts two engines and `spillway up`
// before they have loaded, holds conversations, kills engine cores, and says what it saw. Everything that it started
// ends with it. Exit status: 0 all passed, 1 something failed, 2 this machine cannot run it.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { killGroupsOnExit } from './process-group.ts';
import { installFolder, inspectMachine, missingFrom } from './requirements.ts';
import { beginRun, endRun, type Run } from './stage.ts';
import { provePlacement, proveReady, proveOverload, proveSmoke } from './prove-routing.ts';
import { proveDeaths, proveLeaving, proveNothingLeft } from './prove-faults.ts';
import { createVerdict } from './verdict.ts';

const USAGE = 'usage: npm run test:engines [-- --smoke] [-- --keep-logs]';

async function main(args: readonly string[]): Promise<number> {
  const unknown = args.filter((arg) => arg !== '--smoke' && arg !== '--keep-logs');
  if (unknown.length > 0) {
    console.error(`unknown option ${unknown.join(' ')}; ${USAGE}`);
    return 2;
  }
  const install = installFolder();
  const missing = missingFrom(inspectMachine(install));
  for (const line of missing) console.error(`cannot run real engines here: ${line}`);
  if (missing.length > 0 || !installEngine(install)) return 2;

  killGroupsOnExit();
  const folder = mkdtempSync(join(tmpdir(), 'spillway-engines-'));
  console.log(`logs: ${folder}`);
  const verdict = createVerdict((line) => console.log(line));
  const run = await beginRun({ install, folder, verdict });
  try {
    await prove(run, args.includes('--smoke'));
  } catch (error) {
    verdict.check('the run goes to its end', false, String(error));
  } finally {
    await endRun(run);
  }
  const passed = verdict.finish();
  if (passed && !args.includes('--keep-logs')) rmSync(folder, { recursive: true });
  return passed ? 0 : 1;
}

async function prove(run: Run, smoke: boolean): Promise<void> {
  await proveReady(run);
  if (smoke) await proveSmoke(run);
  else {
    await provePlacement(run);
    await proveOverload(run);
    await proveLeaving(run);
    await proveDeaths(run);
  }
  await proveNothingLeft(run);
}

function installEngine(folder: string): boolean {
  console.log(`engine: ${folder}`);
  const done = spawnSync(join(import.meta.dirname, 'install.sh'), [folder], { stdio: 'inherit' });
  if (done.status !== 0) console.error('the engine could not be installed');
  return done.status === 0;
}

process.exitCode = await main(process.argv.slice(2));
