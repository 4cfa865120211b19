// Child processes that never outlive the run: each leads its own process group, and every group is killed when the
// run ends, fails or is interrupted. A child's output goes to a file.

import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';

export interface GroupOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Gets stdout and stderr, appended. */
  readonly logPath: string;
}

export interface ProcessGroup {
  readonly pid: number;
  /** Exit code or signal name once it has ended, else null. */
  ended(): number | string | null;
  /** Resolves when the leader has ended. */
  readonly end: Promise<number | string>;
  /** Signals the whole group; nothing when it is gone. */
  signal(signal: NodeJS.Signals): void;
  /** SIGTERM to the leader, then SIGKILL to the group after `graceMs`; resolves when the leader is gone. */
  stop(graceMs: number): Promise<void>;
}

const groups = new Set<ProcessGroup>();

export function startGroup(options: GroupOptions): ProcessGroup {
  const log = openSync(options.logPath, 'a');
  const child = spawn(options.command, options.args, {
    detached: true,
    stdio: ['ignore', log, log],
    env: { ...process.env, ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  closeSync(log);
  let outcome: number | string | null = null;
  const end = new Promise<number | string>((resolve) => {
    child.once('error', (error) => resolve((outcome = error.message)));
    child.once('exit', (code, signal) => resolve((outcome = code ?? signal ?? 0)));
  });
  const pid = child.pid ?? -1;
  const group: ProcessGroup = {
    pid,
    ended: () => outcome,
    end,
    signal: (signal) => signalGroup(pid, signal),
    stop: (graceMs) => stopGroup(group, graceMs),
  };
  groups.add(group);
  return group;
}

/** Kills every group that was started; safe to call from an exit handler. */
export function killAllGroups(): void {
  for (const group of groups) group.signal('SIGKILL');
}

/** Makes an interrupted or failing run take its children with it. */
export function killGroupsOnExit(): void {
  process.once('exit', killAllGroups);
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const) {
    process.once(signal, () => process.exit(code));
  }
}

async function stopGroup(group: ProcessGroup, graceMs: number): Promise<void> {
  if (group.ended() === null) {
    try {
      process.kill(group.pid, 'SIGTERM');
    } catch {
      // Already gone: its exit event is on the way.
    }
    const timer = setTimeout(() => group.signal('SIGKILL'), graceMs);
    await group.end;
    clearTimeout(timer);
  }
  group.signal('SIGKILL');
  groups.delete(group);
}

function signalGroup(pid: number, signal: NodeJS.Signals): void {
  if (pid <= 0) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // No process of the group is left.
  }
}
