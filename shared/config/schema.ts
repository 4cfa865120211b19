// `fleet.yaml` for all roles: one file can stand on every machine, each role reads its own part. Unknown keys are
// errors. Cross-field rules are in `cross.ts`.

import { z } from 'zod';
import { agentSchema } from './schema-agent.ts';
import { baseUrl, cidr, flag, name, quantity, secret } from './fields.ts';
import { routerSchema } from './schema-router.ts';
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
    description: '`cache_salt` of every request to its engines; keeps their cache apart.',
  }),
});

const MODEL = z.strictObject({
  pool: name('The pool that serves it.'),
  engineModel: name('A model name.').nullable().default(null).meta({
    description: 'The name that its engines know it by; `null`: the same name.',
  }),
});

const REGION = z.strictObject({
  name: name('The region.'),
  zone: name('Zone of data residency.'),
  certifications: z.array(name('A certification.')).max(64).default([]).meta({
    description: 'Certifications that a request may demand.',
  }),
  costMs: quantity('Price of the region, as milliseconds of first-token time per 1,000 tokens.', {
    unit: 'ms',
    min: 0,
    max: 60_000,
    default: 0,
  }),
  baseUrl: baseUrl(['http', 'https'], "The region's clients listener, as global routers reach it."),
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
    regions: z.array(REGION).max(64).default([]).meta({
      description:
        'All regions, for global routers. Checked here, and read by no role of this release.',
    }),
  })
  .meta({ title: 'Spillway fleet.yaml' });

export type FleetConfig = z.output<typeof fleetSchema>;
export type AgentConfig = NonNullable<FleetConfig['agent']>;

/** The schema as editors understand it (JSON Schema 2020-12). */
export function fleetJsonSchema(): Record<string, unknown> {
  return z.toJSONSchema(fleetSchema, { io: 'input', unrepresentable: 'any' });
}
