// What `up` lays over a file, or over nothing, so that one process is whole: engines, one pool, an agent, a region's router,
// and where it is asked for a global router before them. What the file says of the links between the tiers stays; the
// rest is set up on loopback with secrets of this run.
//
//   --port             the listener that clients use: the global router's where there is one, else the region's
//   router.tier        not in the file: on loopback, any port, with the key of this region
//   router.global      not in the file: the global router of this process
//   regions            not in the file: this region alone

import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { EngineKind } from '../../shared/model/engine-kind.ts';
import { listAt, type Said } from './said.ts';

/** Any port: agent and routers of this process are told which. */
const ANYWHERE = '127.0.0.1:0';
/** In place of an address that is known when its listener is: nobody connects to it. */
const LATER = '127.0.0.1:1';

export interface UpTask {
  readonly said: Said;
  /** Of this process. */
  readonly region: string;
  /** Where clients connect, as flags say; null: as the file does. */
  readonly listen: string | null;
  /** Null: those of the file. */
  readonly engines: readonly { readonly url: string; readonly kind: EngineKind | null }[] | null;
  readonly apiKey: string | null;
  /** File of the CAs of engines. */
  readonly ca: string | null;
  /** Whether there is a global router. */
  readonly global: boolean;
  readonly secrets: TierSecrets;
}

/** Between the tiers of this process, where the file has none. */
export interface TierSecrets {
  readonly link: string;
  readonly tier: string;
}

export function upOverlays(task: UpTask): Overlay[] {
  const front = task.global ? 'global' : 'router';
  const listen = task.listen === null ? [] : [[[front, 'clients', 'listen'], task.listen] as const];
  return [
    ...regionOverlays(task),
    ...(task.global ? globalOverlays(task) : []),
    ...listen.map(([path, value]) => ({ path, value, source: '--host, --port' })),
  ];
}

/** Whether the tier listener of this process is its own doing: then the global router is told its port. */
export function ownTier(said: Said): boolean {
  return said('router', 'tier') === undefined;
}

/** Whether the region is to report to the global router of this process. */
export function ownUplink(said: Said): boolean {
  return said('router', 'global') === undefined;
}

/** The person named the engines, so wherever they are is allowed, and nobody has to prove an address. */
function regionOverlays({ said, engines, apiKey, ca, global }: UpTask): Overlay[] {
  const agent = { listen: ANYWHERE, ...(engines === null ? {} : { engines }) };
  const tls = ca === null ? {} : { engineTls: { ca } };
  const key = apiKey === null ? {} : { apiKey };
  const at = poolOf(said);
  const pool = {
    ...(said('pools', at) === undefined ? { id: said('agent', 'pool') ?? 'default' } : {}),
    ...{ engineCidrs: ['0.0.0.0/0', '::/0'], agentSecrets: [], agentNames: [], ...key, ...tls },
  };
  const id = said('pools', at, 'id');
  const behind = global && said('router', 'clients', 'listen') === undefined;
  return [
    ...(behind ? [up(['router', 'clients', 'listen'], ANYWHERE)] : []),
    // Agents of other machines find no door here: links are those of this process.
    up(['router', 'links'], { listen: ANYWHERE }),
    ...adminOverlays(said, 'router'),
    up(['router', 'addressProof'], false),
    up(['router', 'workers'], 1),
    ...Object.entries(pool).map(([field, value]) => up(['pools', at, field], value)),
    ...(id === undefined ? [] : [up(['agent', 'pool'], id)]),
    ...Object.entries({ ...agent, ...tls }).map(([field, value]) => ({
      path: ['agent', field],
      value,
      source: field === 'engines' ? '--engine' : 'up',
    })),
  ];
}

/** Operators ask where clients do, unless that needs a client's key. */
function adminOverlays(said: Said, role: 'router' | 'global'): Overlay[] {
  if (said(role, 'admin') !== undefined) return [];
  const keys = [...listAt(said, 'tenants'), ...listAt(said, role, 'clients', 'keys')];
  return [up([role, 'admin'], keys.length === 0 ? null : { listen: ANYWHERE })];
}

/** The agent's, by its name; else the first. */
function poolOf(said: Said): number {
  const name = said('agent', 'pool');
  const named = listAt(said, 'pools').findIndex((_, at) => said('pools', at, 'id') === name);
  return Math.max(named, 0);
}

function globalOverlays({ said, region, secrets }: UpTask): Overlay[] {
  const regions = listAt(said, 'regions');
  const place = regions.findIndex((_, at) => said('regions', at, 'name') === region);
  // Without a list this region is all of it; in a list that leaves it out it stays unknown, and the check says so.
  const at = regions.length === 0 ? 0 : place;
  const tierKey = said('regions', at, 'tierKey') ??
    said('router', 'tier', 'keys', 0) ?? { id: region, secret: secrets.tier };
  const secret =
    said('regions', at, 'linkSecrets', 0) ?? said('router', 'global', 'secret') ?? secrets.link;
  // The global router stands where its region does.
  const zone = said('global', 'zone') ?? said('regions', at, 'zone') ?? 'local';
  const own = { name: region, zone, baseUrl: `http://${LATER}`, linkSecrets: [secret], tierKey };
  const filled = regions.length === 0 ? own : { linkSecrets: [secret], tierKey };
  return [
    ...(said('global') === undefined ? [up(['global'], {})] : []),
    ...(said('global', 'zone') === undefined && at >= 0 ? [up(['global', 'zone'], zone)] : []),
    ...(said('global', 'links') === undefined ? [up(['global', 'links', 'listen'], ANYWHERE)] : []),
    ...adminOverlays(said, 'global'),
    ...Object.entries(filled)
      .filter(([field]) => at >= 0 && isEmpty(said('regions', at, field)))
      .map(([field, value]) => up(['regions', at, field], value)),
    ...(ownTier(said) ? tierOverlays(at, tierKey) : []),
    ...(ownUplink(said) ? [up(['router', 'global'], { urls: [`ws://${LATER}`], secret })] : []),
  ];
}

/** The region is reached inside this process, whatever its address is elsewhere. */
function tierOverlays(at: number, tierKey: unknown): Overlay[] {
  const reached = { baseUrl: `http://${LATER}`, tls: null };
  return [
    up(['router', 'tier'], { listen: ANYWHERE, keys: [tierKey] }),
    ...Object.entries(reached)
      .filter(() => at >= 0)
      .map(([field, value]) => up(['regions', at, field], value)),
  ];
}

function isEmpty(value: unknown): boolean {
  return value === undefined || (Array.isArray(value) && value.length === 0);
}

function up(path: Overlay['path'], value: unknown): Overlay {
  return { path, value, source: 'up' };
}
