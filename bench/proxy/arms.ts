// What an arm of the proxy benchmark is: a proxy before the same two replicas, started with the settings that its users
// would give it for streams, on core 0 alone. Everything else runs on core 1.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { startGroup, type ProcessGroup } from '../../test/engines/process-group.ts';
import { waitFor } from '../../test/engines/wait.ts';
import { startReplica } from './replica.ts';

export const HOST = '127.0.0.1';
export const START_MS = 60_000;
/** Of what a process said last, in an error. */
const LAST_CHARS = 300;

export interface ArmPlace {
  /** For configurations and logs. */
  readonly folder: string;
  /** Ports of the two replicas. */
  readonly replicas: readonly [number, number];
}

export interface RunningArm {
  readonly name: string;
  readonly url: string;
  /** Its processes' CPU and memory are the proxy's; null where there is none. */
  readonly group: ProcessGroup | null;
  /** A second tier's: its CPU counts, too. */
  readonly behind?: ProcessGroup;
  stop(): Promise<void>;
}

export interface Arm {
  readonly name: string;
  /** Why it cannot run here; null when it can. May install what it needs. */
  missing(say: (line: string) => void): string | null;
  start(place: ArmPlace): Promise<RunningArm>;
}

/** No proxy: what the others are compared to for the time that they add. */
export function directArm({ replicas }: ArmPlace): RunningArm {
  const url = urlOf(replicas[0]);
  return { name: 'direct', url, group: null, stop: async () => {} };
}

/** A command on one core, in a process group of its own. */
export function pinned(
  core: 0 | 1,
  command: readonly string[],
  at: { readonly logPath: string; readonly env?: Readonly<Record<string, string>> },
): ProcessGroup {
  return startGroup({ command: 'taskset', args: ['-c', String(core), ...command], ...at });
}

/** Puts this process, which makes the load, beside the replicas: beside the arm it would take its core at each chunk. */
export function pinLoad(): void {
  const pin = spawnSync('taskset', ['-a', '-c', '-p', '1', String(process.pid)]);
  if (pin.status !== 0) throw new Error('the load cannot be put on core 1 (taskset)');
}

/** The two replicas, in this process as the load is: each would wait for the other one's turn on the core. */
export async function startReplicas({ replicas }: ArmPlace): Promise<void> {
  for (const port of replicas) (await startReplica(port)).unref();
}

/** Starts a proxy on core 0 and waits until a request comes through it. */
export async function startProxy(
  name: string,
  command: readonly string[],
  at: { readonly port: number; readonly folder: string },
): Promise<RunningArm> {
  const group = pinned(0, command, { logPath: logOf(name, at.folder) });
  const url = urlOf(at.port);
  await waitFor({ what: `${name} answers`, limitMs: START_MS }, async () => {
    throwIfEnded(name, group, at.folder);
    return (await completes(url)) ? true : null;
  });
  return { name, url, group, stop: () => group.stop(1_000) };
}

/** Where an arm's processes write what they say. */
export function logOf(name: string, folder: string): string {
  return join(folder, `${name}.log`);
}

/** With the last that it said. */
export function throwIfEnded(name: string, group: ProcessGroup, folder: string): void {
  if (group.ended() === null) return;
  const last = readFileSync(logOf(name, folder), 'utf8').trim().split('\n').at(-1) ?? '';
  throw new Error(`${name} ended (${String(group.ended())}): ${last.slice(0, LAST_CHARS)}`);
}

export function urlOf(port: number): string {
  return `http://${HOST}:${port}`;
}

async function completes(url: string): Promise<boolean> {
  const asked = fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'bench-model', messages: [{ role: 'user', content: 'hi' }] }),
    signal: AbortSignal.timeout(2_000),
  });
  return asked.then(
    async (answer) => answer.ok && (await answer.text()).endsWith('}'),
    () => false,
  );
}
