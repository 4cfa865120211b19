// What an agent process is told. Flags, environment and fleet.yaml all become this.

import type { KvEventsOptions } from './policy/kv-event.ts';
import type { EngineKind } from '../shared/model/engine-kind.ts';
import type { AgentSettings } from '../shared/model/settings.ts';

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

export interface AgentOptions {
  readonly pool: string;
  readonly engines: readonly AgentEngineOptions[];
  /** `ws://host:port` each; a host name stands for all its addresses and is resolved again. */
  readonly routers: readonly string[];
  /** Bearer secret towards the routers' link listeners; null on loopback. */
  readonly linkSecret: string | null;
  /** Bearer key that the engines ask for; null when they ask for none. */
  readonly engineApiKey: string | null;
  /** `/livez`, `/readyz`, `/metrics`, `/status`, `/v1/proof`. */
  readonly listen: { readonly host: string; readonly port: number };
  readonly settings: AgentSettings;
}
