// What a region that has nothing to do may hold: listeners, one link of each agent to each router, and kept connections to
// engines that are open on both sides. No connection of a client is among them, and none whose other side has gone.

import type { FaultRegion } from '../e2e/fault-region.ts';
import { socketsOf, type SocketState } from './sockets.ts';

/** Kept connections of one process to one engine, at most. */
const KEPT_MAX = 64;

/** What should not be there, in words; empty also where the machine does not tell. */
export function leftSockets(region: FaultRegion): string[] {
  const engines = new Set(region.engines.map(({ port }) => port));
  const routers = region.routers.flatMap(({ running, ports }, at) => {
    const sockets = held(running?.child.pid);
    return [
      ...halfClosed(sockets).map((each) => `router ${at}: ${each}`),
      ...sockets
        .filter(({ localPort, state }) => localPort === ports.clientsPort && state === 'open')
        .map(({ remotePort }) => `router ${at}: a client's connection from ${remotePort}`),
      ...tooMany(sockets, engines).map((each) => `router ${at}: ${each}`),
    ];
  });
  const agents = region.agents.flatMap(({ running }, at) => {
    const sockets = held(running.child.pid);
    return [...halfClosed(sockets), ...tooMany(sockets, engines)].map(
      (each) => `agent ${at}: ${each}`,
    );
  });
  return [...routers, ...agents];
}

function held(pid: number | undefined): readonly SocketState[] {
  return (pid === undefined ? null : socketsOf(pid)) ?? [];
}

function halfClosed(sockets: readonly SocketState[]): string[] {
  return sockets
    .filter(({ state }) => state === 'half closed')
    .map(({ localPort, remotePort }) => `half closed, ${localPort} to ${remotePort}`);
}

function tooMany(sockets: readonly SocketState[], engines: ReadonlySet<number>): string[] {
  const kept = Map.groupBy(
    sockets.filter(({ remotePort, state }) => engines.has(remotePort) && state === 'open'),
    ({ remotePort }) => remotePort,
  );
  return [...kept]
    .filter(([, open]) => open.length > KEPT_MAX)
    .map(([port, open]) => `${open.length} connections to engine ${port}`);
}
