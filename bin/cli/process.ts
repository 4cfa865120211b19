// What every long-running command does around its role: runtime, log, signals, and words for a port that is taken.

import closeWithGrace from 'close-with-grace';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { processRandom } from '../../shared/runtime/entropy.ts';
import { createLog, type Logger } from '../../shared/runtime/log.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { UsageError } from './usage-error.ts';

export function processLog(log: FleetConfig['log']): Logger {
  return createLog({ level: log.level, readable: isReadable(log) });
}

/** Somebody reads it. */
export function isReadable({ format }: FleetConfig['log']): boolean {
  return format === 'readable' || (format === 'auto' && process.stderr.isTTY);
}

export function processRuntime(log: Logger): RoleRuntime {
  return { clock: systemClock, timers: systemTimers, random: processRandom(), log };
}

export interface Ending {
  /** Lets what runs end; left out after a bug, when nothing can be trusted to end. */
  readonly drain?: (signal: string | undefined) => Promise<void>;
  readonly close: () => Promise<void>;
}

/** Drains and closes on the first SIGTERM or SIGINT, then ends with 0; ends at once on the second. */
export function endOnSignal(log: Logger, { drain, close }: Ending): void {
  closeWithGrace(
    {
      delay: false,
      logger: false,
      skip: ['SIGHUP', 'beforeExit'],
      onSecondSignal: (signal) => log.warn({ signal }, 'second signal: ending at once'),
    },
    async ({ signal, err }) => {
      if (err !== undefined) log.fatal({ err }, 'a bug: ending');
      else {
        log.info({ signal }, 'ending: a second signal ends at once');
        await drain?.(signal);
      }
      await close();
    },
  );
}

/** Starts a listener's owner; a port that is taken or forbidden becomes a line for the person who chose it. */
export async function started<T>(start: Promise<T>, hint: string): Promise<T> {
  try {
    return await start;
  } catch (cause) {
    const { code, address, port, hostname } = listenFailure(cause);
    const where = address === undefined ? '' : `${address}:${port ?? '?'} `;
    if (code === 'EADDRINUSE') {
      throw new UsageError(`${where}is in use by another process: choose another (${hint})`, {
        cause,
      });
    }
    if (code === 'EACCES') {
      throw new UsageError(`${where}may not be used without privileges: choose another (${hint})`, {
        cause,
      });
    }
    if (code === 'EADDRNOTAVAIL') {
      throw new UsageError(`${where}is no address of this machine: choose another (${hint})`, {
        cause,
      });
    }
    if (code === 'ENOTFOUND') {
      throw new UsageError(`${hostname ?? 'that host'} is no address: choose another (${hint})`, {
        cause,
      });
    }
    throw cause;
  }
}

interface ListenFailure {
  readonly code?: string;
  readonly hostname?: string;
  readonly address?: string;
  readonly port?: number;
}

/** The system's error, itself or as a cause. */
function listenFailure(error: unknown): ListenFailure {
  let inner: unknown = error;
  for (let depth = 0; depth < 4 && inner instanceof Error; depth += 1) {
    if ('code' in inner && 'syscall' in inner) return inner as ListenFailure;
    inner = inner.cause;
  }
  return {};
}

/** Resolves after `ms`. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    systemTimers.after(ms, resolve);
  });
}
