// Who is compared: what people put before engines otherwise, started with the settings that its users would give it, and
// Spillway. Each is started afresh for every cell, and stands before the same two engines.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startGroup, type ProcessGroup } from '../../test/engines/process-group.ts';
import { waitFor } from '../../test/engines/wait.ts';
import { freePorts } from '../../test/free-ports.ts';
import { nginxConfig } from '../nginx-config.ts';
import { peerCommand, PEERS, preparePeer, type PeerName } from '../peers.ts';
import { versionOf } from '../proxy/plain-arms.ts';
import { productRevision } from './revision.ts';

const START_MS = 60_000;

export interface ArmPlace {
  /** For its files and logs; it exists. */
  readonly folder: string;
  readonly engineUrls: readonly string[];
  /** Path of the `spillway` that is measured. */
  readonly spillway: string;
  /** Settings of its routers, `path=value`; of experiments. */
  readonly settings: readonly string[];
}

export interface RunningArm {
  /** Where clients may connect. */
  readonly doors: readonly string[];
  readonly routers: readonly ProcessGroup[];
  readonly agents: readonly ProcessGroup[];
  /** Where routers wrote a line for each request; none of others. */
  readonly requestLogs: readonly string[];
  /** Where routers tell their status; none of others. */
  readonly admins: readonly string[];
  stop(): Promise<void>;
}

export interface Arm {
  readonly name: string;
  readonly about: string;
  /** Ours: the one that is compared, or another form of it. */
  readonly spillway: boolean;
  /** What of it a result depends on. */
  revision(): string;
  /** Installs what is missing; says why it cannot run here, else null. */
  prepare(say: (line: string) => void): string | null;
  start(place: ArmPlace): Promise<RunningArm>;
}

export const ARMS: readonly Arm[] = [
  nginx('nginx-rr', 'nginx, round robin'),
  nginx('nginx-hash', 'nginx, hash of a session header', 'hash $http_x_session_id consistent'),
  peer('vllm-router'),
  peer('smg'),
  spillway('spillway', 1),
  spillway('spillway-2', 2),
];

function nginx(name: string, about: string, choice?: string): Arm {
  return {
    name,
    about,
    spillway: false,
    revision: () => `${versionOf('nginx')} ${choice ?? 'round robin'}`,
    prepare: () => (versionOf('nginx') === null ? 'nginx (apt-get install nginx-light)' : null),
    async start({ folder, engineUrls }) {
      const [port] = await freePorts(1);
      const config = join(folder, 'nginx.conf');
      const replicas = engineUrls.map((url) => Number(new URL(url).port));
      const place = { folder, port: port!, replicas, ...(choice === undefined ? {} : { choice }) };
      writeFileSync(config, nginxConfig(place));
      const command = ['nginx', '-p', folder, '-c', config];
      return proxy(folder, { port: port!, command, ready: answersModels });
    },
  };
}

function peer(name: PeerName): Arm {
  return {
    name,
    about: `${name} ${PEERS[name].version}, cache_aware`,
    spillway: false,
    revision: () => {
      const place = { port: 0, metricsPort: 0, workerUrls: [], policy: 'cache_aware' } as const;
      return [PEERS[name].version, ...PEERS[name].flags(place)].join(' ');
    },
    prepare: (say) => preparePeer(name, say),
    async start({ folder, engineUrls }) {
      const [port, metricsPort] = await freePorts(2);
      const place = { port: port!, metricsPort: metricsPort!, workerUrls: engineUrls };
      const command = peerCommand(name, { ...place, policy: 'cache_aware' });
      const workers = async (url: string): Promise<boolean> =>
        (await workersOf(url)) === engineUrls.length;
      return proxy(folder, { port: port!, command, ready: workers });
    },
  };
}

interface Proxy {
  readonly port: number;
  readonly command: readonly string[];
  readonly ready: (url: string) => Promise<boolean>;
}

