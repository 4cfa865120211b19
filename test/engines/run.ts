// A real vLLM engine, and Spillway before two of them: `npm run test:engines`; `-- --smoke` for Spillway alone, the first
// third of it, in 3 minutes; `-- --only conformance` for the checks of the engine alone.
//
// Checks the machine, installs the engine outside the tree where it is missing, runs the checks of `test/conformance` on
// one engine, then starts two engines and `spillway up` before they have loaded, holds conversations, kills engine
// cores, and says what it saw. Everything that it started ends with it. Exit status: 0 all passed, 1 something failed, 2 this machine cannot run it.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { killGroupsOnExit } from './process-group.ts';
import { prepareEngine } from './prepare.ts';
import { beginRun, endRun, type Run, type RunPlace } from './stage.ts';
import { proveConformance } from './prove-conformance.ts';
import { provePlacement, proveReady, proveOverload, proveSmoke } from './prove-routing.ts';
import { provePython, provePythonOnReal } from './prove-python.ts';
import { proveDeaths, proveLeaving, proveNothingLeft } from './prove-faults.ts';
import { createVerdict, type Verdict } from './verdict.ts';

const USAGE =
  'usage: npm run test:engines [-- --smoke | --only conformance | --only routing] [-- --keep-logs]';

/** Checks of the engine itself, and Spillway before two of them. */
const STAGES = ['conformance', 'routing'] as const;
type Stage = (typeof STAGES)[number];

interface Options {
  readonly stages: readonly Stage[];
  readonly smoke: boolean;
  readonly keepLogs: boolean;
}

async function main(args: readonly string[]): Promise<number> {
  const options = parseOptions(args);
  if (options === null) {
    console.error(`cannot read ${args.join(' ')}; ${USAGE}`);
    return 2;
  }
  const install = prepareEngine(
    (line) => console.log(line),
    (line) => console.error(line),
  );
  if (install === null) return 2;

  killGroupsOnExit();
  const folder = mkdtempSync(join(tmpdir(), 'spillway-engines-'));
  console.log(`logs: ${folder}`);
  const verdict = createVerdict((line) => console.log(line));
  if (options.stages.includes('conformance')) {
    await guarded(verdict, () => proveConformance({ install, folder }, verdict));
  }
  if (options.stages.includes('routing')) {
    await guarded(verdict, () => provePython(verdict));
    await guarded(verdict, () => proveRouting({ install, folder, verdict }, options.smoke));
  }
  const passed = verdict.finish();
  if (passed && !options.keepLogs) rmSync(folder, { recursive: true });
  return passed ? 0 : 1;
}

function parseOptions(args: readonly string[]): Options | null {
  const only = args.indexOf('--only');
  const named = only === -1 ? undefined : STAGES.find((stage) => stage === args[only + 1]);
  if (only !== -1 && named === undefined) return null;
  const rest = args.filter((_, at) => only === -1 || (at !== only && at !== only + 1));
  if (rest.some((arg) => arg !== '--smoke' && arg !== '--keep-logs')) return null;
  const smoke = rest.includes('--smoke');
  const all: readonly Stage[] = smoke ? ['routing'] : STAGES;
  return {
    stages: named === undefined ? all : [named],
    smoke,
    keepLogs: rest.includes('--keep-logs'),
  };
}

/** A stage that breaks off is a failure of the run; the next one is made all the same. */
async function guarded(verdict: Verdict, stage: () => Promise<void>): Promise<void> {
  try {
    await stage();
  } catch (error) {
    verdict.check('the run goes to its end', false, String(error));
  }
}

async function proveRouting(place: RunPlace, smoke: boolean): Promise<void> {
  const run = await beginRun(place);
  try {
    await prove(run, smoke);
  } finally {
    await endRun(run);
  }
}

async function prove(run: Run, smoke: boolean): Promise<void> {
  await proveReady(run);
  await provePythonOnReal(run);
  if (smoke) await proveSmoke(run);
  else {
    await provePlacement(run);
    await proveOverload(run);
    await proveLeaving(run);
    await proveDeaths(run);
  }
  await proveNothingLeft(run);
}

process.exitCode = await main(process.argv.slice(2));
