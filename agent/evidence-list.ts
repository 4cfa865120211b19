// The machine's process list as evidence: only for an engine on this machine, only when its port is refused or opens
// again, at most every 10 s, every 2 s where an engine was listed before. Processes that name the engine's port are
// looked at themselves from then on: that costs nothing. A shell around the engine and its children may name it too, so
// all that were listed together are one engine, under the first one's pid, until none of them lives. None is `absent`
// only where an earlier list had one: an engine in another container never shows.
//
// Whoever names the port and an engine counts, but for clients of it. A command without a port has its program's usual
// one, and only where it is the program itself: an engine's workers (`VLLM::Worker`, `sglang::scheduler`) name none.

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
/** More processes of one engine need not be known. */
const MAX_GROUP = 64;
/** Their arguments may name an engine, its log or its port. */
const NO_ENGINE = /(spillway|main\.ts) (agent|up|router)\b|\bvllm bench\b|\bbench(mark)?_/;
const ENGINE = /vllm|sglang|text-generation|llama-server|(spillway|main\.ts) engine-sim/i;
const DEFAULT_PORTS: readonly [RegExp, string][] = [
  [/\bsglang(\.launch_server| serve)\b/, '30000'],
  [/(^|\/)text-generation-(launcher|router)(\s|$)/, '3000'],
  [/(^|\/)llama-server(\s|$)/, '8080'],
  [/\bvllm( serve|\.entrypoints\.)\b|(spillway|main\.ts) engine-sim\b/, '8000'],
];

export class ListWitness {
  readonly #options: ListOptions;
  #listedMs = -Infinity;
  #listing = false;
  /** Of the first of them. */
  #pid: number | null = null;
  #group: readonly number[] = [];
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
    if (opened || port === 'refuses') {
      await this.#lookAtGroup();
      void this.#list();
    }
    return { state: this.#state, pid: this.#pid };
  }

  async #list(): Promise<void> {
    const { clock, listProcesses, port } = this.#options;
    const intervalMs = this.#seen ? SEEN_INTERVAL_MS : LIST_INTERVAL_MS;
    if (this.#listing || clock.nowMs() - this.#listedMs < intervalMs) return;
    this.#listing = true;
    try {
      const processes = await listProcesses();
      const engines = processes.filter(({ command }) => isEngine(command, port));
      this.#take(engines.slice(0, MAX_GROUP).map(({ pid }) => pid));
    } catch {
      // A machine that lists no processes gives no evidence.
      this.#state = 'unknown';
    }
    this.#listedMs = clock.nowMs();
    this.#listing = false;
  }

  #take(group: readonly number[]): void {
    const same = group.some((pid) => this.#group.includes(pid));
    if (!same) this.#pid = group[0] ?? null;
    this.#group = group;
    const found = group.length > 0;
    this.#state = found ? 'alive' : this.#seen ? 'absent' : 'unknown';
    this.#seen ||= found;
  }

  /** The processes that a list had: all gone, it is absent at once, and the next list may come at once. */
  async #lookAtGroup(): Promise<void> {
    const group = this.#group;
    for (const pid of group) if (await this.#options.processLives(pid)) return;
    if (group.length === 0 || this.#group !== group) return;
    this.#group = [];
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
  const named = /--port[= ]+(\d+)/.exec(command)?.[1];
  if (named !== undefined) return named === port && ENGINE.test(command);
  return DEFAULT_PORTS.some(([program, usual]) => usual === port && program.test(command));
}
