// Whether what a global router signs for each request of a tenant (router/gateway/tier-context.ts) stays within what a region
// reads: its lists of regions, their zones and the revisions of a model go along with every one.

import { MAX_CONTEXT_LENGTH } from '../model/signed-context.ts';
import type { Problem } from './diagnostics.ts';
import type { FleetConfig, RegionConfig, TenantConfig } from './schema.ts';

/** All else of a context: ids, digests, keys of conversations, figures, names of members, bytes. */
const REST_BYTES = 1_400;
/** Head and signature, with the dots between. */
const AROUND_CHARACTERS = 240;

export function contextProblems({ tenants, regions, global }: FleetConfig): Problem[] {
  if (global === undefined) return [];
  return tenants.flatMap((tenant, i): Problem[] => {
    const characters = contextLength(tenant, regions);
    if (characters <= MAX_CONTEXT_LENGTH) return [];
    const message =
      `makes signed contexts of up to ${characters} characters, and regions read ${MAX_CONTEXT_LENGTH}: ` +
      'give regions and zones shorter names, or list fewer regions or revisions';
    return [{ path: ['tenants', i], atKey: true, message }];
  });
}

/** Characters of the longest context of the tenant, at most. */
export function contextLength(tenant: TenantConfig, regions: readonly RegionConfig[]): number {
  const { name, saltGroup, residency, models } = tenant;
  const listed = residency === null ? [] : [...residency.allow, ...residency.fallback];
  const within = regions.filter((region) => listed.includes(region.name));
  const told = {
    tenant: name,
    salt: saltGroup ?? name,
    residency,
    zones: [...new Set(within.map(({ zone }) => zone))],
    revisions: longest(revisionsOf(models ?? [])),
    aud: longest(regions.map((region) => [region.name])),
  };
  const bytes = new TextEncoder().encode(JSON.stringify(told)).length + REST_BYTES;
  return Math.ceil((4 * bytes) / 3) + AROUND_CHARACTERS;
}

/** Of each model that is granted by its revisions. */
function revisionsOf(models: readonly string[]): string[][] {
  const byModel = new Map<string, string[]>();
  for (const each of models) {
    const at = each.lastIndexOf('@');
    if (at <= 0) continue;
    const model = each.slice(0, at);
    byModel.set(model, [...(byModel.get(model) ?? []), each.slice(at + 1)]);
  }
  return [...byModel.values()];
}

function longest(lists: readonly string[][]): string[] {
  const size = (list: string[]): number => list.join().length;
  return lists.reduce<string[]>((most, list) => (size(list) > size(most) ? list : most), []);
}
