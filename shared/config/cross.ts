// Rules between fields, which a schema cannot say. Each finding names the field to change.

import { isLoopback, parseListen } from './address.ts';
import type { Problem } from './diagnostics.ts';
import type { AgentConfig, FleetConfig } from './schema.ts';
import { didYouMean } from './suggest.ts';

export interface Given {
  /** The pools were written down, not assumed. */
  readonly pools: boolean;
}

export function crossProblems(config: FleetConfig, given: Given): readonly Problem[] {
  return [
    ...poolProblems(config),
    ...listenerProblems(config),
    ...limitProblems(config),
    ...regionProblems(config),
    ...(config.agent === undefined ? [] : agentProblems(config.agent, config, given)),
  ];
}

function poolProblems(config: FleetConfig): Problem[] {
  const ids = config.pools.map((pool) => pool.id);
  const problems: Problem[] = repeated(ids).map((i) => ({
    path: ['pools', i, 'id'],
    message: `pool "${ids[i] ?? ''}" stands here a second time`,
  }));
  for (const [model, { pool }] of Object.entries(config.models)) {
    if (ids.includes(pool)) continue;
    problems.push({
      path: ['models', model, 'pool'],
      message: `there is no pool "${pool}"${didYouMean(pool, ids)}`,
    });
  }
  return problems;
}

function listenerProblems(config: FleetConfig): Problem[] {
  const { clients, links, admin } = config.router;
  const problems: Problem[] = [];
  if (reachable(clients.listen) && clients.access !== 'open') {
    problems.push({
      path: ['router', 'clients', 'listen'],
      message:
        'is reachable from other machines, where anybody could use it: set router.clients.access (--access) to open, or listen on 127.0.0.1',
    });
  }
  const everyPoolHasSecrets = config.pools.every((pool) => pool.agentSecrets.length > 0);
  if (reachable(links.listen) && links.secrets.length === 0 && !everyPoolHasSecrets) {
    problems.push({
      path: ['router', 'links', 'listen'],
      message:
        'is reachable from other machines and needs router.links.secrets (SPILLWAY_LINK_SECRET)',
    });
  }
  const listeners: [string, string][] = [
    ['clients', clients.listen],
    ['links', links.listen],
  ];
  if (admin !== null) listeners.push(['admin', admin.listen]);
  for (const i of repeated(listeners.map(([, text]) => (text.endsWith(':0') ? null : text)))) {
    const [role, text] = listeners[i] ?? ['', ''];
    problems.push({
      path: ['router', role, 'listen'],
      message: `${text} is taken by another listener of this router`,
    });
  }
  return problems;
}

function limitProblems(config: FleetConfig): Problem[] {
  const { limits } = config.router;
  if (limits.bodyBytes <= limits.bodyBytesMax) return [];
  return [
    {
      path: ['router', 'limits', 'bodyBytes'],
      message: `must not exceed bodyBytesMax (${limits.bodyBytesMax} bytes)`,
    },
  ];
}

function regionProblems(config: FleetConfig): Problem[] {
  const names = config.regions.map((region) => region.name);
  const problems: Problem[] = repeated(names).map((i) => ({
    path: ['regions', i, 'name'],
    message: `region "${names[i] ?? ''}" stands here a second time`,
  }));
  if (names.length > 0 && !names.includes(config.region)) {
    problems.push({
      path: ['region'],
      message: `there is no region "${config.region}" under regions${didYouMean(config.region, names)}`,
    });
  }
  return problems;
}

function agentProblems(agent: AgentConfig, config: FleetConfig, given: Given): Problem[] {
  const problems: Problem[] = [];
  const pools = config.pools.map((pool) => pool.id);
  if (given.pools && !pools.includes(agent.pool)) {
    problems.push({
      path: ['agent', 'pool'],
      message: `there is no pool "${agent.pool}"${didYouMean(agent.pool, pools)}`,
    });
  }
  for (const i of repeated(agent.engines.map((engine) => sameMachineUrl(engine.url)))) {
    problems.push({
      path: ['agent', 'engines', i, 'url'],
      message: `${agent.engines[i]?.url ?? ''} is the same engine as an earlier one`,
    });
  }
  const elsewhere = agent.routers.findIndex((router) => !isLoopback(hostOf(router)));
  if (elsewhere >= 0 && agent.secret === null) {
    problems.push({
      path: ['agent', 'routers', elsewhere],
      message: 'is another machine and asks for a secret: set agent.secret (SPILLWAY_LINK_SECRET)',
    });
  }
  return problems;
}

/** `localhost` and 127.0.0.1 are one machine. */
export function sameMachineUrl(url: string): string {
  const parsed = new URL(url);
  const host = isLoopback(hostOf(url)) ? 'loopback' : parsed.hostname;
  const port = parsed.port === '' ? (parsed.protocol === 'https:' ? '443' : '80') : parsed.port;
  return `${host}:${port}`;
}

function hostOf(url: string): string {
  return new URL(url).hostname.replace(/^\[|\]$/g, '');
}

function reachable(listen: string): boolean {
  const address = parseListen(listen);
  return address !== null && !isLoopback(address.host);
}

/** Positions of what has stood before. */
function repeated(values: readonly (string | null)[]): number[] {
  return values.flatMap((value, i) => (value !== null && values.indexOf(value) < i ? [i] : []));
}
