// One real vLLM on one core: started, looked at, and killed in the ways in which engines die.

import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../free-ports.ts';
import { startGroup, type ProcessGroup } from './process-group.ts';
import { waitFor } from './wait.ts';

/** KV cache of each engine behind Spillway: 1,024 blocks of 32 tokens. */
export const KV_TOKENS = 32_768;
export const MODEL = 'tiny-llama';
export const MODEL_FOLDER = join(import.meta.dirname, 'model');

export interface EnginePlace {
  readonly name: string;
  readonly port: number;
  readonly core: number;
  readonly url: string;
  readonly pidFile: string;
  readonly logPath: string;
}

/** A place for an engine on a port that is free now. */
export async function placeEngine(
  name: string,
  core: number,
  folder: string,
): Promise<EnginePlace> {
  const port = await freePort();
  return {
    name,
    port,
    core,
    url: `http://127.0.0.1:${port}`,
    pidFile: join(folder, `${name}.pid`),
    logPath: join(folder, `${name}.log`),
  };
}

/** What an engine is started with beyond its place. */
export interface EngineSetup {
  readonly flags: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Cores of all its processes; that of its place where absent. */
  readonly cores?: readonly number[];
}

/** The engines that stand behind a router. */
export const BEHIND_ROUTER: EngineSetup = {
  flags: [
    ...['--max-model-len', '16384', '--max-num-seqs', '8', '--max-num-batched-tokens', '1024'],
    ...['--block-size', '32', '--num-gpu-blocks-override', String(KV_TOKENS / 32)],
  ],
};

export class Engine {
  readonly place: EnginePlace;
  readonly #install: string;
  readonly #setup: EngineSetup;
  #group: ProcessGroup | null = null;

  constructor(place: EnginePlace, install: string, setup: EngineSetup = BEHIND_ROUTER) {
    this.place = place;
    this.#install = install;
    this.#setup = setup;
  }

  /** Returns at once: weights load for about a minute before the port opens. */
  start(): void {
    const { port, core, logPath, pidFile } = this.place;
    const cores = this.#setup.cores ?? [core];
    this.#group = startGroup({
      // One core for all of its processes: an engine whose front end strays onto the other's core makes that
      // one as slow as it happens to be busy itself, which nothing beside it could predict.
      command: 'taskset',
      args: [
        ...['-c', cores.join(','), join(this.#install, 'bin', 'vllm')],
        ...serveArguments(port, this.#setup.flags),
      ],
      logPath,
      env: {
        VLLM_TARGET_DEVICE: 'cpu',
        VLLM_CPU_KVCACHE_SPACE: '1',
        VLLM_CPU_OMP_THREADS_BIND: cores.join('|'),
        VLLM_NO_USAGE_STATS: '1',
        DO_NOT_TRACK: '1',
        HF_HUB_OFFLINE: '1',
        ...this.#setup.env,
      },
    });
    writeFileSync(pidFile, `${this.#group.pid}\n`);
  }

  get pid(): number {
    return this.#group?.pid ?? -1;
  }

  running(): boolean {
    return this.#group !== null && this.#group.ended() === null;
  }

  /** Waits until the model answers. */
  async untilServing(limitMs: number): Promise<void> {
    await waitFor({ what: `${this.place.name} serves`, limitMs, everyMs: 500 }, async () => {
      if (!this.running()) throw new Error(`${this.place.name} ended, see ${this.place.logPath}`);
      return (await this.health()) === 200 ? true : null;
    });
  }

  async health(): Promise<number | null> {
    try {
      const answer = await fetch(`${this.place.url}/health`, {
        signal: AbortSignal.timeout(2_000),
      });
      await answer.arrayBuffer();
      return answer.status;
    } catch {
      return null;
    }
  }

  /** A gauge or counter of the exposition, summed over its series; null when absent or unreachable. */
  async metric(name: string): Promise<number | null> {
    try {
      const answer = await fetch(`${this.place.url}/metrics`, {
        signal: AbortSignal.timeout(5_000),
      });
      return sumOfSeries(await answer.text(), name);
    } catch {
      return null;
    }
  }

  /** SIGKILL to the process that computes, as a GPU fault or the kernel's memory killer would do. */
  killCore(): void {
    this.signalCore('SIGKILL');
  }

  /** A signal to the process that computes: SIGSTOP is what a hung device looks like. */
  signalCore(signal: NodeJS.Signals): void {
    const core = coreProcessOf(this.pid);
    if (core === null) throw new Error(`${this.place.name} has no EngineCore process`);
    process.kill(core, signal);
  }

  /** SIGTERM to the server alone. */
  terminate(): void {
    if (this.running()) process.kill(this.pid, 'SIGTERM');
  }

  /** Waits for the server to end after its core died, and clears away what is left of it. */
  async untilGone(limitMs: number): Promise<void> {
    await waitFor({ what: `${this.place.name} ends`, limitMs }, () =>
      this.running() ? null : true,
    );
    await this.stop();
  }

  async stop(): Promise<void> {
    await this.#group?.stop(5_000);
    this.#group = null;
  }
}

function serveArguments(port: number, flags: readonly string[]): string[] {
  return [
    'serve',
    MODEL_FOLDER,
    ...['--served-model-name', MODEL, '--load-format', 'dummy'],
    ...['--host', '127.0.0.1', '--port', String(port)],
    ...flags,
    '--enforce-eager',
    '--enable-prompt-tokens-details',
    '--enable-server-load-tracking',
    '--disable-uvicorn-access-log',
  ];
}

/** The sum over all series of a metric in a Prometheus exposition; null where there is none. */
export function sumOfSeries(exposition: string, name: string): number | null {
  let sum: number | null = null;
  for (const line of exposition.split('\n')) {
    if (!line.startsWith(name)) continue;
    const after = line.charAt(name.length);
    if (after !== '{' && after !== ' ') continue;
    const value = Number(line.slice(line.lastIndexOf(' ') + 1));
    if (Number.isFinite(value)) sum = (sum ?? 0) + value;
  }
  return sum;
}

/** The descendant that names itself EngineCore; null when there is none. */
function coreProcessOf(pid: number): number | null {
  const children = new Map<number, number[]>();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const parent = parentOf(Number(entry));
    if (parent === null) continue;
    const list = children.get(parent) ?? [];
    list.push(Number(entry));
    children.set(parent, list);
  }
  const open = [pid];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    for (const child of children.get(next) ?? []) {
      if (commandLineOf(child).includes('EngineCore')) return child;
      open.push(child);
    }
  }
  return null;
}

function parentOf(pid: number): number | null {
  try {
    const match = /^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return match === null ? null : Number(match[1]);
  } catch {
    return null;
  }
}

function commandLineOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}
