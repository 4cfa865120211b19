// From the configuration to what a global router is told.

import type {
  GlobalOptions,
  GlobalReloadable,
  RegionOptions,
} from '../../router/global/options.ts';
import type { TenantOptions } from '../../router/gateway/tenants.ts';
import type { FleetConfig, GlobalConfig, RegionConfig } from '../../shared/config/schema.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { address } from './router-options.ts';
import { tenancyOptions } from './tenancy-options.ts';

export function globalOptions(config: FleetConfig, global: GlobalConfig): GlobalOptions {
  const { zone, clients, links, admin } = global;
  return {
    zone,
    clients: { ...address(clients.listen), tls: clients.tls },
    links: { ...address(links.listen), tls: links.tls },
    admin: admin === null ? null : { ...address(admin.listen), tls: admin.tls },
    reloadable: globalReloadable(config, global),
  };
}

export function globalReloadable(config: FleetConfig, global: GlobalConfig): GlobalReloadable {
  const { clients, zone, routing, limits, conversationIds, probes } = global;
  const { affinitySecret, affinityOldSecrets } = global;
  return {
    tenancy: tenancyOptions(config, clients.keys, { region: null, zone }),
    tenants: new Map(
      config.tenants.map((tenant) => {
        const { name, models, certifications, tier, saltGroup } = tenant;
        const residency = tenant.residency as TenantOptions['residency'];
        const facts = { residency, models, certifications, tier, saltGroup: saltGroup ?? name };
        return [name, facts];
      }),
    ),
    regions: config.regions.map(regionOptions),
    settings: routing,
    limits,
    surface: { cors: clients.cors, explain: clients.explain },
    conversationIds,
    affinitySecrets: affinitySecret === null ? [] : [affinitySecret, ...affinityOldSecrets],
    probes,
  };
}

function regionOptions(region: RegionConfig): RegionOptions {
  const { name, zone, certifications, tiers, costMs, baseUrl, rollout } = region;
  const { otherBaseUrls, tls, tierKey, linkSecrets, linkNames } = region;
  // The check of the configuration asks for one where there is a global router.
  if (tierKey === null) throw new Error(`no tierKey for region ${name}`);
  return {
    id: name as RegionId,
    ...{ zone, certifications, tiers, costMs, baseUrl, rollout },
    ...{ otherBaseUrls, tls, tierKey, linkSecrets, linkNames },
  };
}
