// `npm run bench:proxy`: what the router costs beside nginx and haproxy, and what each of its parts adds.
//
// Each arm alone on core 0; backend, load and agent on core 1. CPU of an arm's whole process group over completed requests,
// as the median of its ratios to nginx in the same ABBA group. Absolute figures are this machine's and this minute's.

import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { VERSION } from '../../shared/runtime/version.ts';
import { killGroupsOnExit } from '../../test/engines/process-group.ts';
import { waitFor } from '../../test/engines/wait.ts';
import { freePorts } from '../../test/free-ports.ts';
import {
  FORWARD,
  HAPROXY,
  NGINX,
  pinned,
  QUIET,
  SPILLWAY_ARM,
  type Arm,
  type ArmPlace,
  type RunningArm,
} from './arms.ts';
import { CELLS, JSON_16, type Cell } from './cells.ts';
import { compare, measureBlock, type Block, type Compared } from './measure.ts';
import { idleStreams, largeBodies, memoryOfPrompts, type Extra } from './extras.ts';

const USAGE = `usage: npm run bench:proxy -- [--quick] [--json] [--strict] [--cell NAME…]

--quick: three cells, nginx and the whole router, under a minute. --cell: only these.
--json: one object on stdout, the table on stderr. --strict: what could not run makes the status 1.
Cells: ${CELLS.map(({ name }) => name).join(', ')}, idle-1000, bodies-1m, memory-100k`;

interface Row {
  readonly cell: string;
  readonly arm: string;
  readonly [figure: string]: string | number;
}

const { values: flags } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    strict: { type: 'boolean', default: false },
    cell: { type: 'string', multiple: true, default: [] },
    help: { type: 'boolean', short: 'h', default: false },
  },
});

const say = (line: string): void => (flags.json ? console.error(line) : console.log(line));
const skipped: string[] = [];
const missed: string[] = [];
const rows: Row[] = [];

