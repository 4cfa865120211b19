// From the configuration to what a regional router is told.

import type {
  PoolOptions,
  RouterOptions,
  RouterReloadable,
} from '../../router/regional/options.ts';
import { parseListen, type ListenAddress } from '../../shared/config/address.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { tenancyOptions } from './tenancy-options.ts';

export function routerOptions(config: FleetConfig): RouterOptions {
  const { clients, links, admin, addressProof, siblings, siblingNames, siblingTls, tier, global } =
    config.router;
  return {
    region: config.region,
    clients: { ...address(clients.listen), tls: clients.tls },
    links: { ...address(links.listen), tls: links.tls },
    admin: admin === null ? null : { ...address(admin.listen), tls: admin.tls },
    addressProof,
    siblings,
    siblingNames,
    siblingTls,
    tier: tier === null ? null : { ...address(tier.listen), tls: tier.tls },
    uplink: global === null ? null : { urls: global.urls, secret: global.secret, tls: global.tls },
    reloadable: routerReloadable(config),
  };
}

export function routerReloadable(config: FleetConfig): RouterReloadable {
  const { clients, links, tier, global } = config.router;
  return {
    linkSecrets: links.secrets,
    tierKeys: tier?.keys ?? [],
    ...(global === null ? {} : { uplinkSettings: global.settings }),
    tenancy: tenancyOptions(config, clients.keys, { region: config.region, zone: null }),
    pools: config.pools.map((pool) => poolOptions(pool, config.models)),
    settings: config.router.routing,
    limits: config.router.limits,
    surface: { cors: config.router.clients.cors, explain: config.router.clients.explain },
  };
}

function poolOptions(
  pool: FleetConfig['pools'][number],
  models: FleetConfig['models'],
): PoolOptions {
  const served = Object.entries(models).filter(([, model]) => model.pool === pool.id);
  return {
    id: pool.id,
    models: served.map(([name]) => name),
    aliases: Object.fromEntries(
      served.flatMap(([name, { engineModel }]) =>
        engineModel === null ? [] : [[name, engineModel]],
      ),
    ),
    revisions: Object.fromEntries(
      served.flatMap(([name, { revision }]) => (revision === null ? [] : [[name, revision]])),
    ),
    engineApiKey: pool.apiKey,
    agentSecrets: pool.agentSecrets,
    agentNames: pool.agentNames,
    engineTls: pool.engineTls,
    engineCidrs: pool.engineCidrs,
    enginePriority: pool.enginePriority,
    cacheSalt: pool.cacheSalt,
  };
}

/** The schema has checked the form. */
export function address(text: string): ListenAddress {
  const parsed = parseListen(text);
  if (parsed === null) throw new Error(`not host:port: ${text}`);
  return parsed;
}
