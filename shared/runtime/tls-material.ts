// The TLS files of a process: read once for everybody who names the same ones, and again whenever they change.
//
//   change     their content is compared every `pollMs`: a rename, a rewrite and a swapped ConfigMap look alike
//   settling   certificate and key are replaced one after the other: what does not fit is looked at once more before
//              anybody is told
//   bad files  the old ones stay, with one warning that says which file and why
//   good ones  owners of listeners are told, and exchange their context; connections that stand are not touched
//
// Certificates that expire within `WARN_DAYS` are warned of once a day.

import { createSecureContext, type SecureContext } from 'node:tls';
import { readBounded } from '../config/read.ts';
import { FleetError } from '../errors.ts';
import type { Clock } from './clock.ts';
import type { Logger } from './log.ts';
import type { GaugeRow } from './metrics.ts';
import type { Timers } from './timers.ts';
import {
  dateText,
  readTls,
  type OwnCertificate,
  type TlsPaths,
  type TlsPems,
} from './tls-files.ts';

const POLL_MS = 5_000;
const DAY_MS = 86_400_000;
const WARN_DAYS = 14;

export interface TlsStoreOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly log: Logger;
  readonly pollMs?: number;
  /** Certificates have come, gone or changed. */
  readonly onChange?: () => void;
}

/** What a listener or a dialler uses, always in its newest good form. */
export interface TlsMaterial {
  readonly paths: TlsPaths;
  readonly pems: TlsPems;
  readonly context: SecureContext;
  readonly own: OwnCertificate | null;
  /** Grows with each change that was taken. */
  readonly version: number;
  /** Calls `task` after each change that was taken, until the returned function is called. */
  onChange(task: () => void): () => void;
}

export class TlsStore {
  private readonly options: TlsStoreOptions;
  private readonly entries = new Map<string, Entry>();
  private stopPolling: (() => void) | null = null;

  constructor(options: TlsStoreOptions) {
    this.options = options;
  }

  /** Throws a `FleetError` with one line where the files cannot be used. */
  open(paths: TlsPaths): TlsMaterial {
    const { clock, timers, log, pollMs } = this.options;
    const key = JSON.stringify([paths.cert, paths.key, paths.ca]);
    const found = this.entries.get(key);
    if (found !== undefined) return found;
    const entry = new Entry(paths, clock, log);
    entry.onChange(() => this.options.onChange?.());
    this.entries.set(key, entry);
    this.stopPolling ??= timers.every(pollMs ?? POLL_MS, () => this.look());
    return entry;
  }

  /** Looks at all files now. */
  look(): void {
    for (const entry of this.entries.values()) entry.look();
  }

  /** Forgets what nobody uses any more. */
  retain(used: ReadonlySet<TlsMaterial>): void {
    for (const [key, entry] of this.entries) if (!used.has(entry)) this.entries.delete(key);
  }

  /** When own certificates expire, in s since 1970; each file once. */
  expiries(): readonly GaugeRow[] {
    const byFile = new Map<string, GaugeRow>();
    for (const { own } of this.entries.values()) {
      if (own === null) continue;
      byFile.set(own.file, { labels: { file: own.file }, value: own.notAfterMs / 1_000 });
    }
    return [...byFile.values()];
  }

  close(): void {
    this.stopPolling?.();
    this.stopPolling = null;
    this.entries.clear();
  }
}

class Entry implements TlsMaterial {
  readonly paths: TlsPaths;
  pems: TlsPems;
  context: SecureContext;
  own: OwnCertificate | null;
  version = 1;
  private readonly clock: Clock;
  private readonly log: Logger;
  private readonly tasks = new Set<() => void>();
  /** What the files held when they were last looked at. */
  private seen: string;
  /** What was wrong when they were last looked at, and whether it was said. */
  private problem: { readonly error: string; said: boolean } | null = null;
  private warnedMs: number | null = null;

  constructor(paths: TlsPaths, clock: Clock, log: Logger) {
    this.paths = paths;
    this.clock = clock;
    this.log = log;
    this.seen = contentOf(paths);
    const reading = readTls(paths, clock.wallMs());
    if (!reading.ok) throw new FleetError('tls_unusable', reading.error);
    this.pems = reading.pems;
    this.own = reading.own;
    this.context = createSecureContext(reading.pems);
    this.warnOfExpiry();
  }

  onChange(task: () => void): () => void {
    this.tasks.add(task);
    return () => void this.tasks.delete(task);
  }

  look(): void {
    this.warnOfExpiry();
    const content = contentOf(this.paths);
    const unsaid = this.problem !== null && !this.problem.said;
    if (content === this.seen && !unsaid) return;
    this.seen = content;
    const reading = readTls(this.paths, this.clock.wallMs());
    if (!reading.ok) return this.refuse(reading.error);
    this.problem = null;
    if (!same(reading.pems, this.pems)) this.take(reading.pems, reading.own);
  }

  private refuse(error: string): void {
    if (this.problem?.error !== error) this.problem = { error, said: false };
    else if (!this.problem.said) {
      this.problem.said = true;
      this.log.warn(
        { problem: error },
        'certificate files cannot be used: the last good ones stay',
      );
    }
  }

  private take(pems: TlsPems, own: OwnCertificate | null): void {
    this.pems = pems;
    this.own = own;
    this.context = createSecureContext(pems);
    this.version += 1;
    this.warnedMs = null;
    const { cert, ca } = this.paths;
    const until = own === null ? {} : { subject: own.subject, until: until8601(own) };
    this.log.info({ file: cert ?? ca, ...until }, 'certificate files taken');
    for (const task of this.tasks) task();
    this.warnOfExpiry();
  }

  private warnOfExpiry(): void {
    const { own, clock, warnedMs } = this;
    const wallMs = clock.wallMs();
    if (own === null || own.notAfterMs - wallMs > WARN_DAYS * DAY_MS) return;
    if (warnedMs !== null && wallMs - warnedMs < DAY_MS) return;
    this.warnedMs = wallMs;
    const { file, subject, notAfterMs } = own;
    const words = notAfterMs < wallMs ? 'certificate has expired' : 'certificate expires soon';
    this.log.warn({ file, subject, until: until8601(own) }, words);
  }
}

function until8601({ notAfterMs }: OwnCertificate): string {
  return dateText(new Date(notAfterMs));
}

/** Equal while no file has changed; one that cannot be read counts as another content. */
function contentOf({ cert, key, ca }: TlsPaths): string {
  const parts = [cert, key, ca].map((file) => {
    if (file === null) return '';
    const read = readBounded(file);
    return read.ok ? read.text : read.error;
  });
  return parts.join('\0');
}

function same(a: TlsPems, b: TlsPems): boolean {
  return a.cert === b.cert && a.key === b.key && a.ca === b.ca;
}
