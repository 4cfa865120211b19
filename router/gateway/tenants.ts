// Whose request it is, and what follows from that here: found once, from the key that the request shows, before a handler
// of a client's route runs.
//
//   key        of a tenant, or of a client without one where there are no tenants; without any keys nobody needs one
//   ingress    a tenant `inZone` is let in only where the router stands in a zone of its allowed regions; elsewhere it is
//              told where to go, on headers alone
//   residency  a region whose own rules keep a tenant out lets it in nowhere: neither listed, nor certified, nor of its tier.
//              A global router stands in no region; there the routing core filters
//
// All but the look-up of the key is settled when the configuration is taken.

import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import { FleetError, type ErrorCode } from '../../shared/errors.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { demandedModel, granted, type DemandedModel } from '../policy/model-grant.ts';
import { mayReside, type Residency } from '../policy/region-filter.ts';
import { ClientKeys, type ClientKeyEntry } from './client-keys.ts';
import type { TierCall } from './tier-door.ts';

export interface TenantOptions {
  readonly name: string;
  readonly keys: readonly ClientKeyEntry[];
  /** Null: it may be served everywhere. */
  readonly residency: Residency | null;
  readonly ingress: 'any' | 'inZone';
  /** Public names, or `name@revision`; null: all. */
  readonly models: readonly string[] | null;
  readonly certifications: readonly string[];
  readonly tier: string | null;
  readonly saltGroup: string;
  /** Its keys open what operators ask, on a listener that they share with clients. Absent: they do not. */
  readonly operator?: boolean;
}

/** Where this router stands, and what is where. */
export interface TenancyPlace {
  /** Null: a global router, which stands in no region. */
  readonly region: PlacedRegion | null;
  /** Of this router; null: none is known. */
  readonly zone: string | null;
  /** Zone of each region, by name. */
  readonly zones: Readonly<Record<string, string>>;
  /** Where clients reach routers in a zone, by its name. */
  readonly clientsUrls: Readonly<Record<string, string>>;
}

export interface PlacedRegion {
  readonly id: RegionId;
  /** Null where the configuration does not say what the region has: the global tier has looked then, or nobody asks. */
  readonly certifications: readonly string[] | null;
  readonly tiers: readonly string[] | null;
}

export interface TenancyOptions {
  /** Keys of clients that belong to no tenant. */
  readonly clientKeys: readonly ClientKeyEntry[];
  readonly tenants: readonly TenantOptions[];
  readonly place: TenancyPlace;
}

/** There are neither tenants nor keys. */
export const UNTENANTED: TenancyOptions = {
  clientKeys: [],
  tenants: [],
  place: { region: null, zone: null, zones: {}, clientsUrls: {} },
};

/** What a request carries of its tenant. */
export interface Tenant {
  readonly name: string;
  readonly saltGroup: string;
  readonly residency: Residency | null;
  /** Public names that it may use, or `name@revision`; null: all. */
  readonly models: ReadonlySet<string> | null;
  readonly operator: boolean;
  /** Why it is not served here at all; null: it is. */
  readonly refusal: TenantRefusal | null;
}

export interface TenantRefusal {
  readonly code: Extract<ErrorCode, 'misdirected_request' | 'residency_violation'>;
  readonly message: string;
  /** Where it is served; null: nowhere that could be named. */
  readonly ingress: string | null;
}

/** Whoever asks where there are no tenants. */
export const ANYBODY: Tenant = {
  name: 'default',
  saltGroup: 'default',
  residency: null,
  models: null,
  operator: false,
  refusal: null,
};

/** Who asks, as the rest of the gateway knows them. */
export interface Caller {
  /** Of its key or certificate, for the log; null where neither was needed. */
  readonly client: string | null;
  readonly tenant: Tenant;
  /** What the tier before says of it; null: a client sent it. */
  readonly tier: TierCall | null;
}

/** Nobody in particular. */
export const NOBODY: Caller = { client: null, tenant: ANYBODY, tier: null };

export type CallerVerdict =
  | { readonly kind: 'known'; readonly owner: Caller }
  | { readonly kind: 'missing' }
  | { readonly kind: 'unknown' };

export class Tenants {
  readonly #keys: ClientKeys<Caller>;
  #byName: ReadonlyMap<string, Tenant>;
  #keptOut: ReadonlySet<string>;

