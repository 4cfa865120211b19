// Evidence of an engine's process from outside its port. A refused port alone says nothing: an engine that loads its
// weights refuses too. Four sources, each optional, are looked at here; agent/policy/process-evidence.ts says what they
// mean together. Looking is never fatal, and what could take long is never awaited: the last answer counts.

import { networkInterfaces } from 'node:os';
import type { Clock } from '../shared/runtime/clock.ts';
import { isLoopback } from '../shared/config/address.ts';
import type { ProcessEvidence } from './events.ts';
import { ListWitness, type ListedProcess } from './evidence-list.ts';
import { LogWitness } from './evidence-log.ts';
import { UnitWitness } from './evidence-unit.ts';
import { readQuietly } from './quiet-file.ts';
import { combineEvidence, type PidFileSight } from './policy/process-evidence.ts';

const PID_FILE_BYTES = 64;
const STAT_BYTES = 1_024;

export interface WitnessOptions {
  /** Engine's base URL as the agent reaches it. */
  readonly url: string;
  readonly pidFile: string | null;
  /** Name of its systemd unit. */
  readonly unit: string | null;
  /** Path of its log file. */
  readonly log: string | null;
  readonly clock: Clock;
  readonly listProcesses: () => Promise<readonly ListedProcess[]>;
  readonly showUnit: (unit: string) => Promise<string>;
  readonly processLives: (pid: number) => Promise<boolean>;
}

export class ProcessWitness {
  readonly #options: WitnessOptions;
  readonly #list: ListWitness | null;
  readonly #unit: UnitWitness | null;
  readonly #log: LogWitness | null;
  /** The pid file has not contradicted a port that answered. */
  #pidFileBelieved = true;

  constructor(options: WitnessOptions) {
    const { clock, unit, log } = options;
    const url = new URL(options.url);
    const local = isThisMachine(url.hostname.replace(/^\[|\]$/g, ''));
    const usual = url.protocol === 'https:' ? '443' : '80';
    const port = url.port === '' ? usual : url.port;
    this.#options = options;
    this.#list = local ? new ListWitness({ ...options, port }) : null;
    this.#unit = unit === null ? null : new UnitWitness({ ...options, unit });
    this.#log = log === null ? null : new LogWitness(log, clock);
  }

  /** What is known now, given whether the engine's port has just answered. */
  async evidence(port: 'answers' | 'refuses'): Promise<ProcessEvidence> {
    const pidFile = await this.#pidFile(port);
    // Nothing is more specific than a living process that the pid file names.
    const wanted = pidFile?.lives !== true;
    const list = wanted ? ((await this.#list?.sight(port)) ?? null) : null;
    const unit = (await this.#unit?.sight(port)) ?? null;
    const log = this.#log?.sight() ?? null;
    return combineEvidence({ port, pidFile, list, unit, log });
  }

  async #pidFile(port: 'answers' | 'refuses'): Promise<PidFileSight | null> {
    const { pidFile, processLives: lives } = this.#options;
    if (pidFile === null) return null;
    const pid = Number((await readQuietly(pidFile, PID_FILE_BYTES))?.trim());
    const named = Number.isInteger(pid) && pid > 0;
    const sight = { pid: named ? pid : null, lives: named && (await lives(pid)) };
    if (sight.lives) this.#pidFileBelieved = true;
    else if (port === 'answers') this.#pidFileBelieved = false;
    return this.#pidFileBelieved ? sight : null;
  }
}

/** False for a process that is gone, and for one that only waits to be reaped. */
export async function processLives(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as { code?: unknown }).code === 'EPERM';
  }
  const stat = await readQuietly(`/proc/${pid}/stat`, STAT_BYTES);
  return stat === null || !/\) [ZX] /.test(stat);
}

function isThisMachine(host: string): boolean {
  if (isLoopback(host)) return true;
  const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return own.some((face) => face.address === host);
}
