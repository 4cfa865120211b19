// What a regional router process is told. Flags, environment and fleet.yaml all become this. Everything in
// `reloadable` is swapped at once with a new configuration generation; the rest needs a restart.

import type { GatewayLimits, Listen, PeerTls, SurfaceOptions } from '../gateway/gateway-options.ts';
import type { TenancyOptions } from '../gateway/tenants.ts';
import type { TierKey } from '../gateway/tier-context.ts';
import type { UplinkSettings } from '../../shared/model/global-settings.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';

/** Global routers that this router dials. */
export interface UplinkOptions {
  /** `ws://host:port` or `wss://host:port`; a name stands for all its addresses. */
  readonly urls: readonly string[];
  /** Says which region this is; null: a certificate does. */
  readonly secret: string | null;
  /** For `wss`; null: the system's CAs, and no certificate of our own. */
  readonly tls: PeerTls | null;
}

export interface PoolOptions {
  readonly id: string;
  readonly models: readonly string[];
  readonly aliases: Readonly<Record<string, string>>;
  /** Public name → the one revision that it stands for. Absent: names stand for whatever runs. */
  readonly revisions?: Readonly<Record<string, string>>;
  /** Bearer key for the engines of this pool; the client's own credentials never reach them. */
  readonly engineApiKey: string | null;
  /** Link secrets that agents of this pool may use; empty = the region's. */
  readonly agentSecrets: readonly string[];
  /** Names of which an agent's certificate must bear one to speak for this pool; empty = any. */
  readonly agentNames: readonly string[];
  /** Null: the system's CAs, and no certificate of our own. */
  readonly engineTls: PeerTls | null;
  /** CIDRs in which advertised engine addresses must lie; empty = loopback only. */
  readonly engineCidrs: readonly string[];
  /** Engines understand `priority` (`--scheduling-policy priority`): splice ours in. */
  readonly enginePriority: boolean;
  /** `cache_salt` spliced into every engine request, the tenant's salt group added; null = none but that. */
  readonly cacheSalt: string | null;
}

export interface RouterReloadable {
  /** Accepted bearer secrets on links; empty is allowed on loopback, and where certificates are required. */
  readonly linkSecrets: readonly string[];
  /** Keys of clients, and whose they are. */
  readonly tenancy: TenancyOptions;
  readonly pools: readonly PoolOptions[];
  readonly settings: RegionalSettings;
  readonly limits: GatewayLimits;
  readonly surface: SurfaceOptions;
  /** Keys whose signed contexts are accepted on the tier listener. Absent: none. */
  readonly tierKeys?: readonly TierKey[];
  /** Absent: as they are by default. */
  readonly uplinkSettings?: UplinkSettings;
}

export interface RouterOptions {
  readonly region: string;
  readonly clients: Listen;
  readonly links: Listen;
  /** `/metrics`, `/status`, `/readyz`, explain; null = on the client listener (the demo). */
  readonly admin: Listen | null;
  /** Where global routers send requests. Absent or null: nowhere. */
  readonly tier?: Listen | null;
  /** Absent or null: it stands for itself. */
  readonly uplink?: UplinkOptions | null;
  /** Ask agents to prove that they sit beside the engine that they advertise. */
  readonly addressProof: boolean;
  /** Link addresses of all routers of the region, this one included, as agents reach them. */
  readonly siblings: readonly string[];
  /** Names of which a certificate must bear one to link as a router of this region. */
  readonly siblingNames?: readonly string[];
  /** What siblings must prove where they are dialled over TLS. Absent or null: what this router itself shows and asks of agents. */
  readonly siblingTls?: PeerTls | null;
  readonly reloadable: RouterReloadable;
}
