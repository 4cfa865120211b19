// Which changes a running process can take: tenants, regions, pools, models, a router's routing and limits, keys and secrets
// and what its clients are offered are swapped at once, except what a listener takes only when it is opened; everything else
// of a role is read at its start only, and a change of it is named as waiting for a restart.

import type { FleetConfig } from './schema.ts';
import { formatPath, type Path } from './schema-walk.ts';

/** `up`: all of them in one process. */
export type ConfigRole = 'router' | 'global' | 'agent' | 'up';

/** The parts that a role reads. */
const READS = {
  router: ['region', 'log', 'pools', 'models', 'router', 'tenants', 'zones', 'regions'],
  global: ['log', 'global', 'tenants', 'zones', 'regions'],
  agent: ['region', 'log', 'pools', 'agent'],
};

/** The parts that are swapped without a restart, as path prefixes. */
const RELOADABLE = {
  router: [
    'pools',
    'models',
    'router.routing',
    'router.limits',
    'router.clients.cors',
    'router.clients.explain',
    'router.clients.keys',
    'router.links.secrets',
    'router.tier.keys',
    'router.global.settings',
    'tenants',
    'zones',
    'regions',
  ],
  global: [
    'tenants',
    'zones',
    'regions',
    'global.routing',
    'global.conversationIds',
    'global.affinitySecret',
    'global.affinityOldSecrets',
    'global.probes',
    'global.limits',
    'global.clients.cors',
    'global.clients.explain',
    'global.clients.keys',
  ],
  agent: [] as string[],
};

/** Exceptions inside those parts: what a listener takes only when it is opened. */
const AT_START: readonly string[] = ['router', 'global'].flatMap((role) => [
  `${role}.limits.headerBytes`,
  `${role}.limits.requestTimeoutMs`,
]);

/** Whether a field is swapped while the role runs. */
export function isReloadable(field: string, role: ConfigRole): boolean {
  if (AT_START.includes(field)) return false;
  return partsOf(RELOADABLE, role).some((prefix) => field === prefix || startsPath(field, prefix));
}

/** Paths whose values differ and wait for a restart of the role. */
export function restartFields(
  running: FleetConfig,
  next: FleetConfig,
  role: ConfigRole,
): readonly string[] {
  const changed = partsOf(READS, role).flatMap((part) =>
    differences(running[part as keyof FleetConfig], next[part as keyof FleetConfig], [part]),
  );
  return changed.filter((field) => !isReloadable(field, role));
}

function partsOf(of: typeof READS, role: ConfigRole): readonly string[] {
  return role === 'up' ? [...new Set([...of.router, ...of.global, ...of.agent])] : of[role];
}

function startsPath(field: string, prefix: string): boolean {
  return field.startsWith(`${prefix}.`) || field.startsWith(`${prefix}[`);
}

function differences(before: unknown, after: unknown, path: Path): string[] {
  if (Object.is(before, after)) return [];
  if (!isObject(before) || !isObject(after)) return [formatPath(path)];
  const list = Array.isArray(before);
  if (list !== Array.isArray(after)) return [formatPath(path)];
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].flatMap((key) =>
    differences(before[key], after[key], [...path, list ? Number(key) : key]),
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
