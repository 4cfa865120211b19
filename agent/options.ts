// What an agent process is told. Flags, environment and fleet.yaml all become this.

import type { KvEventsOptions } from './policy/kv-event.ts';
import type { EngineKind } from '../shared/model/engine-kind.ts';
import type { AgentSettings } from '../shared/model/settings.ts';
import type { TlsPaths } from '../shared/runtime/tls-files.ts';

export interface AgentEngineOptions {
  /** Base URL at which the agent reaches the engine, no path. */
  readonly url: string;
  /** Base URL at which routers reach it; the same where they share a host. */
  readonly advertiseUrl: string;
  readonly pidFile: string | null;
  /** Null or absent: its KV events are not heard. */
  readonly kvEvents?: KvEventsOptions | null;
  /** Name of its systemd unit. */
  readonly unit?: string | null;
  /** Path of the file that it logs to. */
  readonly log?: string | null;
  /** Of what the engine is; null or absent: found out. */
  readonly kind?: EngineKind | null;
}

/** What servers that the agent connects to must prove, and the certificate that they are shown. */
export interface PeerTlsOptions extends TlsPaths {
  /** The name that their certificates must be for; null: that of the URL. */
  readonly serverName: string | null;
}

export interface AgentOptions {
  readonly pool: string;
  readonly engines: readonly AgentEngineOptions[];
  /** `ws://host:port` each; a host name stands for all its addresses and is resolved again. */
  readonly routers: readonly string[];
  /** Bearer secret towards the routers' link listeners; null on loopback. */
  readonly linkSecret: string | null;
  /** For `wss` routers; null or absent: the system's CAs, and no certificate of our own. */
  readonly routerTls?: PeerTlsOptions | null;
  /** The same for `https` engines. */
  readonly engineTls?: PeerTlsOptions | null;
  /** Bearer key that the engines ask for; null when they ask for none. */
  readonly engineApiKey: string | null;
  /** `/livez`, `/readyz`, `/metrics`, `/status`, `/v1/proof`. */
  readonly listen: { readonly host: string; readonly port: number };
  readonly settings: AgentSettings;
}
