// Evidence of an engine's process from outside its port. A refused port alone says nothing: an engine that loads
// its weights refuses too.
//
//   pid file       the process lives, or it does not (a missing file, a process that is gone or a zombie)
//   process list   only for an engine on this machine, only when its port is refused or opens again, at most every
//                  10 s, every 2 s where an engine was listed before. One that names the engine's port is `alive`,
//                  and looked at itself from then on: that costs nothing. None is `absent` only where an earlier
//                  list had one: an engine in another container never shows
//
// Looking is never awaited and never fatal: the last answer counts, `unknown` before the first.

import { readFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import type { Clock } from '../shared/runtime/clock.ts';
import { isLoopback } from '../shared/config/address.ts';
import { NO_EVIDENCE, type ProcessEvidence } from './events.ts';

type ProcessState = ProcessEvidence['state'];

export interface ListedProcess {
  readonly pid: number;
  /** Command with its arguments. */
  readonly command: string;
}

export interface WitnessOptions {
  /** Engine's base URL as the agent reaches it. */
  readonly url: string;
  readonly pidFile: string | null;
  readonly clock: Clock;
  readonly listProcesses: () => Promise<readonly ListedProcess[]>;
  readonly processLives: (pid: number) => Promise<boolean>;
}

/** A list costs some 26 ms of CPU. */
const LIST_INTERVAL_MS = 10_000;
const SEEN_INTERVAL_MS = 2_000;
const DEFAULT_ENGINE_PORT = '8000';
const ENGINE_COMMAND = /vllm|sglang|text-generation/i;

export class ProcessWitness {
  readonly #options: WitnessOptions;
  readonly #port: string;
  readonly #local: boolean;
  #listedMs = -Infinity;
  #listing = false;
  #pid: number | null = null;
  #seen = false;
  #listed: ProcessState = 'unknown';
  #answering = false;

  constructor(options: WitnessOptions) {
    const url = new URL(options.url);
    this.#options = options;
    this.#port = url.port === '' ? '80' : url.port;
    this.#local = isThisMachine(url.hostname.replace(/^\[|\]$/g, ''));
  }

  /** What is known now, given whether the engine's port has just answered. */
  async evidence(port: 'answers' | 'refuses'): Promise<ProcessEvidence> {
    return { ...NO_EVIDENCE, state: await this.#state(port) };
  }

  async #state(port: 'answers' | 'refuses'): Promise<ProcessState> {
    if (this.#options.pidFile !== null) return pidFileEvidence(this.#options.pidFile);
    if (!this.#local) return 'unknown';
    const opened = port === 'answers' && !this.#answering;
    this.#answering = port === 'answers';
    if (port === 'refuses') await this.#lookAtProcess();
    if (opened || port === 'refuses') void this.#look();
    return port === 'answers' ? 'alive' : this.#listed;
  }

  async #look(): Promise<void> {
    const { clock, listProcesses } = this.#options;
    const intervalMs = this.#seen ? SEEN_INTERVAL_MS : LIST_INTERVAL_MS;
    if (this.#listing || clock.nowMs() - this.#listedMs < intervalMs) return;
    this.#listing = true;
    try {
      const processes = await listProcesses();
      this.#pid = processes.find((entry) => this.#isEngine(entry.command))?.pid ?? null;
      const found = this.#pid !== null;
      this.#listed = found ? 'alive' : this.#seen ? 'absent' : 'unknown';
      this.#seen ||= found;
    } catch {
      // A machine that lists no processes gives no evidence.
      this.#listed = 'unknown';
    }
    this.#listedMs = clock.nowMs();
    this.#listing = false;
  }

  /** The process that a list had: gone, it is absent at once, and the next list may come at once. */
  async #lookAtProcess(): Promise<void> {
    const pid = this.#pid;
    if (pid === null || (await this.#options.processLives(pid)) || this.#pid !== pid) return;
    this.#pid = null;
    this.#listed = 'absent';
    this.#listedMs = -Infinity;
  }

  #isEngine(command: string): boolean {
    if (!ENGINE_COMMAND.test(command)) return false;
    const port = /--port[= ]+(\d+)/.exec(command)?.[1] ?? DEFAULT_ENGINE_PORT;
    return port === this.#port;
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

async function pidFileEvidence(path: string): Promise<ProcessState> {
  const pid = Number((await readQuietly(path))?.trim());
  if (!Number.isInteger(pid) || pid <= 0) return 'absent';
  return (await processLives(pid)) ? 'alive' : 'absent';
}

/** False for a process that is gone, and for one that only waits to be reaped. */
export async function processLives(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as { code?: unknown }).code === 'EPERM';
  }
  const stat = await readQuietly(`/proc/${pid}/stat`);
  return stat === null || !/\) [ZX] /.test(stat);
}

/** Null where it cannot be read. */
async function readQuietly(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    return null;
  }
}

function isThisMachine(host: string): boolean {
  if (isLoopback(host)) return true;
  const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return own.some((face) => face.address === host);
}
