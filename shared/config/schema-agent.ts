// The agent's part of `fleet.yaml`. A sidecar has no file of its own: everything it must know is a flag and an
// environment variable too.

import { z } from 'zod';
import { ENGINE_KINDS } from '../model/engine-kind.ts';
import { AGENT_DEFAULTS as D, type AgentSettings } from '../model/settings.ts';
import { peerTls } from './schema-tls.ts';
import { baseUrl, bounded, flag, kvAddress, listen, name, quantity, secret } from './fields.ts';

const HOUR = 3_600_000;

const SETTINGS = {
  scrapeIntervalMs: quantity("Time between scrapes of the engine's metrics.", {
    unit: 'ms',
    min: 100,
    max: 60_000,
    default: D.scrapeIntervalMs,
  }),
  reportMaxIntervalMs: quantity('Time between reports at most, also without change.', {
    unit: 'ms',
    min: 100,
    max: 10_000,
    default: D.reportMaxIntervalMs,
  }),
  startTimeoutMs: quantity('Time without evidence of loading before a refused port means dead.', {
    unit: 'ms',
    min: 1_000,
    max: 24 * HOUR,
    default: D.startTimeoutMs,
  }),
  probeIntervalMs: quantity(
    "Time between probes of a replica that no user's first token has vouched for.",
    { unit: 'ms', min: 500, max: HOUR, default: D.probeIntervalMs },
  ),
  probeRecoveries: quantity('Consecutive good probes that bring a degraded replica back.', {
    unit: 'count',
    min: 1,
    max: 100,
    default: D.probeRecoveries,
  }),
  linkGraceMs: quantity("Time that a closed link's leases are kept for its router to return.", {
    unit: 'ms',
    min: 0,
    max: HOUR,
    default: D.linkGraceMs,
  }),
  calibration: flag(
    D.calibration,
    'Learn the prefill cost from generations of its own before the replica counts as ready.',
  ),
  calibrationBudgetTokens: quantity(
    'Prompt tokens that calibration may spend per life of an engine.',
    { unit: 'tokens', min: 0, max: 100_000_000, default: D.calibrationBudgetTokens },
  ),
  silentMinMs: quantity(
    'Time without any sign of work done before a replica that has work counts as silent.',
    { unit: 'ms', min: 100, max: HOUR, default: D.silentMinMs },
  ),
  slowFactor: bounded(
    'Prefills that take so many times what calibration measured make the replica slow; `null`: the rule is off.',
    { unit: 'ratio', min: 1.2, max: 1_000 },
  )
    .nullable()
    .default(D.slowFactor),
  slowDwellMs: quantity('Time that prefills are slow before the replica is degraded for it.', {
    unit: 'ms',
    min: 0,
    max: HOUR,
    default: D.slowDwellMs,
  }),
  runningMax: bounded('Batch slots of the engine, where known; else learned.', {
    unit: 'requests',
    min: 1,
    max: 100_000,
  })
    .nullable()
    .default(D.runningMax),
  stepTokens: bounded('Tokens per scheduler step of the engine, where known; else learned.', {
    unit: 'tokens',
    min: 1,
    max: 10_000_000,
  })
    .nullable()
    .default(D.stepTokens),
  revision: name('Revision of the weights, as requests may demand it.').default(D.revision).meta({
    'x-flag': '--revision',
    'x-env': 'SPILLWAY_REVISION',
  }),
} satisfies Record<keyof AgentSettings, z.ZodType>;

const KV_EVENTS = z.strictObject({
  endpoint: kvAddress(
    'ZeroMQ address of the events of rank 0; a wildcard host is the engine’s own.',
  ).meta({
    'x-flag': '--kv-events',
    'x-env': 'SPILLWAY_KV_EVENTS',
  }),
  replay: kvAddress('ZeroMQ address at which the engine replays them.')
    .nullable()
    .default(null)
    .meta({
      description: 'ZeroMQ address at which the engine replays them; `null`: gaps stay.',
      'x-flag': '--kv-events-replay',
      'x-env': 'SPILLWAY_KV_EVENTS_REPLAY',
    }),
  topic: z.string().max(512).default('').meta({ description: 'Prefix of the topics to hear.' }),
  bind: flag(
    false,
    'Bind instead of connecting: an engine whose own endpoint names a host connects itself.',
  ),
});

