// What a global router process is told. Flags, environment and fleet.yaml all become this. Everything in `reloadable` is
// swapped at once with a new configuration generation; the rest needs a restart.

import type { ConversationIdSources } from '../../shared/model/conversation-ids.ts';
import type { GlobalSettings } from '../../shared/model/global-settings.ts';
import type { GatewayLimits, Listen, PeerTls, SurfaceOptions } from '../gateway/gateway-options.ts';
import type { TenancyOptions } from '../gateway/tenants.ts';
import type { TierKey } from '../gateway/tier-context.ts';
import type { RegionConfig, TenantFacts } from './events.ts';

/** A region: what it is, how it is known, and how it is reached. */
export interface RegionOptions extends RegionConfig {
  /** Of its further routers, where no one name stands for all of them. */
  readonly otherBaseUrls: readonly string[];
  /** Null: the CAs of the system. */
  readonly tls: PeerTls | null;
  /** Signs what it is told. */
  readonly tierKey: TierKey;
  /** Any of them says on a link that it is this region. */
  readonly linkSecrets: readonly string[];
  /** Names of which the certificate of a link must bear one; empty: the secrets alone count. */
  readonly linkNames: readonly string[];
}

export interface ProbeOptions {
  readonly intervalMs: number;
  readonly timeoutMs: number;
  /** Between two pieces, from which a stream is said to be held back, ms. */
  readonly gapMs: number;
}

export interface GlobalReloadable {
  readonly tenancy: TenancyOptions;
  /** By name; none at all: requests are of nobody in particular. */
  readonly tenants: ReadonlyMap<string, TenantFacts>;
  readonly regions: readonly RegionOptions[];
  readonly settings: GlobalSettings;
  readonly limits: GatewayLimits;
  readonly surface: SurfaceOptions;
  readonly conversationIds: ConversationIdSources;
  /** Of the keys by which conversations are known, and of hints: the first makes them. None: one is made, and nothing of before is known. */
  readonly affinitySecrets: readonly string[];
  /** Null: none. */
  readonly probes: ProbeOptions | null;
}

export interface GlobalOptions {
  /** In which it stands; null: none. */
  readonly zone: string | null;
  readonly clients: Listen;
  /** Where routers of regions link. */
  readonly links: Listen;
  /** `/metrics`, `/status`, `/readyz`, explain; null = on the client listener. */
  readonly admin: Listen | null;
  readonly reloadable: GlobalReloadable;
}
