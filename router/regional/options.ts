// What a regional router process is told. Flags, environment and fleet.yaml all become this. Everything in
// `reloadable` is swapped at once with a new configuration generation; the rest needs a restart.

import type { CorsPolicy } from '../gateway/cors.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';

export interface Listen {
  readonly host: string;
  readonly port: number;
}

export interface PoolOptions {
  readonly id: string;
  readonly models: readonly string[];
  readonly aliases: Readonly<Record<string, string>>;
  /** Bearer key for the engines of this pool; the client's own credentials never reach them. */
  readonly engineApiKey: string | null;
  /** Link secrets that agents of this pool may use; empty = the region's `linkSecrets`. */
  readonly agentSecrets: readonly string[];
  /** CIDRs in which advertised engine addresses must lie; empty = loopback only. */
  readonly engineCidrs: readonly string[];
  /** Engines understand `priority` (`--scheduling-policy priority`): splice ours in. */
  readonly enginePriority: boolean;
  /** `cache_salt` spliced into every engine request; null = none. */
  readonly cacheSalt: string | null;
}

export interface GatewayLimits {
  /** One request body, bytes. */
  readonly bodyBytes: number;
  /** Times its encoded size that a compressed body may have. */
  readonly bodyRatio: number;
  /** All request bodies in memory together, bytes. */
  readonly bodyBytesMax: number;
  /** Nesting of a request's JSON. */
  readonly jsonDepth: number;
  readonly openRequests: number;
  readonly headerBytes: number;
  /** From the first byte to the end of a request's head and body, ms. */
  readonly requestTimeoutMs: number;
  /** How long an idle connection of a client is kept, ms. */
  readonly keepAliveMs: number;
}

/** What clients are offered beside the routes themselves. */
export interface SurfaceOptions {
  /** Pages of other origins that may use it; null = none. */
  readonly cors: CorsPolicy | null;
  /** `x-spillway-explain: 1` is answered: it tells replicas and their load. */
  readonly explain: boolean;
}

export interface RouterReloadable {
  readonly pools: readonly PoolOptions[];
  readonly settings: RegionalSettings;
  readonly limits: GatewayLimits;
  readonly surface: SurfaceOptions;
}

export interface RouterOptions {
  readonly region: string;
  readonly clients: Listen;
  readonly links: Listen;
  /** `/metrics`, `/status`, `/readyz`, explain; null = on the client listener (the demo). */
  readonly admin: Listen | null;
  /** Accepted bearer secrets on links; empty is allowed on loopback only. */
  readonly linkSecrets: readonly string[];
  /** Ask agents to prove that they sit beside the engine that they advertise. */
  readonly addressProof: boolean;
  /** Link addresses of all routers of the region, this one included, as agents reach them. */
  readonly siblings: readonly string[];
  readonly reloadable: RouterReloadable;
}
