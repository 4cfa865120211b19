// The demo's fleet, as a `fleet.yaml` would have it: three regions, a router of the global tier that stands near the first,
// and three tenants. What a person sees of it is the same as with real machines.

import { createHash } from 'node:crypto';
import type { Overlay } from '../../shared/config/diagnostics.ts';

export const MODEL = 'demo-model';

export interface DemoRegion {
  readonly name: string;
  readonly zone: string;
  /** From the global router, ms. */
  readonly oneWayMs: number;
}

export const REGIONS: readonly DemoRegion[] = [
  { name: 'tokyo', zone: 'asia', oneWayMs: 4 },
  { name: 'singapore', zone: 'asia', oneWayMs: 28 },
  { name: 'frankfurt', zone: 'eu', oneWayMs: 110 },
];

/** Of the tenants: no secrets, they are in the source. */
export const KEYS = {
  /** Served in Asia, wherever is best. */
  shop: 'sk-demo-shop',
  /** Served in the EU alone, through any router. */
  bank: 'sk-demo-bank',
  /** Served in the EU alone, through routers in the EU alone. */
  clinic: 'sk-demo-clinic',
} as const;

/** Time in which the share of new conversations abroad moves by a tenth, ms: a minute unless told otherwise. */
export const SPILL_INTERVAL_MS = 2_000;

/** Where the EU's own router would be. */
export const EU_URL = 'https://eu.demo.invalid';

/** Less to learn from, so that it is ready sooner; nobody else's KV is evicted by it. */
const AGENT = { revision: 'demo', calibrationBudgetTokens: 6_000 };

const linkSecret = (region: string): string => `demo-link-secret-of-${region}`;
const tierKey = (region: string) => ({ id: region, secret: `demo-tier-secret-of-${region}` });

const TENANTS = [
  tenant('shop', { residency: { allow: ['tokyo', 'singapore'] } }),
  tenant('bank', { residency: { allow: ['frankfurt'] } }),
  tenant('clinic', { residency: { allow: ['frankfurt'] }, ingress: 'inZone' }),
];

function tenant(name: keyof typeof KEYS, rules: object): object {
  const hash = `sha256:${createHash('sha256').update(KEYS[name]).digest('hex')}`;
  return { name, keys: [{ name: `${name}-demo`, hash }], ...rules };
}

function common(tierUrl: (region: string) => string): Overlay[] {
  const regions = REGIONS.map(({ name, zone }) => ({
    ...{ name, zone, baseUrl: tierUrl(name) },
    ...{ linkSecrets: [linkSecret(name)], tierKey: tierKey(name) },
  }));
  return [
    // What is printed is not to drown: `--log-level info` says all.
    overlay(['log', 'level'], 'warn'),
    overlay(['tenants'], TENANTS),
    overlay(['zones'], { eu: { clientsUrl: EU_URL } }),
    overlay(['regions'], regions),
  ];
}

/** Of the global router. `tierUrl`: each region's tier listener, at its distance. */
export function globalOverlays(port: number, tierUrl: (region: string) => string): Overlay[] {
  const global = {
    zone: 'asia',
    clients: { listen: `127.0.0.1:${port}`, explain: true },
    links: { listen: '127.0.0.1:0' },
    admin: { listen: `127.0.0.1:${port === 0 ? 0 : port + 2}` },
    routing: { spillIntervalMs: SPILL_INTERVAL_MS },
    probes: { intervalMs: 5_000 },
  };
  return [...common(tierUrl), overlay(['global'], global)];
}

/** Of one region: its router, and agents beside these engines. `globalUrl`: the global router's links, at their distance. */
export function regionOverlays(
  region: string,
  globalUrl: string,
  engines: readonly string[],
): Overlay[] {
  const router = {
    clients: { listen: '127.0.0.1:0' },
    links: { listen: '127.0.0.1:0' },
    admin: null,
    tier: { listen: '127.0.0.1:0', keys: [tierKey(region)] },
    global: { urls: [globalUrl], secret: linkSecret(region) },
  };
  const agent = {
    engines: engines.map((url) => ({ url })),
    listen: '127.0.0.1:0',
    settings: AGENT,
  };
  return [
    // A region asks nobody where the others are.
    ...common((name) => `http://${name}.demo.invalid`),
    overlay(['region'], region),
    overlay(['models', MODEL], { pool: 'default' }),
    overlay(['router'], router),
    overlay(['agent'], agent),
  ];
}

function overlay(path: Overlay['path'], value: unknown): Overlay {
  return { path, value, source: 'demo' };
}