/** A proxy of one process. */
async function proxy(folder: string, { port, command, ready }: Proxy): Promise<RunningArm> {
  const [program = '', ...args] = command;
  const group = startGroup({ command: program, args, logPath: join(folder, 'proxy.log') });
  const url = `http://127.0.0.1:${port}`;
  await untilStarted([group], () => ready(url));
  return {
    doors: [url],
    routers: [group],
    agents: [],
    requestLogs: [],
    admins: [],
    stop: () => group.stop(2_000),
  };
}

/** So many routers, and one agent beside the engines that links to all of them. */
function spillway(name: string, count: number): Arm {
  return {
    name,
    about: count === 1 ? 'Spillway' : `Spillway, ${count} routers that share the load`,
    spillway: true,
    revision: productRevision,
    prepare: () => null,
    async start(place) {
      const { engineUrls } = place;
      const routers = await Promise.all(
        Array.from({ length: count }, (_, index) => router(place, `router-${index}.log`)),
      );
      const agent = await agentOf(place, routers);
      const groups = routers.map(({ group }) => group);
      await untilStarted([...groups, agent], async () => {
        const ready = await Promise.all(routers.map(({ admin }) => readyReplicas(admin)));
        return ready.every((replicas) => replicas === engineUrls.length);
      });
      return {
        doors: routers.map(({ door }) => door),
        routers: groups,
        agents: [agent],
        requestLogs: routers.map(({ logPath }) => logPath),
        admins: routers.map(({ admin }) => admin),
        stop: async () => {
          await Promise.all([...groups, agent].map((group) => group.stop(3_000)));
        },
      };
    },
  };
}

interface Router {
  readonly group: ProcessGroup;
  readonly door: string;
  readonly links: string;
  readonly admin: string;
  readonly logPath: string;
}

async function router(place: ArmPlace, log: string): Promise<Router> {
  const { folder, spillway: command, settings } = place;
  const logPath = join(folder, log);
  const [clients, links, admin] = await freePorts(3);
  const group = startGroup({
    command,
    args: [
      ...['router', '--listen', `127.0.0.1:${clients}`, '--links', `127.0.0.1:${links}`],
      ...['--admin', `127.0.0.1:${admin}`, '--log-format', 'json'],
      ...settings.flatMap((setting) => ['--set', setting]),
    ],
    logPath,
  });
  return {
    group,
    door: `http://127.0.0.1:${clients}`,
    links: `ws://127.0.0.1:${links}`,
    admin: `http://127.0.0.1:${admin}`,
    logPath,
  };
}

async function agentOf(
  { folder, engineUrls, spillway: command }: ArmPlace,
  routers: readonly Router[],
): Promise<ProcessGroup> {
  const [own] = await freePorts(1);
  return startGroup({
    command,
    args: [
      ...['agent', '--listen', `127.0.0.1:${own}`, '--log-format', 'json'],
      ...routers.flatMap(({ links }) => ['--router', links]),
      ...engineUrls.flatMap((url) => ['--engine', url]),
    ],
    logPath: join(folder, 'agent.log'),
  });
}

async function untilStarted(
  groups: readonly ProcessGroup[],
  ready: () => Promise<boolean>,
): Promise<void> {
  await waitFor({ what: 'the arm is ready', limitMs: START_MS }, async () => {
    const ended = groups.find((group) => group.ended() !== null)?.ended();
    if (ended !== undefined) throw new Error(`the arm ended: ${String(ended)}`);
    return (await ready()) ? true : null;
  });
}

async function readyReplicas(admin: string): Promise<number> {
  const status = (await json(`${admin}/status`)) as { pools: { ready: number }[] } | null;
  return status?.pools.reduce((total, pool) => total + pool.ready, 0) ?? 0;
}

async function workersOf(url: string): Promise<number> {
  const workers = (await json(`${url}/workers`)) as { total?: number } | null;
  return workers?.total ?? 0;
}

async function answersModels(url: string): Promise<boolean> {
  return (await json(`${url}/v1/models`)) !== null;
}

/** Null where it does not answer. */
async function json(url: string): Promise<unknown> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}
