// From the configuration to what an agent is told.

import type { AgentOptions } from '../../agent/options.ts';
import type { AgentConfig, FleetConfig } from '../../shared/config/schema.ts';
import { address } from './router-options.ts';

export function agentOptions(agent: AgentConfig, config: FleetConfig): AgentOptions {
  const pool = config.pools.find((candidate) => candidate.id === agent.pool);
  return {
    pool: agent.pool,
    engines: agent.engines.map(({ url, advertise, pidFile, unit, log, kind, kvEvents }) => ({
      url: withoutSlash(url),
      advertiseUrl: withoutSlash(advertise ?? url),
      pidFile,
      unit,
      log,
      kind,
      kvEvents,
    })),
    routers: agent.routers.map(withoutSlash),
    routerTls: agent.routerTls,
    engineTls: agent.engineTls,
    linkSecret: agent.secret,
    engineApiKey: agent.apiKey ?? pool?.apiKey ?? null,
    listen: address(agent.listen),
    settings: agent.settings,
  };
}

function withoutSlash(url: string): string {
  return url.replace(/\/$/, '');
}
