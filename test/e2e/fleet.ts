// A small fleet of real processes: `bin/spillway` engines, agents and a router, on free ports. Everything is
// waited for by what it says or does, and everything started here is ended here, by its own process id.

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { request } from 'undici';
import type { RouterStatus } from '../../router/regional/status.ts';
import { until } from './until.ts';

const SPILLWAY = fileURLToPath(new URL('../../bin/spillway', import.meta.url));
const START_MS = 60_000;
const STATUS_MS = 25_000;
const STATUS_POLL_MS = 50;

export class Running {
  readonly lines: string[] = [];
  readonly child: ChildProcess;

  constructor(args: readonly string[]) {
    this.child = spawn(SPILLWAY, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => this.lines.push(line));
    }
  }

  /** The first match in what the process has said, waited for. */
  async says(pattern: RegExp): Promise<RegExpExecArray> {
    let match: RegExpExecArray | null = null;
    await until(
      () => {
        if (this.child.exitCode !== null) throw new Error(`ended: ${this.lines.join('\n')}`);
        for (const line of this.lines) match ??= pattern.exec(line);
        return match !== null;
      },
      { timeoutMs: START_MS },
    );
    if (match === null) throw new Error(`never said ${String(pattern)}`);
    return match;
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exit = once(this.child, 'exit');
    this.child.kill(signal);
    await exit;
  }
}

export interface RouterPorts {
  readonly clientsPort: number;
  readonly linksPort: number;
  readonly adminPort: number;
}

export interface EngineProcess {
  readonly running: Running;
  readonly port: number;
  readonly url: string;
  readonly replica: string;
  readonly model: string;
}

export class Fleet {
  private readonly started: Running[] = [];
  private readonly folder: string;
  router: Running | null = null;
  ports: RouterPorts = { clientsPort: 0, linksPort: 0, adminPort: 0 };

  private constructor(folder: string) {
    this.folder = folder;
  }

  static async open(config: string): Promise<Fleet> {
    const folder = await mkdtemp(join(tmpdir(), 'spillway-e2e-'));
    await writeFile(join(folder, 'fleet.yaml'), config);
    return new Fleet(folder);
  }

  get config(): string {
    return join(this.folder, 'fleet.yaml');
  }

  get clients(): string {
    return `http://127.0.0.1:${this.ports.clientsPort}`;
  }

  /** Starts the router, on the ports that it had before where there was one. */
  async startRouter(): Promise<void> {
    const { clientsPort, linksPort, adminPort } = this.ports;
    const router = this.start([
      'router',
      ...['--config', this.config],
      ...['--listen', `127.0.0.1:${clientsPort}`],
      ...['--links', `127.0.0.1:${linksPort}`],
      ...['--admin', `127.0.0.1:${adminPort}`],
    ]);
    const [line] = await router.says(/^.*"router listening".*$/);
    this.ports = JSON.parse(line) as RouterPorts;
    this.router = router;
  }

  async startEngine(model: string, port = 0, more: readonly string[] = []): Promise<EngineProcess> {
    const running = this.start([
      'engine-sim',
      ...['--port', String(port)],
      ...['--model', model],
      ...['--loading-ms', '100'],
      ...more,
    ]);
    const [, url = ''] = await running.says(/(http:\/\/127\.0\.0\.1:\d+)/);
    const bound = Number(new URL(url).port);
    return { running, port: bound, url, replica: `127.0.0.1:${bound}`, model };
  }

  startAgent(pool: string, engines: readonly EngineProcess[]): Running {
    return this.start([
      'agent',
      ...['--config', this.config],
      ...['--pool', pool],
      ...engines.flatMap(({ url }) => ['--engine', url]),
      ...['--router', `ws://127.0.0.1:${this.ports.linksPort}`],
      ...['--listen', '127.0.0.1:0'],
      ...['--set', 'agent.settings.calibration=false'],
    ]);
  }

  async status(): Promise<RouterStatus> {
    const answer = await request(`http://127.0.0.1:${this.ports.adminPort}/status`);
    return (await answer.body.json()) as RouterStatus;
  }

  async metrics(): Promise<string> {
    const answer = await request(`http://127.0.0.1:${this.ports.adminPort}/metrics`);
    return answer.body.text();
  }

  /** Waits until the router's status has it so. */
  async whenStatus(condition: (status: RouterStatus) => boolean): Promise<RouterStatus> {
    let last: RouterStatus | null = null;
    await until(
      async () => {
        last = await this.status().catch(() => null);
        return last !== null && condition(last);
      },
      { timeoutMs: STATUS_MS, pollMs: STATUS_POLL_MS, says: () => this.summary(last) },
    );
    if (last === null) throw new Error('no status');
    return last;
  }

  async whenReady(pool: string, count: number): Promise<void> {
    await this.whenStatus((status) => poolOf(status, pool)?.ready === count);
  }

  async close(): Promise<void> {
    await Promise.all(this.started.map((each) => each.end('SIGKILL')));
    await rm(this.folder, { recursive: true });
  }

  /** For the message of a wait that failed. */
  private summary(status: RouterStatus | null): string {
    const replicas = status?.pools.flatMap((pool) => pool.replicas) ?? [];
    const lines = replicas.map(({ id, link, down, targets }) => {
      const target = targets[0];
      return `${id} ${link} down=${down} ${target?.phase} ${target?.leases} ${target?.breaker}`;
    });
    return [
      ...lines,
      `open=${status?.openRequests}`,
      ...(this.router?.lines.slice(-20) ?? []),
    ].join('\n');
  }

  private start(args: readonly string[]): Running {
    const running = new Running(args);
    this.started.push(running);
    return running;
  }
}

export function poolOf(status: RouterStatus, id: string) {
  return status.pools.find((pool) => pool.id === id);
}

export function replicaOf(status: RouterStatus, id: string) {
  return status.pools.flatMap((pool) => pool.replicas).find((replica) => replica.id === id);
}
