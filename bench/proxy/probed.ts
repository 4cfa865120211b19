// The router with the probe in it (`router-probe.ts`), and how to ask the probe.

import { connect } from 'node:net';
import { join } from 'node:path';
import type { ArmPlace, RunningArm } from './arms.ts';
import { spillway } from './spillway-arms.ts';

/** Since the last look, memory as it is now. */
export interface Probe {
  readonly loopMsP50: number;
  readonly loopMsP999: number;
  readonly loopMsMax: number;
  /** Writes to sockets of clients. */
  readonly clientWrites: number;
  readonly rss: number;
  /** Of the heap and of buffers outside of it. */
  readonly liveBytes: number;
}

export interface Probed {
  readonly arm: RunningArm;
  readonly look: () => Promise<Probe>;
}

let started = 0;

/** The router, everything on. `collect`: each look forces collections first. */
export async function probed(
  place: ArmPlace,
  { collect = false, flags = [] }: { collect?: boolean; flags?: readonly string[] } = {},
): Promise<Probed> {
  const path = join(place.folder, `probe-${started++}`);
  const preload = join(import.meta.dirname, 'router-probe.ts');
  const arm = await spillway('spillway', place, {
    flags,
    env: (port) => ({
      PROBE_SOCKET: path,
      PROBE_PORT: String(port),
      NODE_OPTIONS: `--import=${preload}`,
      ...(collect ? { PROBE_COLLECT: '1' } : {}),
    }),
  });
  return { arm, look: () => ask(path) };
}

async function ask(path: string): Promise<Probe> {
  const pieces: Buffer[] = [];
  for await (const piece of connect(path)) pieces.push(piece as Buffer);
  return JSON.parse(Buffer.concat(pieces).toString('utf8')) as Probe;
}
