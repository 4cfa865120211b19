// The machine's process list as evidence: only for an engine on this machine, only when its port is refused or opens
// again, at most every 10 s, every 2 s where an engine was listed before. A process that names the engine's port is
// looked at itself from then on: that costs nothing. None is `absent` only where an earlier list had one: an engine in
// another container never shows.

import type { Clock } from '../shared/runtime/clock.ts';
import type { ListSight } from './policy/process-evidence.ts';

export interface ListedProcess {
  readonly pid: number;
  /** Command with its arguments. */
  readonly command: string;
}

export interface ListOptions {
  readonly port: string;
  readonly clock: Clock;
  readonly listProcesses: () => Promise<readonly ListedProcess[]>;
  readonly processLives: (pid: number) => Promise<boolean>;
}

/** A list costs some 26 ms of CPU. */
const LIST_INTERVAL_MS = 10_000;
const SEEN_INTERVAL_MS = 2_000;
/** Its arguments may name an engine, its log or its port. */
const NO_ENGINE = /(spillway|main\.ts) (agent|up|router)\b/;
const DEFAULT_PORTS: readonly [RegExp, string][] = [
  [/sglang/i, '30000'],
  [/text-generation/i, '3000'],
  [/llama-server/i, '8080'],
  [/vllm|spillway engine-sim|main\.ts engine-sim/i, '8000'],
];

export class ListWitness {
  readonly #options: ListOptions;
  #listedMs = -Infinity;
  #listing = false;
  #pid: number | null = null;
  #seen = false;
  #state: ListSight['state'] = 'unknown';
  #answering = false;

  constructor(options: ListOptions) {
    this.#options = options;
  }

  /** The last answer; a list that is due is made meanwhile. */
  async sight(port: 'answers' | 'refuses'): Promise<ListSight> {
    const opened = port === 'answers' && !this.#answering;
    this.#answering = port === 'answers';
    if (port === 'refuses') await this.#lookAtProcess();
    if (opened || port === 'refuses') void this.#list();
    return { state: this.#state, pid: this.#pid };
  }

  async #list(): Promise<void> {
    const { clock, listProcesses, port } = this.#options;
    const intervalMs = this.#seen ? SEEN_INTERVAL_MS : LIST_INTERVAL_MS;
    if (this.#listing || clock.nowMs() - this.#listedMs < intervalMs) return;
    this.#listing = true;
    try {
      const processes = await listProcesses();
      this.#pid = processes.find(({ command }) => isEngine(command, port))?.pid ?? null;
      const found = this.#pid !== null;
      this.#state = found ? 'alive' : this.#seen ? 'absent' : 'unknown';
      this.#seen ||= found;
    } catch {
      // A machine that lists no processes gives no evidence.
      this.#state = 'unknown';
    }
    this.#listedMs = clock.nowMs();
    this.#listing = false;
  }

  /** The process that a list had: gone, it is absent at once, and the next list may come at once. */
  async #lookAtProcess(): Promise<void> {
    const pid = this.#pid;
    if (pid === null || (await this.#options.processLives(pid)) || this.#pid !== pid) return;
    this.#pid = null;
    this.#state = 'absent';
    this.#listedMs = -Infinity;
  }
}

/** The machine's processes; the library is loaded when it is first needed. */
export async function listProcesses(): Promise<readonly ListedProcess[]> {
  const { processes } = await import('systeminformation');
  const { list } = await processes();
  return list.map(({ pid, path, command, params }) => ({
    pid,
    command: `${path}/${command} ${params}`,
  }));
}

function isEngine(command: string, port: string): boolean {
  if (NO_ENGINE.test(command)) return false;
  const kind = DEFAULT_PORTS.find(([pattern]) => pattern.test(command));
  if (kind === undefined) return false;
  return (/--port[= ]+(\d+)/.exec(command)?.[1] ?? kind[1]) === port;
}
