// Tenants, zones, regions and `tests` in `fleet.yaml`: who may be served where. Routers of both tiers read them; what only
// global routers need of a region (its link's credential, the key of its tier port) may be missing elsewhere.

import { z } from 'zod';
import { baseUrl, flag, name, quantity, secret } from './fields.ts';
import { CLIENT_KEY, peerTls } from './schema-tls.ts';

const REGIONS_MAX = 64;

const region = (about: string) => name(about);

const RESIDENCY = z.strictObject({
  allow: z
    .array(region('A region.'))
    .min(1)
    .max(REGIONS_MAX)
    .meta({ description: 'Regions that may serve it. Nothing of it reaches any other.' }),
  fallback: z.array(region('A region.')).max(REGIONS_MAX).default([]).meta({
    description: 'Regions that may serve it where none of `allow` can, in this order.',
  }),
});

export const TENANT = z.strictObject({
  name: name('How logs, limits and signed contexts name it.'),
  keys: z.array(CLIENT_KEY).max(64).default([]).meta({
    description: 'Its API keys. A request is of the tenant whose key it shows.',
  }),
  residency: RESIDENCY.nullable().default(null).meta({
    description:
      'The only list of regions that any of its requests sees; `null`: it may be served everywhere.',
  }),
  ingress: z.enum(['any', 'inZone']).default('any').meta({
    description:
      '`inZone`: only routers in a zone of its allowed regions take its requests; others refuse on headers alone, before a body is read.',
  }),
  models: z.array(name('A public model name.')).max(1_024).nullable().default(null).meta({
    description: 'Models that it may use, or one revision of one (`name@revision`); `null`: all.',
  }),
  certifications: z.array(name('A certification.')).max(64).default([]).meta({
    description: 'Certifications that a region must have to serve it.',
  }),
  tier: name('A tier.').nullable().default(null).meta({
    description: 'The tier that a region must have to serve it; `null`: none in particular.',
  }),
  operator: flag(
    false,
    'Where operators have no listener of their own (`admin: null`): its keys open `/status`, `/metrics` and `/v1/route/explain`, which show everybody’s.',
  ),
  saltGroup: name('A group.').nullable().default(null).meta({
    description:
      'Tenants of one group find each other’s prefixes in KV caches, others never: it goes to engines as `cache_salt`. `null`: a group of its own.',
  }),
});

export const ZONE = z.strictObject({
  clientsUrl: baseUrl(
    ['http', 'https'],
    'Where clients reach the routers in this zone: what a tenant with `ingress: inZone` is told elsewhere.',
  ),
});

export const TIER_KEY = z.strictObject({
  id: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,64}$/, 'must be 1 to 64 letters, digits, dots, dashes')
    .meta({ description: 'How a signed context names the key.' }),
  secret: secret('What signs.'),
});

export const REGION = z.strictObject({
  name: name('The region.'),
  zone: name('Zone of data residency.'),
  certifications: z.array(name('A certification.')).max(64).default([]).meta({
    description: 'Certifications that a tenant may demand.',
  }),
  tiers: z.array(name('A tier.')).max(64).default([]).meta({
    description: 'Tiers that a tenant may demand.',
  }),
  models: z.array(name('A public model name.')).max(1_024).nullable().default(null).meta({
    description:
      'Models that it is meant to serve, or revisions of them (`name@revision`), for `tests`; `null`: all. What it does serve, its reports say.',
  }),
  costMs: quantity('Price of the region, as milliseconds of first-token time per 1,000 tokens.', {
    unit: 'ms',
    min: 0,
    max: 60_000,
    default: 0,
  }),
  rollout: z.enum(['off', 'failover', 'active']).default('active').meta({
    description:
      'What the global tier sends it: nothing, what no active region can serve, or its share.',
  }),
  baseUrl: baseUrl(
    ['http', 'https'],
    'Its tier listener, as global routers reach it; a name stands for all its addresses, and is looked up again and again.',
  ),
  otherBaseUrls: z
    .array(baseUrl(['http', 'https'], 'A tier listener.'))
    .max(64)
    .default([])
    .meta({
      description:
        'Tier listeners of its further routers, where no name or balancer stands for all of them.',
    }),
  tls: peerTls('How its tier listener is verified; `null`: by the CAs of the system.'),
  tierKey: TIER_KEY.nullable().default(null).meta({
    description:
      'Signs what global routers say to it: one of its `router.tier.keys`. Each pair of tiers has its own.',
  }),
  linkSecrets: z.array(secret('A bearer secret.')).max(8).default([]).meta({
    description:
      'Bearer secrets by which its routers are known as this region; two while rotating. No other region may have the same.',
  }),
  linkNames: z
    .array(z.string().regex(/^(\*\.)?[A-Za-z0-9._-]{1,253}$/, 'must be a host name, or *.domain'))
    .max(64)
    .default([])
    .meta({
      description:
        'Names of which a certificate must bear one to link as this region. With `linkSecrets` both are needed. `*.` stands for any host below.',
    }),
});

export const ROUTING_TEST = z.strictObject({
  tenant: name('A tenant.'),
  model: name('A public model name, or `name@revision`.'),
  regions: z.array(region('A region.')).max(REGIONS_MAX).meta({
    description:
      'Regions that may serve it while all are well, in any order; none: it must be refused.',
  }),
});