const ENGINE = z.strictObject({
  url: baseUrl(['http', 'https'], 'Base URL at which the agent reaches the engine.').meta({
    'x-flag': '--engine',
    'x-env': 'SPILLWAY_ENGINES',
  }),
  advertise: baseUrl(['http', 'https'], 'Base URL at which routers reach it.')
    .nullable()
    .default(null)
    .meta({
      description: 'Base URL at which routers reach it; `null`: the same.',
      'x-flag': '--advertise',
      'x-env': 'SPILLWAY_ADVERTISE',
    }),
  kind: z.enum(ENGINE_KINDS).nullable().default(null).meta({
    description: 'Which engine it is, where what it answers misleads; `null`: found out.',
    'x-flag': '--engine-kind',
    'x-env': 'SPILLWAY_ENGINE_KINDS',
  }),
  kvEvents: KV_EVENTS.nullable()
    .default(null)
    .meta({ description: "The engine's KV events; `null`: as it tells itself (SGLang), or none." }),
  pidFile: z.string().min(1).nullable().default(null).meta({
    description: "File with the engine's process id: evidence of loading or of death.",
    'x-flag': '--engine-pid-file',
    'x-env': 'SPILLWAY_ENGINE_PID_FILES',
  }),
  unit: z
    .string()
    .regex(/^[\w:.@\\-]{1,256}$/, 'must be the name of a systemd unit, for example vllm.service')
    .nullable()
    .default(null)
    .meta({
      description: "The engine's systemd unit: evidence of loading or of death.",
      'x-flag': '--engine-unit',
      'x-env': 'SPILLWAY_ENGINE_UNITS',
    }),
  log: z.string().min(1).nullable().default(null).meta({
    description: 'The file that the engine logs to: how far its start has come.',
    'x-flag': '--engine-log',
    'x-env': 'SPILLWAY_ENGINE_LOGS',
  }),
});

export const agentSchema = z
  .strictObject({
    pool: name('The pool that its engines belong to.').default('default').meta({
      'x-flag': '--pool',
      'x-env': 'SPILLWAY_POOL',
    }),
    engines: z.array(ENGINE).min(1).max(64).meta({
      description: 'The engines beside it.',
      'x-flag': '--engine',
      'x-env': 'SPILLWAY_ENGINES',
    }),
    routers: z
      .array(baseUrl(['ws', 'wss'], 'A link address; a name stands for all its addresses.'))
      .min(1)
      .max(64)
      .default(['ws://127.0.0.1:8081'])
      .meta({
        description: "The routers' link listeners; a name stands for all its addresses.",
        'x-flag': '--router',
        'x-env': 'SPILLWAY_ROUTERS',
      }),
    routerTls: peerTls(
      'How `wss` routers are verified, and what they are shown; `null`: by the CAs of the system.',
      { 'x-flag': '--router-ca', 'x-env': 'SPILLWAY_ROUTER_CA' },
    ),
    engineTls: peerTls(
      'How `https` engines are verified by the agent; `null`: by the CAs of the system.',
      { 'x-flag': '--engine-ca', 'x-env': 'SPILLWAY_ENGINE_CA' },
    ),
    secret: secret('Bearer secret towards the routers.').nullable().default(null).meta({
      description: 'Bearer secret towards the routers; none is allowed on loopback only.',
      'x-env': 'SPILLWAY_LINK_SECRET',
    }),
    apiKey: secret('Bearer key that the engines ask for.').nullable().default(null).meta({
      description: "Bearer key that the engines ask for; `null`: the pool's.",
      'x-env': 'SPILLWAY_ENGINE_API_KEY',
    }),
    listen: listen('`/livez`, `/readyz`, `/metrics`, `/status` and the address proof.')
      .default('127.0.0.1:8090')
      .meta({ 'x-flag': '--listen', 'x-env': 'SPILLWAY_AGENT_LISTEN' }),
    settings: z
      .strictObject(SETTINGS)
      .prefault({})
      .meta({ description: 'How it observes its engines.' }),
  })
  .meta({ description: 'An agent beside engines.' });
