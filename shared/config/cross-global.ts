// Rules between the fields of the global tier: tenants, zones, regions, `tests`, and a global router's own part. What only
// global routers need is asked for only where the file has a `global` section.

import { isLoopback, parseListen } from './address.ts';
import { contextProblems } from './context-size.ts';
import { pairProblems } from './cross-pairs.ts';
import type { Problem } from './diagnostics.ts';
import type { FleetConfig, GlobalConfig, RegionConfig, TenantConfig } from './schema.ts';
import type { Path } from './schema-walk.ts';
import { didYouMean } from './suggest.ts';

/** A secret that can be guessed protects nothing. */
const SECRET_CHARACTERS_MIN = 16;

export function globalProblems(config: FleetConfig): readonly Problem[] {
  return [
    ...regionProblems(config),
    ...tenantProblems(config),
    ...tenantKeyProblems(config),
    ...ingressProblems(config),
    ...testProblems(config),
    ...contextProblems(config),
    ...tierProblems(config),
    ...pairProblems(config),
    ...(config.global === undefined ? [] : ownProblems(config.global, config)),
  ];
}

/** Of which residency lists may speak: those of the file, or the one that there is without any. */
export function regionNames({ region, regions }: FleetConfig): readonly string[] {
  return regions.length === 0 ? [region] : regions.map(({ name }) => name);
}

function regionProblems({ regions, zones, router, pools }: FleetConfig): Problem[] {
  const secrets = regions.flatMap(({ linkSecrets, tierKey }, i) => [
    ...linkSecrets.map((text, k) => ({ text, path: ['regions', i, 'linkSecrets', k] as Path })),
    ...(tierKey === null
      ? []
      : [{ text: tierKey.secret, path: ['regions', i, 'tierKey', 'secret'] as Path }]),
  ]);
  const ofAgents = new Set([
    ...router.links.secrets,
    ...pools.flatMap(({ agentSecrets }) => agentSecrets),
  ]);
  const known = new Set(regions.map(({ zone }) => zone));
  return [
    ...repeated(secrets.map(({ text }) => text)).map((k) => ({
      path: secrets[k]?.path ?? [],
      message: 'stands here a second time: a secret says of one region alone which it is',
    })),
    ...secrets
      .filter(({ text }) => ofAgents.has(text))
      .map(({ path }) => ({
        path,
        message: 'is a secret of agents too: whoever has it could say that it is this region',
      })),
    ...repeated(regions.map(({ tierKey }) => tierKey?.id ?? null)).map((i) => ({
      path: ['regions', i, 'tierKey', 'id'],
      message: 'is the id of another key: each pair of tiers has its own',
    })),
    ...(regions.length === 0 ? [] : Object.keys(zones).filter((zone) => !known.has(zone))).map(
      (zone) => ({
        path: ['zones', zone],
        atKey: true,
        message: `no region is in zone "${zone}"${didYouMean(zone, [...known])}`,
      }),
    ),
  ];
}

function tenantProblems(config: FleetConfig): Problem[] {
  const { tenants } = config;
  const known = regionNames(config);
  return [
    ...repeated(tenants.map(({ name }) => name)).map((i) => ({
      path: ['tenants', i, 'name'],
      message: `tenant "${tenants[i]?.name ?? ''}" stands here a second time`,
    })),
    ...tenants.flatMap((tenant, i) => [
      ...residencyProblems(tenant, ['tenants', i, 'residency'], { known, config }),
      ...servedNowhere(tenant, ['tenants', i], config),
    ]),
  ];
}

function residencyProblems(
  { residency }: TenantConfig,
  path: Path,
  { known, config }: { readonly known: readonly string[]; readonly config: FleetConfig },
): Problem[] {
  if (residency === null) return [];
  return (['allow', 'fallback'] as const).flatMap((list) => {
    const names = residency[list];
    const twice = new Set(repeated(names));
    return names.flatMap((name, k): Problem[] => {
      const at = [...path, list, k];
      if (!known.includes(name)) {
        const hint = didYouMean(name, known) || inZone(name, config);
        return [{ path: at, message: `there is no region "${name}"${hint}` }];
      }
      if (twice.has(k))
        return [{ path: at, message: `region "${name}" stands here a second time` }];
      if (list === 'fallback' && residency.allow.includes(name)) {
        return [{ path: at, message: `region "${name}" is in allow already: it is no fallback` }];
      }
      return [];
    });
  });
}

