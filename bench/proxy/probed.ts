// The router with the probe in it (`router-probe.ts`), and how to ask the probe.

import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { waitFor } from '../../test/engines/wait.ts';
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

/** The router, everything on. `collect`: each look forces collections first. */
export async function probed(
  place: ArmPlace,
  { collect = false, flags = [] }: { collect?: boolean; flags?: readonly string[] } = {},
): Promise<Probed> {
  const path = join(place.folder, 'probe.json');
  const preload = join(import.meta.dirname, 'router-probe.ts');
  const arm = await spillway('spillway', place, {
    flags,
    env: (port) => ({
      PROBE_FILE: path,
      PROBE_PORT: String(port),
      NODE_OPTIONS: `--import=${preload}`,
      ...(collect ? { PROBE_COLLECT: '1' } : {}),
    }),
  });
  return { arm, look: () => ask(arm, path) };
}

function ask(arm: RunningArm, path: string): Promise<Probe> {
  rmSync(path, { force: true });
  arm.group?.signal('SIGUSR2');
  return waitFor({ what: 'the probe', limitMs: 10_000, everyMs: 20 }, () =>
    existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as Probe) : null,
  );
}
