// `npm run bench:proxy`: what the router costs beside nginx, HAProxy and other routers, and what each of its parts adds.
//
// Each arm alone on core 0; backend, load and agents on core 1. CPU of an arm's whole process group over completed requests,
// as the median of its ratios to nginx in the same group of blocks. Absolute figures are this machine's and this minute's.

import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { VERSION } from '../../shared/runtime/version.ts';
import { killGroupsOnExit } from '../../test/engines/process-group.ts';
import { freePorts } from '../../test/free-ports.ts';
import { PEERS } from '../peers.ts';
import { verdictLine, verdicts } from './aims.ts';
import {
  directArm,
  pinLoad,
  startBackend,
  type Arm,
  type ArmPlace,
  type RunningArm,
} from './arms.ts';
import {
  blockMs,
  CELLS,
  JSON_16,
  TWO_TIERS_CELLS,
  WARM_STREAMS,
  type Cell,
  type TwoTiersCell,
} from './cells.ts';
import { figuresOf, runGroup, ttft, type Group } from './compare.ts';
import {
  idleStreams,
  largeBodies,
  memoryOfPrompts,
  writesOfStreams,
  type Extra,
} from './extras.ts';
import { measureBlock } from './measure.ts';
import { PEER_ARMS } from './peer-arms.ts';
import { HAPROXY, NGINX, versionOf } from './plain-arms.ts';
import { exitCode, rowOf, skippedLine, tableHeader, tableLine, type Row } from './report.ts';
import { DECIDE, FORWARD, OBSERVED, SPILLWAY_ARM } from './spillway-arms.ts';
import { twoTiers } from './two-tiers.ts';

const LADDER: readonly Arm[] = [FORWARD, DECIDE, OBSERVED, SPILLWAY_ARM];
const EXTRAS = ['idle-1000', 'bodies-1m', 'writes-64', 'memory-100k'] as const;
/** Arms between two blocks of nginx at most: the machine drifts. */
const ARMS_A_GROUP = 4;
const GROUPS = 3;

const USAGE = `usage: npm run bench:proxy -- [--quick] [--peers] [--cell NAME…] [--arm NAME…] [--json] [--strict]

--quick: three cells, nginx and the whole router, within 50 s. --peers: other routers, too, installed where they are missing.
--cell, --arm: only these. --json: one object on stdout, the table on stderr.
--strict: what could not run, and an aim that is missed, makes the status 1.
Cells: ${[...[...CELLS, ...TWO_TIERS_CELLS].map(({ name }) => name), ...EXTRAS].join(', ')}
Arms: ${[HAPROXY, ...LADDER, ...PEER_ARMS].map(({ name }) => name).join(', ')}`;

const { values: flags } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    peers: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    strict: { type: 'boolean', default: false },
    cell: { type: 'string', multiple: true, default: [] },
    arm: { type: 'string', multiple: true, default: [] },
    help: { type: 'boolean', short: 'h', default: false },
  },
});

const say = (line: string): void => (flags.json ? console.error(line) : console.log(line));
const skipped: string[] = [];
const rows: Row[] = [];

if (flags.help) console.log(USAGE);
else {
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
  const [first, second] = (await freePorts(2)) as [number, number];
  const place: ArmPlace = { folder, replicas: [first, second] };
  pinLoad();
  const backend = await startBackend(place);
  const usable = wantedArms().filter((arm) => {
    const why = arm.missing(say);
    if (why !== null) skipped.push(skippedLine(arm.name, why));
    return why === null;
  });
  const cells = CELLS.filter(wanted);
  const why = NGINX.missing(say);
  if (why !== null) skipped.push(skippedLine(NGINX.name, `${why}; every ratio is to it`));
  else if (cells.length > 0) await ratios(place, usable, cells);
  if (!flags.quick) await extras(place, usable);
  const tiered = TWO_TIERS_CELLS.filter(wanted);
  if (tiered.length > 0 && usable.includes(SPILLWAY_ARM)) await secondTier(place, tiered);
  await backend.stop(1_000);
}

function wantedArms(): Arm[] {
  const all = flags.quick ? [SPILLWAY_ARM] : [HAPROXY, ...LADDER];
  const arms = flags.peers ? [...all, ...PEER_ARMS] : all;
  return flags.arm.length === 0 ? arms : arms.filter(({ name }) => flags.arm.includes(name));
}

function wanted(cell: { readonly name: string; readonly quick?: boolean }): boolean {
  if (flags.cell.length > 0) return flags.cell.includes(cell.name);
  return cell.quick === true || !flags.quick;
}

async function ratios(
  place: ArmPlace,
  kinds: readonly Arm[],
  cells: readonly Cell[],
): Promise<void> {
  const nginx = await NGINX.start(place);
  const arms: RunningArm[] = [];
  for (const kind of kinds) {
    const arm = await kind.start(place).catch((error: unknown) => {
      skipped.push(skippedLine(kind.name, String(error)));
      return null;
    });
    if (arm !== null) arms.push(arm);
  }
  for (const arm of [nginx, ...arms]) await warmUp(arm);
  for (const cell of cells) await runCell(cell, { nginx, arms, direct: directArm(place) });
  await Promise.all([nginx, ...arms].map((arm) => arm.stop()));
}

