// A small fleet of real processes: `bin/spillway` engines, agents and routers, on free ports. Everything is
// waited for by what it says or does, and everything started here is ended here, by its own process id.

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { request } from 'undici';
import type { AgentStatus } from '../../agent/core.ts';
import type { RouterStatus } from '../../router/regional/status.ts';
import { freePort, freePorts } from '../free-ports.ts';
import { until } from './until.ts';

const SPILLWAY = fileURLToPath(new URL('../../bin/spillway', import.meta.url));
const START_MS = 60_000;
const STATUS_MS = 25_000;
const STATUS_POLL_MS = 50;
/** Kept of what a process says; a soak says millions. */
const LINES_MAX = 20_000;
/** Of a process's last words. */
const LAST_LINES = 20;

export class Running {
  readonly lines: string[] = [];
  readonly child: ChildProcess;
  private readonly args: readonly string[];

  constructor(args: readonly string[]) {
    this.args = args;
    this.child = spawn(SPILLWAY, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        if (this.lines.length >= LINES_MAX) this.lines.splice(0, LINES_MAX / 2);
        this.lines.push(line);
      });
    }
  }

  /** The first match in what the process has said, waited for. */
  async says(pattern: RegExp): Promise<RegExpExecArray> {
    let match: RegExpExecArray | null = null;
    await until(
      () => {
        if (this.fate !== null) throw new Error(this.fate);
        for (const line of this.lines) match ??= pattern.exec(line);
        return match !== null;
      },
      { timeoutMs: START_MS, says: () => `${this.name} did not say ${pattern}\n${this.lastWords}` },
    );
    if (match === null) throw new Error(`never said ${String(pattern)}`);
    return match;
  }

  /** How it has ended, with its last words; null while it runs. */
  get fate(): string | null {
    const { exitCode, signalCode } = this.child;
    if (exitCode === null && signalCode === null) return null;
    const how = signalCode === null ? `exit code ${exitCode}` : signalCode;
    return `${this.name} ended: ${how}\n${this.lastWords}`;
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    if (this.fate !== null) return;
    const exit = once(this.child, 'exit');
    this.child.kill(signal);
    await exit;
  }

  private get name(): string {
    return this.args.join(' ');
  }

  get lastWords(): string {
    const said = this.lines.filter((line) => !line.includes('"msg":"request"'));
    return said.slice(-LAST_LINES).join('\n');
  }
}

export interface RouterPorts {
  readonly clientsPort: number;
  readonly linksPort: number;
  readonly adminPort: number;
}

export interface AgentProcess {
  readonly running: Running;
  /** Of its listener. */
  readonly url: string;
  status(): Promise<AgentStatus>;
}

export interface AgentStart {
  /** Links that it dials; those of the fleet's first router where none are named. */
  readonly routers?: readonly string[];
  /** As `--set` takes them. */
  readonly set?: readonly string[];
}

export interface EngineProcess {
  readonly running: Running;
  readonly port: number;
  readonly url: string;
  readonly replica: string;
  readonly model: string;
}

/** A router on free ports, and on the same ones when it is started again. */
export class RouterProcess {
  running: Running | null = null;
  ports: RouterPorts = { clientsPort: 0, linksPort: 0, adminPort: 0 };
  private readonly launch: (args: readonly string[]) => Running;
  private readonly config: string;
  /** Of all that its fleet has started. */
  private readonly fates: () => string[];

  constructor(launch: (args: readonly string[]) => Running, config: string, fates: () => string[]) {
    this.launch = launch;
    this.config = config;
    this.fates = fates;
  }

  get clients(): string {
    return `http://127.0.0.1:${this.ports.clientsPort}`;
  }

  get admin(): string {
    return `http://127.0.0.1:${this.ports.adminPort}`;
  }

  get links(): string {
    return `ws://127.0.0.1:${this.ports.linksPort}`;
  }

  async start(): Promise<void> {
    if (Object.values(this.ports).includes(0)) this.ports = await filled(this.ports);
    const { clientsPort, linksPort, adminPort } = this.ports;
    const running = this.launch([
      'router',
      ...['--config', this.config],
      ...['--listen', `127.0.0.1:${clientsPort}`],
      ...['--links', `127.0.0.1:${linksPort}`],
      ...['--admin', `127.0.0.1:${adminPort}`],
    ]);
    const [line] = await running.says(/^.*"router listening".*$/);
    this.ports = JSON.parse(line) as RouterPorts;
    this.running = running;
  }

  async status(): Promise<RouterStatus> {
    const answer = await request(`${this.admin}/status`);
    if (answer.statusCode !== 200) throw new Error(await answer.body.text());
    return (await answer.body.json()) as RouterStatus;
  }

  async metrics(): Promise<string> {
    const answer = await request(`${this.admin}/metrics`);
    return answer.body.text();
  }

  /** Waits until its status has it so. */
  async whenStatus(
    condition: (status: RouterStatus) => boolean,
    timeoutMs = STATUS_MS,
  ): Promise<RouterStatus> {
    let last: RouterStatus | null = null;
    await until(
      async () => {
        last = await this.status().catch(() => null);
        return last !== null && condition(last);
      },
      { timeoutMs, pollMs: STATUS_POLL_MS, says: () => this.summary(last) },
    );
    if (last === null) throw new Error('no status');
    return last;
  }

