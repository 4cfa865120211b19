// What is measured: each arm is a proxy before the same two replicas, started with the settings that its users would
// give it for streams, on core 0 alone. Everything else runs on core 1.

import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startGroup, type ProcessGroup } from '../../test/engines/process-group.ts';
import { waitFor } from '../../test/engines/wait.ts';
import { freePort, freePorts } from '../../test/free-ports.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const SPILLWAY = join(ROOT, 'bin', 'spillway');
const START_MS = 60_000;

export interface ArmPlace {
  readonly folder: string;
  /** Ports of the two replicas. */
  readonly replicas: readonly [number, number];
}

export interface RunningArm {
  readonly name: string;
  readonly url: string;
  /** Its processes' CPU and memory are the proxy's; null where there is none. */
  readonly group: ProcessGroup | null;
  stop(): Promise<void>;
}

export interface Arm {
  readonly name: string;
  readonly about: string;
  /** Why it cannot run here; null when it can. */
  missing(): string | null;
  start(place: ArmPlace): Promise<RunningArm>;
}

/** A command on one core, in a process group of its own. */
export function pinned(
  core: number,
  command: readonly string[],
  at: { readonly logPath: string; readonly env?: Readonly<Record<string, string>> },
): ProcessGroup {
  return startGroup({ command: 'taskset', args: ['-c', String(core), ...command], ...at });
}

export const NGINX: Arm = {
  name: 'nginx',
  about: 'Debian, one worker, no buffering, kept-alive upstreams',
  missing: () => missingProgram('nginx', 'apt-get install nginx-light'),
  async start({ folder, replicas }) {
    const port = await freePort();
    const config = file(folder, 'nginx.conf', nginxConfig(folder, port, replicas));
    return proxy('nginx', port, folder, ['nginx', '-p', folder, '-c', config]);
  },
};

export const HAPROXY: Arm = {
  name: 'haproxy',
  about: 'Debian, one thread, kept-alive upstreams',
  missing: () => missingProgram('haproxy', 'apt-get install haproxy'),
  async start({ folder, replicas }) {
    const port = await freePort();
    const config = file(folder, 'haproxy.cfg', haproxyConfig(port, replicas));
    return proxy('haproxy', port, folder, ['haproxy', '-db', '-f', config]);
  },
};

export const FORWARD: Arm = {
  name: 'spillway-forward',
  about: 'node:http in, one JSON.parse, undici dispatch out: what any router in Node pays',
  missing: () => null,
  async start({ folder, replicas }) {
    const port = await freePort();
    const forwarder = join(import.meta.dirname, 'forwarder.ts');
    const command = [process.execPath, forwarder, String(port), ...replicas.map(String)];
    return proxy('spillway-forward', port, folder, command);
  },
};

export const QUIET: Arm = {
  name: 'spillway-quiet',
  about: 'the router with decision, index and metrics, without request lines in its log',
  missing: () => null,
  start: (place) => spillway('spillway-quiet', place, ['--log-level', 'warn']),
};

export const SPILLWAY_ARM: Arm = {
  name: 'spillway',
  about: 'the router as it is run: decision, index, metrics, a log line each',
  missing: () => null,
  start: (place) => spillway('spillway', place, []),
};

/** The router on core 0; its agent beside the replicas, where agents are. */
export async function spillway(
  name: string,
  { folder, replicas }: ArmPlace,
  flags: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<RunningArm> {
  const [clients, links, admin, own] = await freePorts(4);
  const router = pinned(
    0,
    [
      ...[SPILLWAY, 'router', '--listen', `127.0.0.1:${clients}`],
      ...['--links', `127.0.0.1:${links}`, '--admin', `127.0.0.1:${admin}`],
      // The backend tells no gauges: nothing of it may be held back for that.
      ...['--set', 'router.routing.unknownConcurrency=4096'],
      ...['--log-format', 'json', ...flags],
    ],
    { logPath: join(folder, `${name}.log`), env },
  );
  const agent = pinned(
    1,
    [
      ...[SPILLWAY, 'agent', '--router', `ws://127.0.0.1:${links}`, '--listen', `127.0.0.1:${own}`],
      ...replicas.flatMap((port) => ['--engine', `http://127.0.0.1:${port}`]),
      ...['--engine-kind', 'generic', '--log-format', 'json'],
    ],
    { logPath: join(folder, `${name}-agent.log`) },
  );
  await waitFor({ what: `${name}: two ready replicas`, limitMs: START_MS }, async () => {
    if (router.ended() !== null) throw new Error(`${name} ended: ${String(router.ended())}`);
    return (await readyReplicas(`http://127.0.0.1:${admin}`)) === 2 ? true : null;
  });
  return {
    name,
    url: `http://127.0.0.1:${clients}`,
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

async function proxy(
  name: string,
  port: number,
  folder: string,
  command: readonly string[],
): Promise<RunningArm> {
  const group = pinned(0, command, { logPath: join(folder, `${name}.log`) });
  const url = `http://127.0.0.1:${port}`;
  await waitFor({ what: `${name} answers`, limitMs: START_MS }, async () => {
    if (group.ended() !== null) throw new Error(`${name} ended: ${String(group.ended())}`);
    return (await answers(`${url}/v1/models`)) ? true : null;
  });
  return { name, url, group, stop: () => group.stop(1_000) };
}

async function answers(url: string): Promise<boolean> {
  try {
    return (await fetch(url, { signal: AbortSignal.timeout(2_000) })).ok;
  } catch {
    return false;
  }
}

function missingProgram(program: string, install: string): string | null {
  return spawnSync(program, ['-v']).error === undefined ? null : `${program} (${install})`;
}

function file(folder: string, name: string, text: string): string {
  mkdirSync(folder, { recursive: true });
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

function nginxConfig(folder: string, port: number, replicas: readonly number[]): string {
  return `
worker_processes 1;
daemon off;
pid ${folder}/nginx.pid;
error_log ${folder}/nginx-error.log;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path ${folder}/nginx-body;
  proxy_temp_path ${folder}/nginx-proxy;
  fastcgi_temp_path ${folder}/nginx-fastcgi;
  uwsgi_temp_path ${folder}/nginx-uwsgi;
  scgi_temp_path ${folder}/nginx-scgi;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  keepalive_requests 1000000;
  upstream replicas {
${replicas.map((each) => `    server 127.0.0.1:${each};`).join('\n')}
    keepalive 1024;
    keepalive_requests 1000000;
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    tcp_nodelay on;
    location / {
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`;
}

function haproxyConfig(port: number, replicas: readonly number[]): string {
  return `
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 2s
  timeout client 600s
  timeout server 600s
  option http-keep-alive
  http-reuse always
frontend clients
  bind 127.0.0.1:${port}
  default_backend replicas
backend replicas
  balance roundrobin
${replicas.map((each, index) => `  server replica-${index} 127.0.0.1:${each}`).join('\n')}
`;
}
