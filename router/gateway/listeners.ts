// The HTTP listeners of a router, by name: opened one after the other, changed and closed together.

import type { ConnectionSource } from '../../shared/runtime/handed-connections.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { HandshakeFailed, ServerTls } from '../../shared/runtime/tls-server.ts';
import type { Door } from './client-door.ts';
import type { CorsPolicy } from './cors.ts';
import type { GatewayMetric } from './gateway-metrics.ts';
import type { GatewayLimits, Listen } from './gateway-options.ts';
import {
  startHttpListener,
  type HttpListener,
  type ListenerLimits,
  type Route,
} from './http-listener.ts';
import type { Unserved } from './unserved.ts';

const IDLE_CONNECTIONS = 4_096;

export interface ListenersDeps {
  readonly runtime: RoleRuntime;
  readonly metrics: Metrics<GatewayMetric>;
  readonly unserved: Unserved;
  readonly cors: () => CorsPolicy | null;
  readonly leaving: () => boolean;
}

export interface ListenerOrder {
  readonly listen: Listen;
  /** Connections that another process accepts; absent: it listens itself. */
  readonly source?: ConnectionSource | undefined;
  readonly tls: ServerTls | null;
  readonly handshakeFailed: HandshakeFailed;
  readonly door: Door;
  readonly routes: readonly Route[];
  /** Pages of browsers have no business there, whatever the configuration allows them. */
  readonly pageless?: boolean;
  /** Who asks there is the tier before, which reads little of an answer's head. */
  readonly bare?: boolean;
}

export class Listeners<Name extends string> {
  private readonly deps: ListenersDeps;
  private readonly open = new Map<Name, HttpListener>();
  private limits: GatewayLimits;

  constructor(deps: ListenersDeps, limits: GatewayLimits) {
    this.deps = deps;
    this.limits = limits;
  }

  /** Listens, and says at which port. */
  async add(name: Name, order: ListenerOrder): Promise<number> {
    const { runtime, metrics, unserved, cors, leaving } = this.deps;
    const { clock, timers } = runtime;
    const listener = await startHttpListener({
      ...order,
      clock,
      timers,
      limits: listenerLimits(this.limits),
      cors: order.pageless === true ? () => null : cors,
      leaving,
      onRefused: (call, error) => unserved.refused(call, error),
      onLimit: (limit) => metrics.add('limit_hits_total', { limit }),
      onUnparsed: (code, limit) => unserved.unparsed(code, limit),
    });
    this.open.set(name, listener);
    return listener.port;
  }

  configure(limits: GatewayLimits): void {
    this.limits = limits;
    for (const listener of this.open.values()) listener.configure(listenerLimits(limits));
  }

  /** Open connections of each, idle ones included. */
  connections(): Readonly<Record<string, number>> {
    return Object.fromEntries([...this.open].map(([name, { connections }]) => [name, connections]));
  }

  async close(): Promise<void> {
    await Promise.all([...this.open.values()].map((listener) => listener.close()));
  }
}

/** Every open request has a connection; this many more may be idle. */
export function listenerLimits(limits: GatewayLimits): ListenerLimits {
  const { headerBytes, requestTimeoutMs, keepAliveMs, clientStallMs, openRequests } = limits;
  return {
    headerBytes,
    requestTimeoutMs,
    keepAliveMs,
    clientStallMs,
    connections: openRequests + IDLE_CONNECTIONS,
  };
}