/** What somebody means who names a zone. */
function inZone(name: string, { regions }: FleetConfig): string {
  const inside = regions.filter(({ zone }) => zone === name).map((region) => region.name);
  return inside.length === 0 ? '' : `: it is a zone, of ${inside.join(', ')}`;
}

/** What it demands no region of its list has, and so every request of it would be refused. */
function servedNowhere(tenant: TenantConfig, path: Path, { regions }: FleetConfig): Problem[] {
  const { residency, certifications, tier, models } = tenant;
  const listed = residency === null ? null : [...residency.allow, ...residency.fallback];
  const within = regions.filter(({ name }) => listed?.includes(name) ?? true);
  if (within.length === 0) return [];
  const where = listed === null ? 'no region' : 'none of its regions';
  const certified = within.filter((region) => hasAll(region, certifications));
  if (certified.length === 0) {
    const had = within.flatMap((region) => region.certifications);
    const k = certifications.findIndex((each) => !had.includes(each));
    const lacked = certifications[k];
    if (lacked === undefined) {
      return [{ path: [...path, 'certifications'], message: `${where} has all of these` }];
    }
    const message = `${where} has "${lacked}"${didYouMean(lacked, had)}`;
    return [{ path: [...path, 'certifications', k], message }];
  }
  const tiered = certified.filter((region) => tier === null || region.tiers.includes(tier));
  if (tiered.length === 0) {
    const tiers = certified.flatMap((region) => region.tiers);
    const meant = didYouMean(tier ?? '', tiers);
    const message = `${where} with its certifications has tier "${tier}"${meant}`;
    return [{ path: [...path, 'tier'], message }];
  }
  const open = tiered.filter(({ rollout }) => rollout !== 'off');
  const left = open.length === 0 ? tiered : open;
  return (models ?? []).flatMap((model, k): Problem[] => {
    if (left.some((region) => isMeantFor(region, model))) return [];
    const meant = didYouMean(
      nameOf(model),
      left.flatMap((region) => region.models ?? []),
    );
    const message = `${where} that may serve it serves "${model}"${meant}`;
    return [{ path: [...path, 'models', k], message }];
  });
}

/** `name@revision`: of a region that names no revision of it, whichever runs there. */
function isMeantFor({ models }: RegionConfig, model: string): boolean {
  if (models === null || models.includes(model)) return true;
  if (models.includes(nameOf(model))) return true;
  return models.some((each) => each.startsWith(`${model}@`));
}

/** Of `name@revision` the name. */
function nameOf(model: string): string {
  const at = model.lastIndexOf('@');
  return at > 0 ? model.slice(0, at) : model;
}

function hasAll(region: RegionConfig, certifications: readonly string[]): boolean {
  return certifications.every((each) => region.certifications.includes(each));
}

/** One key is of one tenant, and where there are tenants every key is of one. */
function tenantKeyProblems({ tenants, router, global }: FleetConfig): Problem[] {
  const keys = tenants.flatMap(({ keys: own }, i) =>
    own.map(({ hash }, k) => ({ hash, path: ['tenants', i, 'keys', k, 'hash'] as Path })),
  );
  const problems: Problem[] = repeated(keys.map(({ hash }) => hash)).map((k) => ({
    path: keys[k]?.path ?? [],
    message: 'stands here a second time: one key is of one tenant',
  }));
  if (tenants.length === 0) return problems;
  const listeners = [
    ['router', router.clients],
    ...(global === undefined ? [] : [['global', global.clients] as const]),
  ] as const;
  for (const [role, clients] of listeners) {
    if (clients.keys.length > 0) {
      const message = 'belong to no tenant: where there are tenants, write each key below its own';
      problems.push({ path: [role, 'clients', 'keys'], message });
    }
    if (clients.access === 'open') {
      const message = 'is open to everybody, but there are tenants, who are known by their keys';
      problems.push({ path: [role, 'clients', 'access'], message });
    }
  }
  return problems;
}

