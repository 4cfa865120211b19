// What a second tier costs: a global router before a region's router, beside such a region's router alone.
//
//   spillway             client → the router's client listener → replica
//   spillway-two-tiers   client → global router → the region's tier listener → replica; signed contexts, reports, grants
//
// Both routers of the second arm stand on core 0, where every arm stands alone: they take turns on it and empty its caches
// for each other, which on two machines they would not, so that this tells too much rather than too little. CPU is of both
// together, over that of the one in the same groups of blocks. Every setting is the product's own.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { quantile } from '../../test/engines/quantile.ts';
import { freePorts } from '../../test/free-ports.ts';
import { TWO_TIERS_ARM } from './aims.ts';
import { directArm, HOST, logOf, pinned, startProxy, type Arm, type ArmPlace } from './arms.ts';
import type { RunningArm } from './arms.ts';
import { blockMs, JSON_16, WARM_STREAMS, type Cell } from './cells.ts';
import { cpuUs, figuresOf, runGroup, type Block, type Figures, type Group } from './compare.ts';
import type { Extra } from './extras.ts';
import { measureBlock } from './measure.ts';
import type { Row } from './report.ts';
import { SPILLWAY, SPILLWAY_ARM, startAgent } from './spillway-arms.ts';

export interface TwoTiersRun {
  readonly cells: readonly Cell[];
  readonly quick: boolean;
  readonly groups: number;
}

/** Starts both arms once for all cells. */
export async function twoTiers(place: ArmPlace, run: TwoTiersRun): Promise<Extra> {
  const one = await SPILLWAY_ARM.start(place);
  const two = await TWO_TIERS.start(place);
  for (const arm of [one, two]) await warmUp(arm, run.quick);
  const seen: Extra[] = [];
  for (const cell of run.cells) {
    const groups: Group[] = [];
    for (let group = 0; group < run.groups; group += 1) {
      groups.push(
        await runGroup(1, (turn) => {
          const arm = turn === 'direct' ? directArm(place) : turn === 'base' ? one : two;
          return measureBlock(arm, cell.shape, blockMs(cell, run.quick));
        }),
      );
    }
    seen.push(told(cell, groups));
  }
  await Promise.all([one.stop(), two.stop()]);
  return { lines: seen.flatMap(({ lines }) => lines), rows: seen.flatMap(({ rows }) => rows) };
}

/** Small requests until V8 has compiled what there is to compile: as many for one tier as for two, however long they take. */
const WARM_REQUESTS = { quick: 10_000, whole: 30_000 };
const WARM_BLOCK_MS = 2_000;
const WARM_BLOCKS_MAX = 30;

async function warmUp(arm: RunningArm, quick: boolean): Promise<void> {
  const wanted = quick ? WARM_REQUESTS.quick : WARM_REQUESTS.whole;
  let completed = 0;
  for (let block = 0; completed < wanted && block < WARM_BLOCKS_MAX; block += 1) {
    completed += (await measureBlock(arm, JSON_16, WARM_BLOCK_MS)).completed;
  }
  await measureBlock(arm, WARM_STREAMS, 2 * WARM_BLOCK_MS);
}

const TWO_TIERS: Arm = {
  name: TWO_TIERS_ARM,
  missing: () => null,
  async start(place) {
    const { folder } = place;
    const ports = await freePorts(7);
    const files = { global: join(folder, 'global.yaml'), region: join(folder, 'region.yaml') };
    const texts = configurations(ports);
    writeFileSync(files.global, texts.global);
    writeFileSync(files.region, texts.region);
    const [clients = 0, , , , links = 0] = ports;
    const logPath = logOf(`${TWO_TIERS_ARM}-region`, folder);
    const region = pinned(0, [SPILLWAY, 'router', '-f', files.region], { logPath });
    const agent = await startAgent(TWO_TIERS_ARM, place, links);
    const command = [SPILLWAY, 'global', '-f', files.global];
    // It answers once the region has told of its replicas.
    const global = await startProxy(TWO_TIERS_ARM, command, { port: clients, folder });
    return {
      ...global,
      behind: region,
      async stop() {
        await Promise.all([agent.stop(2_000), global.stop(), region.stop(2_000)]);
      },
    };
  },
};

const KEY = '{id: bench, secret: tier-secret-of-the-benchmark}';
const LINK_SECRET = 'link-secret-of-the-benchmark';

function configurations([
  clients,
  regions,
  admin,
  own,
  links,
  regionAdmin,
  tier,
]: readonly number[]) {
  const at = (port: number | undefined): string => `{listen: ${HOST}:${port}}`;
  const log = 'log: {format: json}';
  return {
    global: `${log}
regions:
  - {name: bench, zone: bench, baseUrl: http://${HOST}:${tier}, tierKey: ${KEY}, linkSecrets: [${LINK_SECRET}]}
global:
  clients: ${at(clients)}
  links: ${at(regions)}
  admin: ${at(admin)}
  affinitySecret: affinity-secret-of-the-benchmark
`,
    region: `${log}
region: bench
router:
  clients: ${at(own)}
  links: ${at(links)}
  admin: ${at(regionAdmin)}
  tier: {listen: ${HOST}:${tier}, keys: [${KEY}]}
  global: {urls: [ws://${HOST}:${regions}], secret: ${LINK_SECRET}}
`,
  };
}

function told(cell: Cell, groups: readonly Group[]): Extra {
  const one = figuresOf(groups, 'base');
  const two = figuresOf(groups, 0);
  const blocks = groups.flatMap(({ arms }) => arms[0] ?? []);
  const region = median(blocks.map(behindUs));
  const global = median(blocks.map((block) => cpuUs(block) - behindUs(block)));
  const [low, high] = [two.timesNginxMin, two.timesNginxMax].map((times) => times.toFixed(2));
  const times = `${two.timesNginx.toFixed(2)} × one tier (${low}–${high})`;
  const shares = `global ${global.toFixed(1)}, region ${region.toFixed(1)}`;
  return {
    lines: [
      `${cell.name}: ${cell.about}`,
      line('spillway', one, ''),
      line(TWO_TIERS_ARM, two, `${times}; ${shares}`),
    ],
    rows: [
      rowOf(cell, 'spillway', one, {}),
      rowOf(cell, TWO_TIERS_ARM, two, {
        ...{ timesOneTier: two.timesNginx, timesOneTierMin: two.timesNginxMin },
        ...{ timesOneTierMax: two.timesNginxMax, globalCpuUs: global, regionCpuUs: region },
      }),
    ],
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
  { name: cell }: Cell,
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