  async whenReady(pool: string, count: number): Promise<void> {
    await this.whenStatus((status) => poolOf(status, pool)?.ready === count);
  }

  /** For the message of a wait that failed. */
  private summary(status: RouterStatus | null): string {
    const replicas = status?.pools.flatMap((pool) => pool.replicas) ?? [];
    const lines = replicas.map(({ id, link, down, targets }) => {
      const target = targets[0];
      return `${id} ${link} down=${down} ${target?.phase} ${target?.leases} ${target?.breaker}`;
    });
    const said = this.running?.lastWords ?? 'never started';
    return [...lines, `open=${status?.openRequests}`, said, ...this.fates()].join('\n');
  }
}

export class Fleet {
  private readonly started: Running[] = [];
  private readonly folder: string;
  private readonly first: RouterProcess;

  private constructor(folder: string) {
    this.folder = folder;
    this.first = this.addRouter();
  }

  static async open(config: string): Promise<Fleet> {
    const folder = await mkdtemp(join(tmpdir(), 'spillway-e2e-'));
    await writeFile(join(folder, 'fleet.yaml'), config);
    return new Fleet(folder);
  }

  get config(): string {
    return join(this.folder, 'fleet.yaml');
  }

  get router(): Running | null {
    return this.first.running;
  }

  get ports(): RouterPorts {
    return this.first.ports;
  }

  get clients(): string {
    return this.first.clients;
  }

  /** One more, not started yet. */
  addRouter(): RouterProcess {
    return new RouterProcess(
      (args) => this.start(args),
      this.config,
      () => this.started.flatMap(({ fate }) => fate ?? []),
    );
  }

  /** Starts the first router, on the ports that it had before where there was one. */
  startRouter(): Promise<void> {
    return this.first.start();
  }

  /** On a port of its own, or on that of one that has ended. */
  async startEngine(model: string, port = 0, more: readonly string[] = []): Promise<EngineProcess> {
    const running = this.start([
      'engine-sim',
      ...['--port', String(port === 0 ? await freePort() : port)],
      ...['--model', model],
      ...['--loading-ms', '100'],
      ...more,
    ]);
    const [, url = ''] = await running.says(/(http:\/\/127\.0\.0\.1:\d+)/);
    const bound = Number(new URL(url).port);
    return { running, port: bound, url, replica: `127.0.0.1:${bound}`, model };
  }

  startAgent(pool: string, engines: readonly EngineProcess[], how: AgentStart = {}): Running {
    const { routers = [this.first.links], set = [] } = how;
    return this.start([
      'agent',
      ...['--config', this.config],
      ...['--pool', pool],
      ...engines.flatMap(({ url }) => ['--engine', url]),
      ...routers.flatMap((url) => ['--router', url]),
      ...['--listen', '127.0.0.1:0'],
      ...['agent.settings.calibration=false', ...set].flatMap((each) => ['--set', each]),
    ]);
  }

  /** The same, and waits for its listener. */
  async agentBeside(
    pool: string,
    engines: readonly EngineProcess[],
    how: AgentStart = {},
  ): Promise<AgentProcess> {
    const running = this.startAgent(pool, engines, how);
    const [line] = await running.says(/^.*"agent listening".*$/);
    const url = `http://127.0.0.1:${(JSON.parse(line) as { port: number }).port}`;
    const status = async (): Promise<AgentStatus> => {
      const answer = await request(`${url}/status`);
      return (await answer.body.json()) as AgentStatus;
    };
    return { running, url, status };
  }

  status(): Promise<RouterStatus> {
    return this.first.status();
  }

  metrics(): Promise<string> {
    return this.first.metrics();
  }

  /** Waits until the first router's status has it so. */
  whenStatus(condition: (status: RouterStatus) => boolean): Promise<RouterStatus> {
    return this.first.whenStatus(condition);
  }

  whenReady(pool: string, count: number): Promise<void> {
    return this.first.whenReady(pool, count);
  }

  async close(): Promise<void> {
    await Promise.all(this.started.map((each) => each.end('SIGKILL')));
    await rm(this.folder, { recursive: true });
  }

  private start(args: readonly string[]): Running {
    const running = new Running(args);
    this.started.push(running);
    return running;
  }
}

/** Those that it finds free again: the system gives none of them to anybody else meanwhile. */
/** Those that a test has chosen stay. */
async function filled(chosen: RouterPorts): Promise<RouterPorts> {
  const [clientsPort = 0, linksPort = 0, adminPort = 0] = await freePorts(3);
  return {
    clientsPort: chosen.clientsPort || clientsPort,
    linksPort: chosen.linksPort || linksPort,
    adminPort: chosen.adminPort || adminPort,
  };
}

export function poolOf(status: RouterStatus, id: string) {
  return status.pools.find((pool) => pool.id === id);
}

export function replicaOf(status: RouterStatus, id: string) {
  return status.pools.flatMap((pool) => pool.replicas).find((replica) => replica.id === id);
}