/** Who is refused elsewhere must be told where to go. */
function ingressProblems({ tenants, regions, zones }: FleetConfig): Problem[] {
  return tenants.flatMap(({ ingress, residency }, i): Problem[] => {
    if (ingress === 'any') return [];
    const path = ['tenants', i, 'ingress'];
    if (residency === null) {
      return [{ path, message: 'is inZone, but of which? Its residency names no region' }];
    }
    const inside = regions.filter(({ name }) => residency.allow.includes(name));
    if (regions.length === 0) {
      return [{ path, message: 'is inZone, but no zone is known: name the regions under regions' }];
    }
    if (inside.some(({ zone }) => Object.hasOwn(zones, zone))) return [];
    const names = [...new Set(inside.map(({ zone }) => zone))].map(
      (zone) => `zones.${zone}.clientsUrl`,
    );
    if (names.length === 0) return [];
    const message = `is inZone, and whoever asks elsewhere must be told where to go: give ${names.join(' or ')}`;
    return [{ path, message }];
  });
}

function testProblems(config: FleetConfig): Problem[] {
  const tenants = config.tenants.map(({ name }) => name);
  const known = regionNames(config);
  return config.tests.flatMap(({ tenant, regions }, i): Problem[] => {
    const path = ['tests', i];
    const stranger = tenants.includes(tenant)
      ? []
      : [
          {
            path: [...path, 'tenant'],
            message: `there is no tenant "${tenant}"${didYouMean(tenant, tenants)}`,
          },
        ];
    return [
      ...stranger,
      ...regions.flatMap((name, k): Problem[] => {
        if (known.includes(name)) return [];
        return [
          {
            path: [...path, 'regions', k],
            message: `there is no region "${name}"${didYouMean(name, known)}`,
          },
        ];
      }),
    ];
  });
}

/** The region's side: its tier listener and its links upwards. */
function tierProblems({ router }: FleetConfig): Problem[] {
  const { tier, global } = router;
  const problems: Problem[] = [];
  for (const k of repeated(tier?.keys.map(({ id }) => id) ?? [])) {
    problems.push({
      path: ['router', 'tier', 'keys', k, 'id'],
      message: 'is the id of another key',
    });
  }
  const guessable = `is shorter than ${SECRET_CHARACTERS_MIN} characters, and can be guessed`;
  for (const [k, { secret }] of (tier?.keys ?? []).entries()) {
    if (secret.length >= SECRET_CHARACTERS_MIN) continue;
    problems.push({ path: ['router', 'tier', 'keys', k, 'secret'], message: guessable });
  }
  if (
    tier !== null &&
    sameListener(tier.listen, [router.clients.listen, router.links.listen, router.admin?.listen])
  ) {
    const message = `${tier.listen} is taken by another listener of this router`;
    problems.push({ path: ['router', 'tier', 'listen'], message });
  }
  if (global !== null && global.secret === null && (global.tls?.cert ?? null) === null) {
    const message =
      'is needed, or a certificate in router.global.tls: it says which region this is';
    problems.push({ path: ['router', 'global', 'secret'], message });
  }
  return problems;
}

