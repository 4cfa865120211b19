// What a second tier costs: a global router before a region's router, beside such a region's router alone.
//
//   spillway             client → the router's client listener → replica
//   spillway-two-tiers   client → global router → the region's tier listener → replica; signed contexts, reports, grants
//
//   apart     each tier stands on core 0 while the other one is beside the load, and what both cost there is added up: in
//             production each has a machine, and what it costs is what it costs there. One tier alone gets as many requests
//             a second: at twice the rate, as it reaches when nothing else slows it, a request costs less
//   one core  both on core 0, as fast as each arm goes: what who runs both on one core gets. They take turns on it and
//             empty its caches for each other
//
// CPU is over that of one tier in the same groups of blocks. Every setting is the product's own.

import { quantile } from '../../test/engines/quantile.ts';
import { TWO_TIERS_ARM } from './aims.ts';
import { directArm, type ArmPlace, type RunningArm } from './arms.ts';
import { blockMs, type TwoTiersCell } from './cells.ts';
import {
  cpuUs,
  figuresOf,
  runGroup,
  timesTogether,
  type Block,
  type Figures,
  type Group,
  type Times,
} from './compare.ts';
import type { Extra } from './extras.ts';
import { measureBlock } from './measure.ts';
import type { Row } from './report.ts';
import { SPILLWAY_ARM } from './spillway-arms.ts';
import { QUICK_WARM_UP, WARM_UP, warmedLine, warmUp, type Warmed } from './warm-up.ts';
import { startTwoTiers, type Placing, type TwoTiersArm } from './two-tiers-arm.ts';

export interface TwoTiersRun {
  readonly cells: readonly TwoTiersCell[];
  readonly quick: boolean;
  readonly groups: number;
}

interface Arms {
  readonly direct: RunningArm;
  readonly one: RunningArm;
  readonly two: TwoTiersArm;
}

const APART: readonly Placing[] = ['global', 'region'];
const TOGETHER: readonly Placing[] = ['together'];

/** Starts both arms once for all cells. */
export async function twoTiers(place: ArmPlace, run: TwoTiersRun): Promise<Extra> {
  const one = await SPILLWAY_ARM.start(place);
  const two = await startTwoTiers(place);
  const warmed: Warmed[] = [];
  for (const arm of [one, two.placed('together')]) {
    warmed.push(await warmUp(arm, run.quick ? QUICK_WARM_UP : WARM_UP));
  }
  const seen: Extra[] = [{ lines: warmed.map(warmedLine), rows: [] }];
  for (const cell of run.cells) {
    const groups: Group[] = [];
    for (let group = 0; group < run.groups; group += 1) {
      groups.push(await measured(cell, { direct: directArm(place), one, two }, run.quick));
    }
    seen.push(told(cell, groups));
  }
  await Promise.all([one.stop(), two.stop()]);
  return { lines: seen.flatMap(({ lines }) => lines), rows: seen.flatMap(({ rows }) => rows) };
}

function measured(cell: TwoTiersCell, arms: Arms, quick: boolean): Promise<Group> {
  const placings = cell.apart ? APART : TOGETHER;
  return runGroup(placings.length, (turn) => {
    const placed = (index: number): RunningArm => arms.two.placed(placings[index] ?? 'together');
    const arm = turn === 'direct' ? arms.direct : turn === 'base' ? arms.one : placed(turn);
    return measureBlock(arm, cell.shape, blockMs(cell, quick));
  });
}

/** What both tiers cost of a request, CPU µs. */
interface Shares {
  readonly times: Times;
  readonly globalUs: number;
  readonly regionUs: number;
}

function told(cell: TwoTiersCell, groups: readonly Group[]): Extra {
  const one = figuresOf(groups, 'base');
  const two = figuresOf(groups, 0);
  const shares = cell.apart ? sharesApart(groups) : sharesTogether(groups);
  const { times, globalUs, regionUs } = shares;
  const cpuUsPerRequest = globalUs + regionUs;
  const [low, high] = [times.least, times.greatest].map((each) => each.toFixed(2));
  const words = `${times.median.toFixed(2)} × one tier (${low}–${high}); global ${globalUs.toFixed(1)}, region ${regionUs.toFixed(1)}`;
  const both = { ...two, cpuUsPerRequest, ...wrongOf(groups) };
  return {
    lines: [
      `${cell.name}: ${cell.about}`,
      line('spillway', one, ''),
      line(TWO_TIERS_ARM, both, words),
    ],
    rows: [
      rowOf(cell, 'spillway', one, {}),
      rowOf(cell, TWO_TIERS_ARM, both, {
        ...{ timesOneTier: times.median, timesOneTierMin: times.least },
        ...{ timesOneTierMax: times.greatest, globalCpuUs: globalUs, regionCpuUs: regionUs },
      }),
    ],
  };
}

function sharesApart(groups: readonly Group[]): Shares {
  const [globalUs, regionUs] = [0, 1].map((index) => figuresOf(groups, index).cpuUsPerRequest);
  return { times: timesTogether(groups, [0, 1]), globalUs: globalUs ?? 0, regionUs: regionUs ?? 0 };
}

function sharesTogether(groups: readonly Group[]): Shares {
  const blocks = groups.flatMap(({ arms }) => arms[0] ?? []);
  return {
    times: timesTogether(groups, [0]),
    globalUs: median(blocks.map((block) => cpuUs(block) - behindUs(block))),
    regionUs: median(blocks.map(behindUs)),
  };
}

/** Of every placing. */
function wrongOf(groups: readonly Group[]): Pick<Figures, 'wrong' | 'fault'> {
  const blocks = groups.flatMap(({ arms }) => arms.flat());
  return {
    wrong: blocks.reduce((sum, block) => sum + block.wrong, 0),
    fault: blocks.find(({ fault }) => fault !== null)?.fault ?? null,
  };
}

/** CPU µs a request of the tier behind. */
function behindUs({ cpuSBehind = 0, completed }: Block): number {
  return cpuUs({ cpuS: cpuSBehind, completed });
}

function line(arm: string, figures: Figures, more: string): string {
  const { cpuUsPerRequest, addedTtftMsP50, addedTtftMsP99, wrong, fault } = figures;
  const added = `${addedTtftMsP50.toFixed(2)}, ${addedTtftMsP99.toFixed(1)} ms`;
  const faults = wrong > 0 ? `; ${wrong} wrong answers, ${String(fault)}` : '';
  return `  ${arm.padEnd(20)} ${cpuUsPerRequest.toFixed(1).padStart(7)} µs, added TTFT ${added}${more === '' ? '' : `; ${more}`}${faults}`;
}

function rowOf(
  { name: cell }: TwoTiersCell,
  arm: string,
  figures: Figures,
  more: Readonly<Record<string, number>>,
): Row {
  const { cpuUsPerRequest, addedTtftMsP50, addedTtftMsP99, settling, requests, wrong } = figures;
  const own = { cpuUsPerRequest, addedTtftMsP50, addedTtftMsP99, settling, requests, wrong };
  return { cell, arm, ...own, ...more };
}

function median(values: readonly number[]): number {
  return quantile(values, 0.5) ?? Number.NaN;
}
