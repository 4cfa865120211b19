// The product's own defaults, as `spillway router` without a file has them: what the rungs of the ladder are started with.

import type { RouterOptions, RouterReloadable } from '../../router/regional/options.ts';
import { UNTENANTED } from '../../router/gateway/tenants.ts';
import { parseFleet } from '../../shared/config/load.ts';

const HOST = '127.0.0.1';

/** ms between two reports of an agent on the rungs that leave the agents' part out: the longest that can be set. */
export const RARE_REPORTS_MS = 1_000;

export function productReloadable(): RouterReloadable {
  const parsed = parseFleet({ file: null, text: '', environment: {}, overlays: [] });
  if (!parsed.ok) throw new Error(parsed.error);
  const { router, pools } = parsed.config;
  return {
    linkSecrets: [],
    tenancy: UNTENANTED,
    pools: pools.map((pool) => ({
      ...{ id: pool.id, models: [], aliases: {}, engineApiKey: null },
      ...{ agentSecrets: [], agentNames: [], engineTls: null, engineCidrs: pool.engineCidrs },
      ...{ enginePriority: pool.enginePriority, cacheSalt: pool.cacheSalt },
    })),
    settings: { ...router.routing, minReportIntervalMs: RARE_REPORTS_MS },
    limits: router.limits,
    surface: { cors: router.clients.cors, explain: router.clients.explain },
  };
}

export function productOptions(ports: { clients: number; links: number }): RouterOptions {
  return {
    region: 'bench',
    clients: { host: HOST, port: ports.clients },
    links: { host: HOST, port: ports.links },
    admin: null,
    addressProof: false,
    siblings: [],
    reloadable: productReloadable(),
  };
}
