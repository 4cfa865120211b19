// The ladder: the product with parts of it really off, from the bare listener to the router as it is run. Each rung has
// what the one before it has; a step's price is the difference.
//
//   spillway-forward   the listener and the connections to engines, nothing between
//   spillway-decide    + parse, decision, index, scan of answers, deadlines; no log, no metrics, an agent that reports
//                        once a second
//   spillway-observed  + log (a line a request) and metrics
//   spillway           + an agent that reports as it does by default: everything on
//
// The router is on core 0; its agent stands beside the replicas, where agents are.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { waitFor } from '../../test/engines/wait.ts';
import type { ProcessGroup } from '../../test/engines/process-group.ts';
import { freePort, freePorts } from '../../test/free-ports.ts';
import {
  HOST,
  logOf,
  pinned,
  START_MS,
  startProxy,
  throwIfEnded,
  urlOf,
  type Arm,
  type ArmPlace,
  type RunningArm,
} from './arms.ts';
import { RARE_REPORTS_MS } from './product-options.ts';

export const SPILLWAY = join(import.meta.dirname, '..', '..', 'bin', 'spillway');

export const FORWARD: Arm = {
  name: 'spillway-forward',
  missing: () => null,
  async start({ folder, replicas }) {
    const port = await freePort();
    const script = join(import.meta.dirname, 'rung-forward.ts');
    const command = [process.execPath, script, String(port), ...replicas.map(String)];
    return startProxy('spillway-forward', command, { port, folder });
  },
};

export const DECIDE: Arm = {
  name: 'spillway-decide',
  missing: () => null,
  async start(place) {
    const name = 'spillway-decide';
    const [port, links] = (await freePorts(2)) as [number, number];
    const script = join(import.meta.dirname, 'rung-decide.ts');
    const logPath = logOf(name, place.folder);
    const router = pinned(0, [process.execPath, script, String(port), String(links)], { logPath });
    const agent = await startAgent(name, place, links);
    const { folder } = place;
    await ready({ name, folder, router }, async () =>
      readFileSync(logPath, 'utf8').includes('ready 2'),
    );
    return running(name, port, { router, agent });
  },
};

export const OBSERVED: Arm = {
  name: 'spillway-observed',
  missing: () => null,
  start: (place) =>
    spillway('spillway-observed', place, {
      flags: ['--set', `router.routing.minReportIntervalMs=${RARE_REPORTS_MS}`],
    }),
};

export const SPILLWAY_ARM: Arm = {
  name: 'spillway',
  missing: () => null,
  start: (place) => spillway('spillway', place),
};

export interface SpillwayChanges {
  readonly flags?: readonly string[];
  readonly env?: (clientsPort: number) => Readonly<Record<string, string>>;
}

/** The router as it is run: JSON lines in its log, everything else by default. */
export async function spillway(
  name: string,
  place: ArmPlace,
  { flags = [], env = () => ({}) }: SpillwayChanges = {},
): Promise<RunningArm> {
  const [clients, links, admin] = (await freePorts(3)) as [number, number, number];
  const router = pinned(
    0,
    [
      ...[SPILLWAY, 'router', '--listen', `${HOST}:${clients}`, '--links', `${HOST}:${links}`],
      ...['--admin', `${HOST}:${admin}`, '--log-format', 'json', ...flags],
    ],
    { logPath: logOf(name, place.folder), env: env(clients) },
  );
  const agent = await startAgent(name, place, links);
  await ready(
    { name, folder: place.folder, router },
    async () => (await readyReplicas(urlOf(admin))) === 2,
  );
  return running(name, clients, { router, agent });
}

export async function startAgent(
  name: string,
  { folder, replicas }: ArmPlace,
  links: number,
): Promise<ProcessGroup> {
  const own = await freePort();
  const command = [
    ...[SPILLWAY, 'agent', '--router', `ws://${HOST}:${links}`, '--listen', `${HOST}:${own}`],
    ...replicas.flatMap((port) => ['--engine', urlOf(port)]),
    ...['--engine-kind', 'vllm', '--log-format', 'json'],
  ];
  return pinned(1, command, { logPath: logOf(`${name}-agent`, folder) });
}

interface Starting {
  readonly name: string;
  readonly folder: string;
  readonly router: ProcessGroup;
}

async function ready(
  { name, folder, router }: Starting,
  look: () => Promise<boolean>,
): Promise<void> {
  await waitFor({ what: `${name}: two ready replicas`, limitMs: START_MS }, async () => {
    throwIfEnded(name, router, folder);
    return (await look()) ? true : null;
  });
}

function running(
  name: string,
  port: number,
  { router, agent }: { readonly router: ProcessGroup; readonly agent: ProcessGroup },
): RunningArm {
  return {
    name,
    url: urlOf(port),
    group: router,
    async stop() {
      await Promise.all([agent.stop(2_000), router.stop(2_000)]);
    },
  };
}

async function readyReplicas(admin: string): Promise<number> {
  try {
    const answer = await fetch(`${admin}/status`, { signal: AbortSignal.timeout(2_000) });
    const { pools } = (await answer.json()) as { pools: { ready: number }[] };
    return pools.reduce((total, pool) => total + pool.ready, 0);
  } catch {
    return 0;
  }
}
