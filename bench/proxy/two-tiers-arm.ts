// A global router before a region's router, and on which core each of them stands. Both can change places while they run, so
// that each is looked at alone on core 0, compiled and filled as it is.

import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ProcessGroup } from '../../test/engines/process-group.ts';
import { freePorts } from '../../test/free-ports.ts';
import { TWO_TIERS_ARM } from './aims.ts';
import { HOST, logOf, pinned, startProxy, type ArmPlace, type RunningArm } from './arms.ts';
import { SPILLWAY, startAgent } from './spillway-arms.ts';

/** Both on core 0, or the one on core 0 and the other one beside the load on core 1. */
export type Placing = 'together' | 'global' | 'region';

export interface TwoTiersArm {
  /** What is measured there, and clients ask. */
  placed(placing: Placing): RunningArm;
  stop(): Promise<void>;
}

export async function startTwoTiers(place: ArmPlace): Promise<TwoTiersArm> {
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
  const front = await startProxy(TWO_TIERS_ARM, command, { port: clients, folder });
  const global = front.group as ProcessGroup;
  return {
    placed(placing) {
      put(global, placing === 'region' ? 1 : 0);
      put(region, placing === 'global' ? 1 : 0);
      if (placing === 'together') return { ...front, behind: region };
      return { ...front, group: placing === 'global' ? global : region };
    },
    async stop() {
      await Promise.all([agent.stop(2_000), front.stop(), region.stop(2_000)]);
    },
  };
}

/** All threads that it has; those to come inherit it. */
function put({ pid }: ProcessGroup, core: 0 | 1): void {
  const put = spawnSync('taskset', ['-a', '-c', '-p', String(core), String(pid)]);
  if (put.status !== 0) throw new Error(`a router cannot be put on core ${core} (taskset)`);
}

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
