// Hot reload: a change of the file becomes a new generation as a whole, or nothing happens at all.
//
// The folder is watched, not the file, so that a rename onto it and a swap of a ConfigMap's `..data` link are seen;
// where the file is itself a link to another folder, or the watch is lost, a slow poll of the content sees it. A
// writer gets a moment to finish before the file is read. The same content is never taken twice, unless it is asked
// for (SIGHUP).

import { watch } from 'node:fs';
import { dirname } from 'node:path';
import type { Timers } from '../runtime/timers.ts';
import type { FleetConfig } from './schema.ts';
import type { FleetResult } from './load.ts';
import { readBounded } from './read.ts';
import { restartFields, type ConfigRole } from './restart.ts';
import type { ConfigState, ConfigView } from './state.ts';

export interface ReloadOptions {
  readonly file: string;
  readonly role: ConfigRole;
  /** What the process was started with, and the text that it was made from. */
  readonly running: FleetConfig;
  readonly text: string;
  readonly parse: (text: string) => FleetResult;
  /** Swaps the new generation in; throws when it cannot. A promise is waited for. */
  readonly apply: (config: FleetConfig) => unknown;
  readonly state: ConfigState;
  /** Told after every attempt. */
  readonly told: (view: ConfigView) => void;
  readonly timers: Timers;
  /** ms that a writer gets to finish. */
  readonly settleMs?: number;
  /** ms between two looks at the content. */
  readonly pollMs?: number;
}

export interface Reloader {
  /** Reads the file now, changed or not. */
  reload(): void;
  close(): void;
}

export function startReload(options: ReloadOptions): Reloader {
  const { file, timers, state } = options;
  let seen: string | null = options.text;
  let cancelSettle: (() => void) | null = null;
  let closed = false;
  let applying = false;
  /** A look that waits for a change that is being applied, and whether it was asked for by name. */
  let due: { force: boolean } | null = null;

  const take = (force: boolean): void => {
    cancelSettle = null;
    if (applying) {
      due = { force: force || due?.force === true };
      return;
    }
    const read = readBounded(file);
    const content = read.ok ? read.text : null;
    if (!force && content === seen) return;
    seen = content;
    const view = attempt(read.ok ? options.parse(read.text) : read, options, state);
    if (!(view instanceof Promise)) return options.told(view);
    applying = true;
    void view.then((outcome) => {
      applying = false;
      options.told(outcome);
      const next = due;
      due = null;
      if (next !== null && !closed) take(next.force);
    });
  };
  const soon = (): void => {
    cancelSettle?.();
    cancelSettle = timers.after(options.settleMs ?? 100, () => take(false));
  };
  const stopWatch = watchFolder(dirname(file), soon);
  const look = (): void => {
    if (contentOf(file) !== seen) soon();
  };
  const stopPoll = timers.every(options.pollMs ?? 5_000, look);
  // It may have changed between its first reading and the watch.
  look();
  return {
    reload: () => take(true),
    close() {
      closed = true;
      stopPoll();
      stopWatch();
      cancelSettle?.();
    },
  };
}

function attempt(
  result: FleetResult,
  options: ReloadOptions,
  state: ConfigState,
): ConfigView | Promise<ConfigView> {
  if (!result.ok) return state.refused(result.error);
  const { config } = result;
  const taken = (): ConfigView => state.taken(restartFields(options.running, config, options.role));
  const refused = (cause: unknown): ConfigView =>
    state.refused(cause instanceof Error ? cause.message : String(cause));
  try {
    const applied = options.apply(config);
    return applied instanceof Promise ? applied.then(taken, refused) : taken();
  } catch (cause) {
    return refused(cause);
  }
}

/** Null while the file cannot be read: a different content than any that can. */
function contentOf(file: string): string | null {
  const read = readBounded(file);
  return read.ok ? read.text : null;
}

/** A folder that cannot be watched leaves the poll to see changes. */
function watchFolder(folder: string, changed: () => void): () => void {
  try {
    const watcher = watch(folder, { persistent: false }, changed);
    watcher.on('error', () => watcher.close());
    return () => watcher.close();
  } catch {
    return () => undefined;
  }
}