  constructor(options: TenancyOptions) {
    this.#byName = tableOf(options);
    this.#keptOut = keptOutBy(options);
    this.#keys = new ClientKeys(entriesOf(options, this.#byName));
  }

  /** Takes effect for the next request of every connection. */
  configure(options: TenancyOptions): void {
    this.#byName = tableOf(options);
    this.#keptOut = keptOutBy(options);
    this.#keys.configure(entriesOf(options, this.#byName));
  }

  /** Some request needs a key: then all do. */
  get keyed(): boolean {
    return this.#keys.any || this.#byName.size > 0;
  }

  /** A certificate alone does not say whose a request is. */
  get any(): boolean {
    return this.#byName.size > 0;
  }

  check(headers: IncomingHttpHeaders, socket: Socket): CallerVerdict {
    return this.#keys.check(headers, socket);
  }

  /** Whether this region's own rules keep the tenant out, whoever sends its requests. */
  keepsOut(name: string): boolean {
    return this.#keptOut.has(name);
  }

  /** Whose a request would be that an operator asks about. Null: nobody's in particular. Throws `FleetError`. */
  asked(name: string | null): Tenant {
    if (name === null) return ANYBODY;
    const tenant = this.#byName.get(name);
    if (tenant !== undefined) return tenant;
    throw new FleetError('invalid_request', 'There is no such tenant.', { param: 'tenant' });
  }
}

/** What a tenant may use of a model as it is written; null: nothing. Which names models go by is not known here. */
export function grantOf({ models }: Tenant, written: string): DemandedModel | null {
  if (models === null) return { model: written, revisions: null };
  return granted(
    models,
    demandedModel(written, (name) => models.has(name)),
  );
}

/** Whether the tenant may use a model by that public name. */
export function mayUse(tenant: Tenant, model: string): boolean {
  return grantOf(tenant, model) !== null;
}

function tableOf({ tenants, place }: TenancyOptions): ReadonlyMap<string, Tenant> {
  return new Map(
    tenants.map((options) => [
      options.name,
      {
        name: options.name,
        saltGroup: options.saltGroup,
        residency: options.residency,
        models: options.models === null ? null : new Set(options.models),
        operator: options.operator === true,
        refusal: refusalAt(options, place),
      },
    ]),
  );
}

function keptOutBy({ tenants, place }: TenancyOptions): ReadonlySet<string> {
  const out = tenants.filter((tenant) => keptOut(tenant, place) !== null);
  return new Set(out.map(({ name }) => name));
}

function entriesOf({ clientKeys, tenants }: TenancyOptions, byName: ReadonlyMap<string, Tenant>) {
  const plain = clientKeys.map(({ name, sha256 }) => ({
    sha256,
    owner: { ...NOBODY, client: name },
  }));
  const owned = tenants.flatMap(({ name, keys }) =>
    keys.map((key) => ({
      sha256: key.sha256,
      owner: { client: key.name, tenant: byName.get(name) ?? ANYBODY, tier: null },
    })),
  );
  return [...plain, ...owned];
}

function refusalAt(options: TenantOptions, place: TenancyPlace): TenantRefusal | null {
  return wrongZone(options, place) ?? keptOut(options, place);
}

function wrongZone(
  { ingress, residency }: TenantOptions,
  { zone, zones, clientsUrls }: TenancyPlace,
): TenantRefusal | null {
  if (ingress === 'any') return null;
  const allowed = (residency?.allow ?? []).flatMap((region) => zones[region] ?? []);
  if (zone !== null && allowed.includes(zone)) return null;
  const url = allowed.flatMap((each) => clientsUrls[each] ?? [])[0] ?? null;
  const where = url === null ? '' : ` Ask ${url}.`;
  return {
    code: 'misdirected_request',
    message: `The tenant's requests are taken only in its own zone, which this router is not in.${where}`,
    ingress: url,
  };
}

function keptOut(options: TenantOptions, { region }: TenancyPlace): TenantRefusal | null {
  if (region === null) return null;
  const { certifications, tiers } = region;
  const certified = options.certifications.every((each) => certifications?.includes(each) ?? true);
  const tiered = options.tier === null || (tiers?.includes(options.tier) ?? true);
  if (mayReside(region.id, options.residency) && certified && tiered) return null;
  const message = 'The tenant may not be served in this region.';
  return { code: 'residency_violation', message, ingress: null };
}