if (flags.help) {
  console.log(USAGE);
} else {
  killGroupsOnExit();
  const folder = mkdtempSync(join(tmpdir(), 'spillway-bench-'));
  try {
    await run(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  finish();
}

async function run(folder: string): Promise<void> {
  const ports = await freePorts(2);
  const place: ArmPlace = { folder, replicas: [ports[0]!, ports[1]!] };
  const script = join(import.meta.dirname, 'backend.ts');
  const backend = pinned(1, [process.execPath, script, ...ports.map(String)], {
    logPath: join(folder, 'backend.log'),
  });
  const direct: RunningArm = {
    name: 'direct',
    url: `http://127.0.0.1:${ports[0]}`,
    group: null,
    stop: async () => {},
  };
  await waitFor({ what: 'the backend answers', limitMs: 20_000 }, async () =>
    (await fetch(`${direct.url}/health`).catch(() => null)) === null ? null : true,
  );
  if (NGINX.missing() !== null) return skip(NGINX, 'every ratio is to it');
  const nginx = await NGINX.start(place);
  const arms = await startArms(place);
  for (const arm of [nginx, ...arms]) await warmUp(arm);
  const cells = CELLS.filter(wanted);
  for (const cell of cells) await runCell(cell, { nginx, arms, direct });
  await Promise.all([nginx, ...arms].map((arm) => arm.stop()));
  if (!flags.quick) await extras(place);
  await backend.stop(1_000);
}

async function startArms(place: ArmPlace): Promise<RunningArm[]> {
  const arms = flags.quick ? [SPILLWAY_ARM] : [HAPROXY, FORWARD, QUIET, SPILLWAY_ARM];
  const running: RunningArm[] = [];
  for (const arm of arms) {
    const missing = arm.missing();
    if (missing === null) running.push(await arm.start(place));
    else skip(arm, missing);
  }
  return running;
}

/** What is compiled late is compiled now. */
async function warmUp(arm: RunningArm): Promise<void> {
  const forMs = flags.quick ? 1_500 : 6_000;
  await measureBlock(arm, JSON_16, forMs);
  await measureBlock(arm, { ...JSON_16, chunks: 32, concurrency: 64, gapMs: 2 }, forMs / 2);
}

interface Arms {
  readonly nginx: RunningArm;
  readonly arms: readonly RunningArm[];
  readonly direct: RunningArm;
}

async function runCell(cell: Cell, { nginx, arms, direct }: Arms): Promise<void> {
  const plan = {
    shape: cell.shape,
    blockMs: flags.quick ? 1_500 : 4_000,
    groups: flags.quick ? 1 : 3,
  };
  say(`\n${cell.name}: ${cell.about}`);
  say(header());
  const alone = await measureBlock(direct, cell.shape, plan.blockMs);
  report(cell, 'direct', direct.name, alone, {
    ...alone,
    timesBase: 0,
    timesBaseMin: 0,
    timesBaseMax: 0,
  });
  let nginxShown = false;
  for (const arm of arms) {
    const { arm: ours, base } = await compare(arm, nginx, plan);
    if (!nginxShown) report(cell, 'base', nginx.name, alone, base);
    nginxShown = true;
    report(cell, 'arm', arm.name, alone, ours);
    if (arm.name === 'spillway' && cell.aim !== null && !(ours.timesBase <= cell.aim)) {
      missed.push(`${cell.name}: ${ours.timesBase.toFixed(2)} × nginx, aim ${cell.aim}`);
    }
  }
}

function header(): string {
  return `  ${'arm'.padEnd(18)} ${'CPU µs'.padStart(8)}  × nginx (min–max)     added TTFT p50, p99 ms`;
}

function report(
  cell: Cell,
  kind: 'direct' | 'base' | 'arm',
  name: string,
  alone: Block,
  seen: Compared,
): void {
  const addedP50 = seen.ttftMsP50 - alone.ttftMsP50;
  const addedP99 = seen.ttftMsP99 - alone.ttftMsP99;
  const times =
    kind === 'arm'
      ? `${seen.timesBase.toFixed(2)} (${seen.timesBaseMin.toFixed(2)}–${seen.timesBaseMax.toFixed(2)})`
      : kind === 'base'
        ? '1'
        : '';
  const added =
    kind === 'direct'
      ? `(${alone.ttftMsP50.toFixed(2)}, ${alone.ttftMsP99.toFixed(1)})`
      : `${addedP50.toFixed(2)}, ${addedP99.toFixed(1)}`;
  const cpu = kind === 'direct' ? '' : seen.cpuUs.toFixed(1);
  say(`  ${name.padEnd(18)} ${cpu.padStart(8)}  ${times.padEnd(20)}  ${added}`);
  if (seen.wrong > 0)
    missed.push(`${cell.name}, ${name}: ${seen.wrong} wrong answers: ${seen.fault}`);
  if (kind === 'direct') return;
  rows.push({
    cell: cell.name,
    arm: name,
    cpuUsPerRequest: seen.cpuUs,
    timesNginx: kind === 'base' ? 1 : seen.timesBase,
    timesNginxMin: kind === 'base' ? 1 : seen.timesBaseMin,
    timesNginxMax: kind === 'base' ? 1 : seen.timesBaseMax,
    addedTtftMsP50: addedP50,
    addedTtftMsP99: addedP99,
    wrong: seen.wrong,
  });
}

async function extras(place: ArmPlace): Promise<void> {
  const all: readonly (readonly [string, () => Promise<Extra>])[] = [
    ['idle-1000', () => idleStreams(place)],
    ['bodies-1m', () => largeBodies(place)],
    ['memory-100k', () => memoryOfPrompts(place)],
  ];
  for (const [name, look] of all) {
    if (!wanted({ name, quick: false })) continue;
    say(`\n${name}`);
    const { lines, rows: more, missed: failed } = await look();
    for (const line of lines) say(`  ${line}`);
    rows.push(...more.map((row) => ({ cell: name, ...row })));
    missed.push(...failed.map((line) => `${name}: ${line}`));
  }
}

function wanted(cell: { readonly name: string; readonly quick: boolean }): boolean {
  if (flags.cell.length > 0) return flags.cell.includes(cell.name);
  return cell.quick || !flags.quick;
}

function skip(arm: Arm, why: string): void {
  skipped.push(`SKIPPED ${arm.name}: ${why}`);
}

function finish(): void {
  for (const line of skipped) say(line);
  for (const line of missed) say(`MISSED ${line}`);
  if (flags.json) {
    const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, Node ${process.version}`;
    console.log(JSON.stringify({ version: VERSION, machine, rows, missed, skipped }));
  }
  const wrong = missed.some((line) => line.includes('wrong answers'));
  process.exitCode = wrong || (flags.strict && skipped.length + missed.length > 0) ? 1 : 0;
}
