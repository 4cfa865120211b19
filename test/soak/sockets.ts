// Sockets that processes of this machine hold, as Linux tells: whose, between which ports, in which state.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export interface SocketState {
  readonly localPort: number;
  readonly remotePort: number;
  readonly state: 'open' | 'half closed' | 'listening' | 'other';
}

/** By inode, from the text of `/proc/net/tcp` or `tcp6`. */
export function parseSockets(text: string): Map<string, SocketState> {
  const sockets = new Map<string, SocketState>();
  for (const line of text.split('\n').slice(1)) {
    const [, local, remote, state, , , , , , inode] = line.trim().split(/\s+/);
    if (local === undefined || remote === undefined || inode === undefined) continue;
    sockets.set(inode, {
      localPort: portOf(local),
      remotePort: portOf(remote),
      state: STATES[state ?? ''] ?? 'other',
    });
  }
  return sockets;
}

const STATES: Readonly<Record<string, SocketState['state']>> = {
  '01': 'open',
  // The other side has ended it, and this process has not.
  '08': 'half closed',
  '0A': 'listening',
};

function portOf(address: string): number {
  return Number.parseInt(address.slice(address.lastIndexOf(':') + 1), 16);
}

/** Those of one process; null where the machine does not tell. */
export function socketsOf(pid: number): readonly SocketState[] | null {
  try {
    const text = ['tcp', 'tcp6'].map((name) => readFileSync(`/proc/${pid}/net/${name}`, 'utf8'));
    const known = new Map(text.flatMap((each) => [...parseSockets(each)]));
    const inodes = readdirSync(`/proc/${pid}/fd`).flatMap((fd) => inodeOf(`/proc/${pid}/fd/${fd}`));
    return inodes.flatMap((inode) => known.get(inode) ?? []);
  } catch {
    // Another system, or the process is gone.
    return null;
  }
}

function inodeOf(path: string): string[] {
  try {
    const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(path))?.[1];
    return inode === undefined ? [] : [inode];
  } catch {
    // Closed since the folder was read.
    return [];
  }
}
