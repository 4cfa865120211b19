// One logger per process: JSON lines, or readable where a person watches. Secrets and content never get here.

import { pino, symbols, type DestinationStream, type Logger } from 'pino';
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

/** Members of a plain line; null and false are left out, numbers are rounded to tenths. */
export type PlainMembers = Readonly<Record<string, string | number | boolean | null>>;

/**
 * The same log for lines whose members are a closed list, whose names need no escape, without secrets: none is looked for in
 * them. Such a line is put together here, as pino would: that takes a third of the time.
 */
export function plainLog(log: Logger): Logger {
  return Object.assign(log.child({}, { redact: [] }), { [symbols.asJsonSym]: plainLine });
}

/** What pino has ready for the lines of a logger: the beginning by level, and the members that all have. */
interface LineBegins {
  readonly [symbols.lsCacheSym]: Readonly<Record<number, string>>;
  readonly [symbols.chindingsSym]: string;
}

/** One line; `time` is a member by itself. */
function plainLine(
  this: LineBegins,
  members: PlainMembers,
  ...[message, level, time]: [message: string, level: number, time: string]
): string {
  let line = `${this[symbols.lsCacheSym][level]}${time}${this[symbols.chindingsSym]}`;
  for (const name in members) {
    const value = members[name];
    if (value === null || value === undefined || value === false) continue;
    line += `,"${name}":${typeof value === 'number' ? tenths(value) : JSON.stringify(value)}`;
  }
  return `${line},"msg":${JSON.stringify(message)}}\n`;
}

function tenths(value: number): string {
  return Number.isFinite(value) ? String(Math.round(value * 10) / 10) : 'null';
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
