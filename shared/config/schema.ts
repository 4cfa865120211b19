// `fleet.yaml` for all roles: one file can stand on every machine, each role reads its own part. Unknown keys are
// errors. Cross-field rules are in `cross.ts`.

import { z } from 'zod';
import { agentSchema } from './schema-agent.ts';
import { cidr, flag, name, secret } from './fields.ts';
import { globalSchema } from './schema-global.ts';
import { routerSchema } from './schema-router.ts';
import { REGION, ROUTING_TEST, TENANT, ZONE } from './schema-tenants.ts';
import { peerTls } from './schema-tls.ts';

const POOL = z.strictObject({
  id: name('How models and agents name it.'),
  apiKey: secret('Bearer key for the engines of this pool.').nullable().default(null).meta({
    description:
      "Bearer key for the engines of this pool; the client's own credentials never reach an engine.",
  }),
  agentSecrets: z.array(secret('A bearer secret.')).max(8).default([]).meta({
    description: 'Link secrets of the agents of this pool; none: `router.links.secrets`.',
  }),
  agentNames: z
    .array(z.string().regex(/^(\*\.)?[A-Za-z0-9._-]{1,253}$/, 'must be a host name, or *.domain'))
    .max(64)
    .default([])
    .meta({
      description:
        "Names of which an agent's certificate must bear one to link for this pool; none: any. `*.` stands for any host below.",
    }),
  engineTls: peerTls(
    'How its `https` engines are verified by routers; `null`: by the CAs of the system.',
  ),
  engineCidrs: z.array(cidr('An address range.')).max(64).default([]).meta({
    description: 'Where advertised engine addresses must lie; none: loopback only.',
  }),
  enginePriority: flag(
    false,
    'Its engines understand `priority` (vLLM: `--scheduling-policy priority`).',
  ),
  cacheSalt: secret('A salt.').nullable().default(null).meta({
    description:
      '`cache_salt` of every request to its engines, beside the salt group of its tenant; keeps their cache apart.',
  }),
});

const MODEL = z.strictObject({
  pool: name('The pool that serves it.'),
  engineModel: name('A model name.').nullable().default(null).meta({
    description: 'The name that its engines know it by; `null`: the same name.',
  }),
  revision: name('A revision.').nullable().default(null).meta({
    description:
      'The one revision that it stands for, as agents report it (`agent.settings.revision`); `null`: whatever runs. Clients ask for one by `name@revision`.',
  }),
});

export const fleetSchema = z
  .strictObject({
    region: name('The region that this process belongs to.').default('local').meta({
      'x-flag': '--region',
      'x-env': 'SPILLWAY_REGION',
    }),
    log: z
      .strictObject({
        level: z.enum(['debug', 'info', 'warn', 'error']).default('info').meta({
          description: 'The least level that is written.',
          'x-flag': '--log-level',
          'x-env': 'SPILLWAY_LOG_LEVEL',
        }),
        format: z.enum(['auto', 'json', 'readable']).default('auto').meta({
          description: '`auto`: readable on a terminal, JSON lines elsewhere.',
          'x-flag': '--log-format',
          'x-env': 'SPILLWAY_LOG_FORMAT',
        }),
      })
      .prefault({})
      .meta({ description: 'What every process logs, to standard error.' }),
    pools: z
      .array(POOL)
      .min(1)
      .max(256)
      .prefault([{ id: 'default' }])
      .meta({ description: "The region's pools: replicas of one base model." }),
    models: z.record(z.string().min(1).max(200), MODEL).default({}).meta({
      description:
        'Public model names. A pool that no model names serves whatever its replicas report.',
    }),
    router: routerSchema.prefault({}),
    agent: agentSchema.optional(),
    tenants: z.array(TENANT).max(4_096).default([]).meta({
      description:
        'Who is served, and where. Where there are any, every client needs a key of one of them.',
    }),
    zones: z
      .record(z.string().min(1).max(200), ZONE)
      .default({})
      .meta({ description: 'Zones of data residency, by name.' }),
    regions: z.array(REGION).max(64).default([]).meta({
      description:
        'All regions. What a region is, is said here and nowhere else: its reports cannot change it.',
    }),
    global: globalSchema.optional(),
    tests: z.array(ROUTING_TEST).max(4_096).default([]).meta({
      description:
        'What `spillway validate` is to find: for a tenant and a model, the regions that may serve it.',
    }),
  })
  .meta({ title: 'Spillway fleet.yaml' });

export type FleetConfig = z.output<typeof fleetSchema>;
export type AgentConfig = NonNullable<FleetConfig['agent']>;
export type GlobalConfig = NonNullable<FleetConfig['global']>;
export type TenantConfig = FleetConfig['tenants'][number];
export type RegionConfig = FleetConfig['regions'][number];

/** The schema as editors understand it (JSON Schema 2020-12). */
export function fleetJsonSchema(): Record<string, unknown> {
  return z.toJSONSchema(fleetSchema, { io: 'input', unrepresentable: 'any' });
}