/** A global router's own part. */
function ownProblems(own: GlobalConfig, { regions, tenants }: FleetConfig): Problem[] {
  const { clients, links, admin, zone, routing, affinitySecret } = own;
  const problems: Problem[] = [];
  const zones = [...new Set(regions.map((region) => region.zone))];
  if (regions.length === 0)
    problems.push({ path: ['regions'], message: 'is empty, and a global router needs some' });
  if (zone !== null && regions.length > 0 && !zones.includes(zone)) {
    problems.push({
      path: ['global', 'zone'],
      message: `no region is in zone "${zone}"${didYouMean(zone, zones)}`,
    });
  }
  const keyed = tenants.some(({ keys }) => keys.length > 0) || clients.keys.length > 0;
  const needed = keyed || clients.tls?.clientAuth === 'required';
  if (reachable(clients.listen) && clients.access !== 'open' && !needed) {
    const message =
      'is reachable from other machines, where anybody could use it: give tenants with keys, set global.clients.access (--access) to open, or listen on 127.0.0.1';
    problems.push({ path: ['global', 'clients', 'listen'], message });
  }
  if (
    sameListener(links.listen, [clients.listen, admin?.listen]) ||
    sameListener(admin?.listen, [clients.listen])
  ) {
    problems.push({
      path: ['global', 'links', 'listen'],
      message: 'two listeners of this router have one address',
    });
  }
  if (routing.spillStopMs > routing.spillStartMs) {
    const message = `is above spillStartMs (${routing.spillStartMs} ms): what starts would stop at once`;
    problems.push({ path: ['global', 'routing', 'spillStopMs'], message });
  }
  if (affinitySecret !== null && affinitySecret.length < SECRET_CHARACTERS_MIN) {
    const message = `is shorter than ${SECRET_CHARACTERS_MIN} characters, and can be guessed`;
    problems.push({ path: ['global', 'affinitySecret'], message });
  }
  problems.push(...oldSecretProblems(own));
  return [...problems, ...credentialProblems(own, regions)];
}

function oldSecretProblems({ affinitySecret, affinityOldSecrets }: GlobalConfig): Problem[] {
  return affinityOldSecrets.flatMap((secret, k): Problem[] => {
    const path = ['global', 'affinityOldSecrets', k];
    if (affinitySecret === null) {
      return [{ path, message: 'stands beside no affinitySecret, which names new conversations' }];
    }
    if (secret.length < SECRET_CHARACTERS_MIN) {
      const message = `is shorter than ${SECRET_CHARACTERS_MIN} characters, and can be guessed`;
      return [{ path, message }];
    }
    const isRepeated = secret === affinitySecret || affinityOldSecrets.indexOf(secret) < k;
    return isRepeated ? [{ path, message: 'stands here a second time' }] : [];
  });
}

/** By what a global router knows each region, and what it signs with. */
function credentialProblems({ links }: GlobalConfig, regions: readonly RegionConfig[]): Problem[] {
  const short = `is shorter than ${SECRET_CHARACTERS_MIN} characters, and can be guessed`;
  return regions.flatMap(({ linkSecrets, linkNames, tierKey }, i): Problem[] => {
    const problems: Problem[] = [];
    if (tierKey === null) {
      const message = 'is needed by a global router: it signs what the region is to believe';
      problems.push({ path: ['regions', i, 'tierKey'], message });
    } else if (tierKey.secret.length < SECRET_CHARACTERS_MIN) {
      problems.push({ path: ['regions', i, 'tierKey', 'secret'], message: short });
    }
    for (const [k, secret] of linkSecrets.entries()) {
      if (secret.length >= SECRET_CHARACTERS_MIN) continue;
      problems.push({ path: ['regions', i, 'linkSecrets', k], message: short });
    }
    const certified =
      linkNames.length > 0 &&
      links.tls?.clientAuth !== undefined &&
      links.tls.clientAuth !== 'none';
    if (linkSecrets.length === 0 && !certified) {
      const message =
        'is needed by a global router, or linkNames with global.links.tls.clientAuth: by nothing else is a region known';
      problems.push({ path: ['regions', i, 'linkSecrets'], message });
    }
    return problems;
  });
}

function reachable(listen: string): boolean {
  const address = parseListen(listen);
  return address !== null && !isLoopback(address.host);
}

function sameListener(
  listen: string | undefined,
  others: readonly (string | undefined)[],
): boolean {
  return listen !== undefined && !listen.endsWith(':0') && others.includes(listen);
}

/** Positions of what has stood before. */
function repeated(values: readonly (string | null)[]): number[] {
  return values.flatMap((value, i) => (value !== null && values.indexOf(value) < i ? [i] : []));
}
