// One logger per process: JSON lines, or readable where a person watches. Secrets and content never get here.

import { pino, type DestinationStream, type Logger } from 'pino';
import pretty from 'pino-pretty';

export type { Logger } from 'pino';

export interface LogOptions {
  readonly level: string;
  /** Readable lines in place of JSON. */
  readonly readable: boolean;
  readonly destination?: DestinationStream;
}

export function createLog(options: LogOptions): Logger {
  const destination =
    options.destination ??
    (options.readable
      ? pretty({
          colorize: process.stderr.isTTY === true,
          translateTime: 'SYS:HH:MM:ss.l',
          ignore: 'pid,hostname',
          singleLine: true,
          destination: 2,
          sync: true,
        })
      : pino.destination({ fd: 2, sync: false }));
  return pino(
    {
      level: options.level,
      base: null,
      redact: ['secret', 'apiKey', 'authorization', '*.secret', '*.apiKey', '*.authorization'],
    },
    destination,
  );
}
