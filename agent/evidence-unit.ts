// A systemd unit as evidence. `systemctl show` costs some milliseconds and a process, so it is asked every second
// while the engine's port is refused, when it opens again, and every 10 s while it answers; its main process is looked at itself in
// between, so that a death shows at the next scrape. Asking has a bound and is never awaited: the last answer counts.

import { execFile } from 'node:child_process';
import type { Clock } from '../shared/runtime/clock.ts';
import type { UnitSight } from './policy/process-evidence.ts';

export interface UnitOptions {
  readonly unit: string;
  readonly clock: Clock;
  readonly showUnit: (unit: string) => Promise<string>;
  readonly processLives: (pid: number) => Promise<boolean>;
}

const REFUSED_INTERVAL_MS = 1_000;
const ANSWERED_INTERVAL_MS = 10_000;
/** A machine without systemd need not be asked often. */
const FAILED_INTERVAL_MS = 30_000;
const SHOW_TIMEOUT_MS = 2_000;
const SHOW_BYTES = 64 * 1_024;

type Shown = Omit<UnitSight, 'mainLives'>;

export class UnitWitness {
  readonly #options: UnitOptions;
  #askedMs = -Infinity;
  #asking = false;
  #failed = false;
  #answering = false;
  #shown: Shown | null = null;

  constructor(options: UnitOptions) {
    this.#options = options;
  }

  /** Null before the first answer, and where systemd knows no such unit. */
  async sight(port: 'answers' | 'refuses'): Promise<UnitSight | null> {
    const shown = this.#shown;
    const pid = shown?.mainPid ?? null;
    const lives = pid !== null && (await this.#options.processLives(pid));
    const gone = pid !== null && !lives;
    const opened = port === 'answers' && !this.#answering;
    this.#answering = port === 'answers';
    const usual = port === 'answers' ? ANSWERED_INTERVAL_MS : REFUSED_INTERVAL_MS;
    void this.#ask(this.#failed ? FAILED_INTERVAL_MS : gone || opened ? 0 : usual);
    return shown === null ? null : { ...shown, mainLives: lives };
  }

  async #ask(intervalMs: number): Promise<void> {
    const { clock, showUnit, unit } = this.#options;
    if (this.#asking || clock.nowMs() - this.#askedMs < intervalMs) return;
    this.#asking = true;
    try {
      this.#shown = parseUnit(await showUnit(unit));
      this.#failed = this.#shown === null;
    } catch {
      // No systemd here, or one that does not answer: no evidence.
      this.#shown = null;
      this.#failed = true;
    }
    this.#askedMs = clock.nowMs();
    this.#asking = false;
  }
}

/** What `systemctl show` prints: `Key=value` lines. Null for a unit that is not there. */
export function parseUnit(text: string): Shown | null {
  const values = new Map<string, string>();
  for (const line of text.split('\n')) {
    const at = line.indexOf('=');
    if (at > 0) values.set(line.slice(0, at), line.slice(at + 1).trim());
  }
  const activeState = values.get('ActiveState');
  if (activeState === undefined || values.get('LoadState') === 'not-found') return null;
  const mainPid = Number(values.get('MainPID'));
  const restarts = Number(values.get('NRestarts') ?? Number.NaN);
  return {
    activeState,
    subState: values.get('SubState') ?? '',
    mainPid: Number.isInteger(mainPid) && mainPid > 0 ? mainPid : null,
    restarts: Number.isInteger(restarts) && restarts >= 0 ? restarts : null,
  };
}

/** Throws where there is no systemd. */
export function showUnit(unit: string): Promise<string> {
  const properties = 'LoadState,ActiveState,SubState,MainPID,NRestarts';
  return new Promise((resolve, reject) => {
    execFile(
      'systemctl',
      ['show', '--property', properties, '--', unit],
      { timeout: SHOW_TIMEOUT_MS, maxBuffer: SHOW_BYTES, killSignal: 'SIGKILL' },
      (error, stdout) => (error === null ? resolve(stdout) : reject(error)),
    );
  });
}
