// The demo's whole fleet: a global router in this process, each region in one of its own, and between them the distance. A
// region that dies comes back after a while, as by the hand of an operator.

import { fork, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import type { RunningGlobalRouter } from '../../router/global/start.ts';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { loadOrExplain } from '../cli/configuration.ts';
import { globalOptions } from '../cli/global-options.ts';
import { pause, started } from '../cli/process.ts';
import { UsageError } from '../cli/usage-error.ts';
import { DelayProxy } from './delay-proxy.ts';
import { globalOverlays, REGIONS, type DemoRegion } from './fleet.ts';
import type { RegionPorts, RegionTask } from './region-main.ts';

const ENTRY = join(import.meta.dirname, 'region-main.ts');
/** Until a region that has died is there again, ms. */
export const COMES_BACK_MS = 12_000;
const READY_POLL_MS = 100;
const READY_MS = 90_000;
const END_MS = 5_000;

export interface StageOptions {
  /** Where clients connect; 0: anywhere. */
  readonly port: number;
  /** Engines of each region. */
  readonly replicas: number;
  /** What flags change, in every process. */
  readonly overlays: readonly Overlay[];
  /** A line for whoever watches. */
  readonly say: (line: string) => void;
}

export class Stage {
  readonly regions: readonly StageRegion[];
  readonly #options: StageOptions;
  readonly #runtime: RoleRuntime;
  #router: RunningGlobalRouter | null = null;

  constructor(options: StageOptions, runtime: RoleRuntime) {
    this.#options = options;
    this.#runtime = runtime;
    this.regions = REGIONS.map((facts) => new StageRegion(facts, options, runtime));
  }

  /** Resolves when every region is seen, with replicas that are ready. */
  async start(): Promise<void> {
    const { port, overlays } = this.#options;
    await Promise.all(this.regions.map((region) => region.tier.listen()));
    await Promise.all(this.regions.map((region) => region.links.listen()));
    const urls = new Map(this.regions.map(({ name, tier }) => [name, urlOf('http', tier.port)]));
    const config = loadOrExplain(null, [
      ...globalOverlays(port, (name) => urls.get(name) ?? ''),
      ...overlays,
    ]);
    const { startGlobalRouter } = await import('../../router/global/start.ts');
    if (config.global === undefined) throw new Error('the demo has a global router');
    const router = startGlobalRouter(globalOptions(config, config.global), this.#runtime);
    this.#router = await started(router, '--port');
    for (const region of this.regions) region.start(this.#router.linksPort);
    await this.#whenReady();
  }

  get url(): string {
    return urlOf('http', this.#running.clientsPort);
  }

  get adminUrl(): string {
    return urlOf('http', this.#running.adminPort ?? this.#running.clientsPort);
  }

  status(): ReturnType<RunningGlobalRouter['status']> {
    return this.#running.status();
  }

  region(name: string): StageRegion {
    const found = this.regions.find((each) => each.name === name);
    if (found === undefined) throw new Error(`the demo has no region ${name}`);
    return found;
  }

  async drain(): Promise<void> {
    await this.#router?.drain();
  }

  async close(): Promise<void> {
    for (const region of this.regions) region.ending = true;
    await this.#router?.close();
    await Promise.all(this.regions.map((region) => region.close()));
  }

  get #running(): RunningGlobalRouter {
    if (this.#router === null) throw new Error('the demo has not started');
    return this.#router;
  }

  async #whenReady(): Promise<void> {
    const { clock } = this.#runtime;
    const startMs = clock.nowMs();
    while (clock.nowMs() - startMs < READY_MS) {
      if (this.regions.every(({ name }) => this.isReady(name))) return;
      await pause(READY_POLL_MS);
    }
    throw new UsageError(`not every region became ready within ${READY_MS / 1_000} s`);
  }

  /** The global router sees it, with replicas that are ready. */
  isReady(name: string): boolean {
    const region = this.status().regions.find((each) => each.region === name);
    return region?.seen === true && region.pools.some((pool) => (pool.readyReplicas ?? 0) > 0);
  }
}

/** A region's process and its distance. */
export class StageRegion {
  readonly name: string;
  /** To its tier listener. */
  readonly tier: DelayProxy;
  /** From its router to the global router's links. */
  readonly links: DelayProxy;
  ending = false;
  readonly #options: StageOptions;
  readonly #runtime: RoleRuntime;
  #child: ChildProcess | null = null;
  #ports: RegionPorts | null = null;

  constructor(facts: DemoRegion, options: StageOptions, runtime: RoleRuntime) {
    const { timers } = runtime;
    this.name = facts.name;
    this.tier = new DelayProxy({ oneWayMs: facts.oneWayMs, timers });
    this.links = new DelayProxy({ oneWayMs: facts.oneWayMs, timers });
    this.#options = options;
    this.#runtime = runtime;
  }

  /** Null while it is dead. */
  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  /** Of its own clients; null until it serves. */
  get url(): string | null {
    return this.#ports === null ? null : urlOf('http', this.#ports.clientsPort);
  }

  start(linksPort: number): void {
    this.links.reaches(linksPort);
    this.#fork();
  }

  /** As by a loss of power. */
  kill(): void {
    this.#child?.kill('SIGKILL');
  }

  async close(): Promise<void> {
    this.ending = true;
    const child = this.#child;
    if (child !== null) {
      const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
      child.send('end', () => undefined);
      const stop = this.#runtime.timers.after(END_MS, () => child.kill('SIGKILL'));
      await gone;
      stop();
    }
    await Promise.all([this.tier.close(), this.links.close()]);
  }

  #fork(): void {
    const { replicas, overlays } = this.#options;
    const globalUrl = urlOf('ws', this.links.port);
    const task: RegionTask = { region: this.name, globalUrl, replicas, overlays };
    const child = fork(ENTRY, [JSON.stringify(task)]);
    this.#child = child;
    child.once('message', (ports) => {
      this.#ports = ports as RegionPorts;
      this.tier.reaches(this.#ports.tierPort);
    });
    child.once('exit', (code, signal) => this.#gone(signal ?? `code ${code ?? '?'}`));
  }

  #gone(how: string): void {
    this.#child = null;
    this.#ports = null;
    this.tier.loses();
    if (this.ending) return;
    this.#options.say(`${this.name} has died (${how}); it is started again in 12 s`);
    this.#runtime.timers.after(COMES_BACK_MS, () => {
      if (!this.ending) this.#fork();
    });
  }
}

function urlOf(scheme: string, port: number): string {
  return `${scheme}://127.0.0.1:${port}`;
}
