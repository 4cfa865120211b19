// What the two ends of a pair of tiers say of each other, where one file says both: a region's routers here, and the region
// as global routers know it. Each of these mistakes shows only when the region is asked, as 401 or as a link that is refused.

import type { Problem } from './diagnostics.ts';
import { isUnset } from './environment.ts';
import type { FleetConfig } from './schema.ts';

export function pairProblems(config: FleetConfig): readonly Problem[] {
  return [...addressProblems(config), ...uplinkProblems(config), ...keyProblems(config)];
}

/** What is signed for one region is refused by another. */
function addressProblems({ regions }: FleetConfig): Problem[] {
  const all = regions.flatMap(({ baseUrl, otherBaseUrls }, i) => [
    { url: baseUrl, i, path: ['regions', i, 'baseUrl'] },
    ...otherBaseUrls.map((url, k) => ({ url, i, path: ['regions', i, 'otherBaseUrls', k] })),
  ]);
  const firsts = new Map(all.toReversed().map(({ url, i }) => [url, i]));
  return all.flatMap(({ url, i, path }): Problem[] => {
    const first = firsts.get(url) ?? i;
    if (first === i) return [];
    const message = `is where region "${regions[first]?.name ?? ''}" listens: each has an address of its own`;
    return [{ path, message }];
  });
}

/** A file without a region's secrets says nothing of them. */
function uplinkProblems({ region, regions, router }: FleetConfig): Problem[] {
  const own = regions.findIndex(({ name }) => name === region);
  const secrets = regions[own]?.linkSecrets ?? [];
  const secret = router.global?.secret ?? null;
  if (secret === null || secrets.length === 0 || secrets.includes(secret)) return [];
  if (secrets.some(isUnset)) return [];
  const other = regions.find(({ linkSecrets }) => linkSecrets.includes(secret));
  const whose = other === undefined ? '' : `, but of region "${other.name}"`;
  const message = `is none of regions[${own}].linkSecrets${whose}: global routers would not know it as "${region}"`;
  return [{ path: ['router', 'global', 'secret'], message }];
}

function keyProblems({ region, regions, router }: FleetConfig): Problem[] {
  const own = regions.findIndex(({ name }) => name === region);
  const signs = regions[own]?.tierKey ?? null;
  if (signs === null || router.tier === null) return [];
  const { keys } = router.tier;
  const named = keys.findIndex(({ id }) => id === signs.id);
  if (named < 0) {
    const message = `have none by the id of regions[${own}].tierKey, "${signs.id}": what global routers sign would be refused`;
    return [{ path: ['router', 'tier', 'keys'], message }];
  }
  if (keys[named]?.secret === signs.secret || isUnset(signs.secret)) return [];
  const message = `is another than that of regions[${own}].tierKey: what global routers sign would be refused`;
  return [{ path: ['router', 'tier', 'keys', named, 'secret'], message }];
}
