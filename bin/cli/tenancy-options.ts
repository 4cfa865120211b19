// From the configuration to whose requests a router takes: the same for both tiers, but for where the router stands.

import type { PlacedRegion, TenancyOptions, TenantOptions } from '../../router/gateway/tenants.ts';
import type { FleetConfig, RegionConfig, TenantConfig } from '../../shared/config/schema.ts';
import type { RegionId } from '../../shared/model/ids.ts';

const HASH = 'sha256:';

export interface Stands {
  /** Null: a global router. */
  readonly region: string | null;
  /** Of a global router: a region's routers stand in the zone of their region. */
  readonly zone: string | null;
}

type Keys = FleetConfig['router']['clients']['keys'];

export function tenancyOptions(config: FleetConfig, keys: Keys, stands: Stands): TenancyOptions {
  const { tenants, regions, zones } = config;
  const own = regions.find(({ name }) => name === stands.region);
  return {
    clientKeys: hashed(keys),
    tenants: tenants.map(tenantOptions),
    place: {
      region: stands.region === null ? null : placed(stands.region, own),
      zone: own?.zone ?? stands.zone,
      zones: Object.fromEntries(regions.map(({ name, zone }) => [name, zone])),
      clientsUrls: Object.fromEntries(
        Object.entries(zones).map(([zone, { clientsUrl }]) => [zone, clientsUrl]),
      ),
    },
  };
}

/** A tenant as routers have it. */
export function tenantOptions(tenant: TenantConfig): TenantOptions {
  const { name, keys, ingress, models, certifications, tier, saltGroup, operator } = tenant;
  return {
    ...{ name, ingress, models, certifications, tier },
    keys: hashed(keys),
    residency: tenant.residency as TenantOptions['residency'],
    saltGroup: saltGroup ?? name,
    operator,
  };
}

function placed(region: string, own: RegionConfig | undefined): PlacedRegion {
  return {
    id: region as RegionId,
    certifications: own?.certifications ?? null,
    tiers: own?.tiers ?? null,
  };
}

function hashed(keys: Keys) {
  return keys.map(({ name, hash }) => ({ name, sha256: hash.slice(HASH.length) }));
}
