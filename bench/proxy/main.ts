// `npm run bench:proxy`: what the router costs beside nginx, HAProxy and other routers, and what each of its parts adds.
//
// Each arm alone on core 0; backend, load and agents on core 1. CPU of an arm's whole process group over completed requests,
// as the median of its ratios to nginx in the same group of blocks. Absolute figures are this machine's and this minute's.

import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { VERSION } from '../../shared/runtime/version.ts';
import { killAllGroups, killGroupsOnExit } from '../../test/engines/process-group.ts';
import { freePorts } from '../../test/free-ports.ts';
import { PEERS } from '../peers.ts';
import { verdictLine, verdicts } from './aims.ts';
import {
  directArm,
  pinLoad,
  startReplicas,
  type Arm,
  type ArmPlace,
  type RunningArm,
} from './arms.ts';
import { blockMs, CELLS, TWO_TIERS_CELLS, type Cell, type TwoTiersCell } from './cells.ts';
import { costCurve } from './curve.ts';
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
import {
  BRIEF_WARM_UP,
  QUICK_WARM_UP,
  WARM_UP,
  warmedLine,
  warmForCell,
  warmUp,
} from './warm-up.ts';

const LADDER: readonly Arm[] = [FORWARD, DECIDE, OBSERVED, SPILLWAY_ARM];
const EXTRAS = ['idle-1000', 'bodies-1m', 'writes-64', 'memory-100k', 'curve-64'] as const;
/** Arms between two blocks of nginx at most, and that run at a time: the machine drifts. */
const ARMS_A_SET = 4;
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
    // An arm that did not start would keep this process alive.
    killAllGroups();
    rmSync(folder, { recursive: true, force: true });
  }
  finish();
}

async function run(folder: string): Promise<void> {
  const [first, second] = (await freePorts(2)) as [number, number];
  const place: ArmPlace = { folder, replicas: [first, second] };
  pinLoad();
  await startReplicas(place);
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

/** A set of arms at a time: those that wait for their turn take some of the machine, too. */
async function ratios(
  place: ArmPlace,
  kinds: readonly Arm[],
  cells: readonly Cell[],
): Promise<void> {
  const nginx = await NGINX.start(place);
  say(`\nwarm-up (CPU µs of a stream, round by round)`);
  await warm(nginx);
  for (let from = 0; from < kinds.length; from += ARMS_A_SET) {
    const arms = await startSet(place, kinds.slice(from, from + ARMS_A_SET));
    for (const cell of cells) await runCell(cell, { nginx, arms, direct: directArm(place) });
    await Promise.all(arms.map((arm) => arm.stop()));
  }
  await nginx.stop();
}

async function startSet(place: ArmPlace, kinds: readonly Arm[]): Promise<RunningArm[]> {
  const arms: RunningArm[] = [];
  for (const kind of kinds) {
    const arm = await kind.start(place).catch((error: unknown) => {
      skipped.push(skippedLine(kind.name, String(error)));
      return null;
    });
    if (arm === null) continue;
    await warm(arm);
    arms.push(arm);
  }
  return arms;
}

async function warm(arm: RunningArm): Promise<void> {
  const quick = arm.name === NGINX.name ? BRIEF_WARM_UP : QUICK_WARM_UP;
  const warmed = await warmUp(arm, flags.quick ? quick : WARM_UP);
  say(warmedLine(warmed));
  const { seconds: warmS, streams, answers, costs } = warmed;
  const [first, last] = [costs[0] ?? 0, costs.at(-1) ?? 0];
  rows.push({
    ...{ cell: 'warm-up', arm: arm.name, warmS, streams, answers },
    ...{ cpuUsPerStreamFirst: first, cpuUsPerStreamLast: last, settled: Number(warmed.settled) },
  });
}

interface Arms {
  readonly nginx: RunningArm;
  readonly arms: readonly RunningArm[];
  readonly direct: RunningArm;
}

async function runCell(cell: Cell, { nginx, arms, direct }: Arms): Promise<void> {
  const forMs = blockMs(cell, flags.quick);
  say(`\n${cell.name}: ${cell.about}\n${tableHeader()}`);
  if (!flags.quick) for (const arm of [nginx, ...arms]) await warmForCell(arm, cell);
  const groups: Group[] = [];
  for (let group = 0; group < (flags.quick ? 1 : GROUPS); group += 1) {
    groups.push(
      await runGroup(arms.length, (turn) => {
        const arm = turn === 'direct' ? direct : turn === 'base' ? nginx : arms[turn]!;
        return measureBlock(arm, cell.shape, forMs);
      }),
    );
  }
  tellDirect(cell, groups);
  for (const [index, arm] of arms.entries()) tell(cell, arm.name, figuresOf(groups, index));
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
    'curve-64': () => costCurve(place),
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
