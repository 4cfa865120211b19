// Rules between fields, which a schema cannot say. Each finding names the field to change.

import { workerLinkPort } from '../model/worker-ports.ts';
import { isLoopback, parseListen } from './address.ts';
import { globalProblems } from './cross-global.ts';
import type { Problem } from './diagnostics.ts';
import type { AgentConfig, FleetConfig } from './schema.ts';
import type { PeerTls } from './schema-tls.ts';
import type { Path } from './schema-walk.ts';
import { didYouMean } from './suggest.ts';

export interface Given {
  /** The pools were written down, not assumed. */
  readonly pools: boolean;
  /** So was the region. */
  readonly region: boolean;
}

export function crossProblems(config: FleetConfig, given: Given): readonly Problem[] {
  return [
    ...poolProblems(config),
    ...listenerProblems(config),
    ...linkProblems(config),
    ...workerProblems(config),
    ...tlsProblems(config),
    ...keyProblems(config),
    ...limitProblems(config),
    ...boundProblems(config),
    ...regionProblems(config, given),
    ...globalProblems(config),
    ...(config.agent === undefined ? [] : agentProblems(config.agent, config, given)),
  ];
}

/** The least, the start and the greatest bound of working-set admission are in this order. */
function boundProblems({ router }: FleetConfig): Problem[] {
  const { workingSetBound, workingSetBoundMin, workingSetBoundMax } = router.routing;
  if (workingSetBound === null) return [];
  if (workingSetBoundMin <= workingSetBound && workingSetBound <= workingSetBoundMax) return [];
  return [
    {
      path: ['router', 'routing', 'workingSetBound'],
      message: `is ${workingSetBound}, which is not between workingSetBoundMin (${workingSetBoundMin}) and workingSetBoundMax (${workingSetBoundMax})`,
    },
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
  const keyed = clients.keys.length > 0 || config.tenants.some(({ keys }) => keys.length > 0);
  const needed = keyed || clients.tls?.clientAuth === 'required';
  if (reachable(clients.listen) && clients.access !== 'open' && !needed) {
    problems.push({
      path: ['router', 'clients', 'listen'],
      message:
        'is reachable from other machines, where anybody could use it: give router.clients.keys (spillway key new), set router.clients.access (--access) to open, or listen on 127.0.0.1',
    });
  }
  if (clients.access === 'open' && clients.keys.length > 0) {
    problems.push({
      path: ['router', 'clients', 'access'],
      message: 'is open to everybody, but there are keys: take one of the two away',
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

/** `auto` is as many as there are cores: what that is is known where it starts. */
function workerProblems({ router }: FleetConfig): Problem[] {
  const { workers, links, clients, admin } = router;
  if (workers === 1) return [];
  if (admin === null) {
    const message =
      'is needed with workers: their parent answers operators there (one process, as in up and demo, has none)';
    return [{ path: ['router', 'admin'], message }];
  }
  const port = parseListen(links.listen)?.port ?? 0;
  if (workers === 'auto' || port === 0) return [];
  const first = workerLinkPort(port, 2);
  const last = workerLinkPort(port, workers);
  const path = ['router', 'links', 'listen'];
  if (last > 65_535) {
    return [{ path, message: `leaves no room for ${workers} workers: they go up to port ${last}` }];
  }
  const met = [clients.listen, admin.listen].find((text) => {
    const other = parseListen(text)?.port ?? 0;
    return other >= first && other <= last;
  });
  if (met === undefined) return [];
  const message = `gives further workers the ports ${first} to ${last}, and ${met} is another listener of this router`;
  return [{ path, message }];
}

/** A secret that can be guessed protects nothing. */
const SECRET_CHARACTERS_MIN = 16;

function linkProblems({ router: { links }, pools }: FleetConfig): Problem[] {
  if (!reachable(links.listen)) return [];
  const short = (text: string): boolean => text.length < SECRET_CHARACTERS_MIN;
  const message = `is shorter than ${SECRET_CHARACTERS_MIN} characters, and agents come from other machines`;
  const problems: Problem[] = [
    ...links.secrets.flatMap((text, i): Problem[] =>
      short(text) ? [{ path: ['router', 'links', 'secrets', i], message }] : [],
    ),
    ...pools.flatMap(({ agentSecrets }, pool) =>
      agentSecrets.flatMap((text, i): Problem[] =>
        short(text) ? [{ path: ['pools', pool, 'agentSecrets', i], message }] : [],
      ),
    ),
  ];
  const certified = links.tls?.clientAuth === 'required';
  const everyPoolHasSecrets = pools.every((pool) => pool.agentSecrets.length > 0);
  if (links.secrets.length > 0 || everyPoolHasSecrets || certified) return problems;
  const path = ['router', 'links', 'listen'];
  const missing =
    'is reachable from other machines and needs router.links.secrets (SPILLWAY_LINK_SECRET) or certificates (router.links.tls.clientAuth: required)';
  return [...problems, { path, message: missing }];
}

function tlsProblems({ router, pools, agent, global, regions }: FleetConfig): Problem[] {
  const listeners = [
    ['router.clients', router.clients.tls],
    ['router.links', router.links.tls],
    ['router.admin', router.admin?.tls ?? null],
    ['router.tier', router.tier?.tls ?? null],
    ['global.clients', global?.clients.tls ?? null],
    ['global.links', global?.links.tls ?? null],
    ['global.admin', global?.admin?.tls ?? null],
  ] as const;
  const peers: [Path, PeerTls | null][] = pools.map((pool, i) => [
    ['pools', i, 'engineTls'],
    pool.engineTls,
  ]);
  for (const [i, { tls }] of regions.entries()) peers.push([['regions', i, 'tls'], tls]);
  peers.push([['router', 'siblingTls'], router.siblingTls]);
  if (router.global !== null) peers.push([['router', 'global', 'tls'], router.global.tls]);
  if (agent !== undefined) {
    peers.push(
      [['agent', 'routerTls'], agent.routerTls],
      [['agent', 'engineTls'], agent.engineTls],
    );
  }
  return [
    ...listeners.flatMap(([name, tls]): Problem[] => {
      if (tls === null || tls.clientAuth === 'none' || tls.ca !== null) return [];
      const message = `is ${tls.clientAuth}, but of which CAs? Name their file in ${name}.tls.ca`;
      return [{ path: [...name.split('.'), 'tls', 'clientAuth'], message }];
    }),
    ...peers.flatMap(([path, tls]): Problem[] => {
      if (tls === null || (tls.cert === null) === (tls.key === null)) return [];
      const [there, missing] = tls.cert === null ? ['key', 'cert'] : ['cert', 'key'];
      return [{ path: [...path, there], message: `stands alone: ${missing} is needed beside it` }];
    }),
  ];
}

function keyProblems({ router }: FleetConfig): Problem[] {
  const hashes = router.clients.keys.map(({ hash }) => hash);
  return repeated(hashes).map((i) => ({
    path: ['router', 'clients', 'keys', i, 'hash'],
    message: 'stands here a second time: one key is of one client',
  }));
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

function regionProblems(config: FleetConfig, given: Given): Problem[] {
  const names = config.regions.map((region) => region.name);
  const problems: Problem[] = repeated(names).map((i) => ({
    path: ['regions', i, 'name'],
    message: `region "${names[i] ?? ''}" stands here a second time`,
  }));
  // A global router stands in no region.
  if (config.global !== undefined && !given.region) return problems;
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
  problems.push(...engineProblems(agent));
  const elsewhere = agent.routers.findIndex((router) => !isLoopback(hostOf(router)));
  if (elsewhere < 0) return problems;
  if (agent.secret === null && (agent.routerTls?.cert ?? null) === null) {
    problems.push({
      path: ['agent', 'routers', elsewhere],
      message:
        'is another machine and asks for a secret or a certificate: set agent.secret (SPILLWAY_LINK_SECRET) or agent.routerTls.cert',
    });
  }
  if (agent.secret !== null && agent.secret.length < SECRET_CHARACTERS_MIN) {
    problems.push({
      path: ['agent', 'secret'],
      message: `is shorter than ${SECRET_CHARACTERS_MIN} characters, and the routers are other machines`,
    });
  }
  return problems;
}

/** An engine is known by the address at which routers reach it. */
function engineProblems({ engines }: AgentConfig): Problem[] {
  const same = repeated(engines.map(({ url }) => sameMachineUrl(url)));
  const advertised = engines.map(({ url, advertise }) => advertise ?? url);
  const met = repeated(advertised.map((url) => sameMachineUrl(url)));
  return [
    ...same.map((i) => ({
      path: ['agent', 'engines', i, 'url'],
      message: `${engines[i]?.url ?? ''} is the same engine as an earlier one`,
    })),
    ...met
      .filter((i) => !same.includes(i))
      .map((i) => ({
        path: [
          'agent',
          'engines',
          i,
          (engines[i]?.advertise ?? null) === null ? 'url' : 'advertise',
        ],
        message: `${advertised[i] ?? ''} is where an earlier engine is: routers could not tell them apart`,
      })),
  ];
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
