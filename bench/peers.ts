// Other routers, as their users get them: a pinned version of each from its public package, in a Python environment of
// its own outside the tree, and the command that puts it before some workers.
//
// A peer that cannot be installed is a reason in words: the arm is skipped with it, never silently absent.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

export type PeerName = 'vllm-router' | 'smg';
export type PeerPolicy = 'cache_aware' | 'round_robin';

/** Where a peer listens, and before whom it stands. */
export interface PeerPlace {
  readonly port: number;
  readonly metricsPort: number;
  readonly workerUrls: readonly string[];
  readonly policy: PeerPolicy;
}

interface Peer {
  readonly version: string;
  flags(place: PeerPlace): readonly string[];
}

const HOST = '127.0.0.1';
const INSTALL_LIMIT_MS = 10 * 60_000;

export const PEERS: Readonly<Record<PeerName, Peer>> = {
  'vllm-router': {
    version: '0.1.17',
    flags: ({ port, metricsPort, workerUrls, policy }) => [
      ...['--host', HOST, '--port', String(port), '--prometheus-port', String(metricsPort)],
      ...['--worker-urls', ...workerUrls, '--policy', policy],
      ...['--worker-startup-check-interval', '1', '--log-level', 'warning'],
    ],
  },
  smg: {
    version: '1.13.0',
    flags: ({ port, metricsPort, workerUrls, policy }) => [
      ...['launch', '--host', HOST, '--port', String(port)],
      ...['--prometheus-host', HOST, '--prometheus-port', String(metricsPort)],
      ...['--worker-urls', ...workerUrls, '--policy', policy],
      ...['--disable-tokenizer-autoload', '--log-level', 'warn'],
      // As after its first minute, in which it sends cache misses to whatever worker it calls new: here all are.
      ...['--worker-warmup-secs', '0', '--worker-startup-check-interval', '1'],
    ],
  },
};

export function peerCommand(name: PeerName, place: PeerPlace): readonly string[] {
  return [join(folderOf(name), 'bin', name), ...PEERS[name].flags(place)];
}

/** Installs it where it is missing (a minute each); says why that failed, else null. */
export function preparePeer(name: PeerName, say: (line: string) => void): string | null {
  const folder = folderOf(name);
  const done = join(folder, '.complete');
  if (existsSync(done)) return null;
  const pinned = `${name}==${PEERS[name].version}`;
  say(`installing ${pinned} into ${folder}`);
  // What an interrupted run left is not trusted.
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const failed =
    failureOf('python3', ['-m', 'venv', folder]) ??
    failureOf(join(folder, 'bin', 'pip'), ['install', '-q', pinned]);
  if (failed !== null) return `${pinned} could not be installed: ${failed}`;
  writeFileSync(done, '');
  return null;
}

/** Outside the source tree, kept between runs. */
function folderOf(name: PeerName): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
  const root = process.env['SPILLWAY_PEERS'] ?? join(cache, 'spillway-peers');
  return join(root, `${name}-${PEERS[name].version}`);
}

function failureOf(command: string, args: readonly string[]): string | null {
  const ran = spawnSync(command, args, { encoding: 'utf8', timeout: INSTALL_LIMIT_MS });
  if (ran.error !== undefined) return ran.error.message;
  if (ran.status === 0) return null;
  return ran.stderr.trim().split('\n').at(-1) ?? `${command} ended with ${ran.status}`;
}
