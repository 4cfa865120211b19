// One logger per process: JSON lines, or readable where a person watches. Secrets and content never get here.

import { pino, type DestinationStream, type Logger } from 'pino';
import { prettyFactory } from 'pino-pretty';
import { systemClock } from './clock.ts';
import { fileOf, LogSink } from './log-sink.ts';
import { systemTimers } from './timers.ts';

export type { Logger } from 'pino';

export interface LogOptions {
  readonly level: string;
  /** Readable lines in place of JSON. */
  readonly readable: boolean;
  /** Standard error when absent. */
  readonly destination?: DestinationStream;
}

const STDERR = 2;
/** What some terminals take for commands, and JSON does not escape: names come from clients. */
const COMMANDS = /[\u007f-\u009f]/g;
let stderr: LogSink | null = null;

export function createLog(options: LogOptions): Logger {
  const destination = options.destination ?? toStderr(options.readable);
  return pino(
    {
      level: options.level,
      base: null,
      redact: ['secret', 'apiKey', 'authorization', '*.secret', '*.apiKey', '*.authorization'],
    },
    destination,
  );
}

/** The same log for lines whose members are a closed list without secrets: none is looked for in them. */
export function plainLog(log: Logger): Logger {
  return log.child({}, { redact: [] });
}

function toStderr(readable: boolean): DestinationStream {
  const sink = sharedSink();
  if (!readable) return { write: (line) => sink.write(line) };
  const format = readableLines(process.stderr.isTTY === true);
  return { write: (line) => sink.write(format(line)) };
}

/** Makes a line of JSON one for people. */
export function readableLines(colorize: boolean): (line: string) => string {
  const format = prettyFactory({
    colorize,
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'pid,hostname',
    singleLine: true,
  });
  return (line) => format(line).replaceAll(COMMANDS, escaped);
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** Loggers of one process share it: their lines never stand inside each other. */
function sharedSink(): LogSink {
  if (stderr !== null) return stderr;
  const sink = new LogSink(fileOf(STDERR), systemClock, systemTimers);
  process.on('exit', () => sink.flushSync());
  stderr = sink;
  return sink;
}