/** What is compiled late is compiled now; only what runs in Node has much of that. */
async function warmUp(arm: RunningArm): Promise<void> {
  const compiled = arm.name.startsWith('spillway');
  const forMs = compiled ? (flags.quick ? 4_000 : 9_000) : 1_000;
  await measureBlock(arm, JSON_16, forMs);
  await measureBlock(arm, WARM_STREAMS, forMs / 2);
}

interface Arms {
  readonly nginx: RunningArm;
  readonly arms: readonly RunningArm[];
  readonly direct: RunningArm;
}

async function runCell(cell: Cell, { nginx, arms, direct }: Arms): Promise<void> {
  const forMs = blockMs(cell, flags.quick);
  say(`\n${cell.name}: ${cell.about}\n${tableHeader()}`);
  for (let from = 0; from < arms.length; from += ARMS_A_GROUP) {
    const some = arms.slice(from, from + ARMS_A_GROUP);
    const groups: Group[] = [];
    for (let group = 0; group < (flags.quick ? 1 : GROUPS); group += 1) {
      groups.push(
        await runGroup(some.length, (turn) => {
          const arm = turn === 'direct' ? direct : turn === 'base' ? nginx : some[turn]!;
          return measureBlock(arm, cell.shape, forMs);
        }),
      );
    }
    if (from === 0) tellDirect(cell, groups);
    for (const [index, arm] of some.entries()) tell(cell, arm.name, figuresOf(groups, index));
  }
}

function tellDirect(cell: Cell, groups: readonly Group[]): void {
  const blocks = groups.map(({ direct }) => direct);
  const [p50, p99] = [ttft(blocks, 0.5), ttft(blocks, 0.99)];
  say(`  ${'direct'.padEnd(56)} (${p50.toFixed(2)}, ${p99.toFixed(1)})`);
  rows.push({ cell: cell.name, arm: 'direct', ttftMsP50: p50, ttftMsP99: p99 });
  tell(cell, 'nginx', figuresOf(groups, 'base'));
}

function tell(cell: Cell, arm: string, figures: ReturnType<typeof figuresOf>): void {
  say(tableLine(arm, figures));
  if (figures.wrong > 0) say(`  ${arm}: ${figures.wrong} wrong answers, ${figures.fault}`);
  rows.push(rowOf(cell.name, arm, figures));
}

async function extras(place: ArmPlace, arms: readonly Arm[]): Promise<void> {
  const whole = arms.includes(SPILLWAY_ARM);
  const aware = arms.filter(({ name }) => name.endsWith('cache-aware'));
  const looks: Readonly<Record<(typeof EXTRAS)[number], () => Promise<Extra>>> = {
    'idle-1000': () => idleStreams(place, NGINX.missing(say) === null ? [NGINX, ...arms] : arms),
    'bodies-1m': () => largeBodies(place),
    'writes-64': () => writesOfStreams(place),
    'memory-100k': () => memoryOfPrompts(place, aware, say),
  };
  for (const name of EXTRAS) {
    if (!wanted({ name }) || (!whole && name !== 'idle-1000')) continue;
    say(`\n${name}`);
    await tellExtra(name, looks[name]());
  }
}

async function secondTier(place: ArmPlace, cells: readonly TwoTiersCell[]): Promise<void> {
  const { quick } = flags;
  say('\ntwo-tiers');
  await tellExtra('two-tiers', twoTiers(place, { cells, quick, groups: quick ? 1 : GROUPS }));
}

async function tellExtra(name: string, looking: Promise<Extra>): Promise<void> {
  const seen = await looking.catch((error: unknown) => {
    skipped.push(skippedLine(name, String(error)));
    return { lines: [], rows: [] };
  });
  for (const line of seen.lines) say(`  ${line}`);
  rows.push(...seen.rows);
}

function finish(): void {
  const seen = verdicts(rows);
  const missed = seen.filter(({ met }) => !met).map(verdictLine);
  say('');
  for (const line of [...skipped, ...seen.map(verdictLine)]) say(line);
  const machine = machineWords();
  say(machine);
  const result = { version: VERSION, machine, rows, missed, skipped };
  if (flags.json) console.log(JSON.stringify(result));
  process.exitCode = exitCode(result, flags.strict);
}

function machineWords(): string {
  const programs = (['nginx', 'haproxy'] as const).map(
    (name) => `${name} ${versionOf(name) ?? 'none'}`,
  );
  const peers = flags.peers
    ? Object.entries(PEERS).map(([name, { version }]) => `${name} ${version}`)
    : [];
  const model = cpus()[0]?.model.trim() ?? 'unknown';
  return [`${cpus().length} × ${model}`, `Node ${process.version}`, ...programs, ...peers].join(
    ', ',
  );
}
