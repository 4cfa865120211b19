// The router's part of `fleet.yaml`: listeners, limits of the gateway, settings of the routing core.

import { WORKERS_MAX } from '../model/worker-ports.ts';
import { z } from 'zod';
import { REGIONAL_DEFAULTS as D, type RegionalSettings } from '../model/settings.ts';
import { baseUrl, bounded, flag, listen, quantity, secret } from './fields.ts';
import { TIER_SECTION, UPLINK_SECTION } from './schema-global.ts';
import { adminSection, clientsSection, LIMITS, SHUTDOWN } from './schema-listeners.ts';
import { listenerTls, peerTls } from './schema-tls.ts';

const HOUR = 3_600_000;
const MIB = 1_048_576;
const GIB = 1_073_741_824;

const ROUTING = {
  outputWeight: quantity("Cost: weight of other requests' token time, per output token.", {
    unit: 'ratio',
    min: 0,
    max: 10,
    default: D.outputWeight,
  }),
  kvPressureMs: quantity(
    'Cost: price of KV pressure, times K/(1−K) with K the share of KV blocks in use.',
    { unit: 'ms', min: 0, max: 60_000, default: D.kvPressureMs },
  ),
  preemptionHorizonMs: quantity('Cost: how far ahead preemptions are priced.', {
    unit: 'ms',
    min: 0,
    max: 60_000,
    default: D.preemptionHorizonMs,
  }),
  tieMs: quantity('Pick: a cost gap below this is a tie.', {
    unit: 'ms',
    min: 0,
    max: 10_000,
    default: D.tieMs,
  }),
  tieRatio: quantity('Pick: a gap below this share of the least cost is a tie too.', {
    unit: 'ratio',
    min: 0,
    max: 1,
    default: D.tieRatio,
  }),
  tieCandidates: quantity('Pick: replicas that take part in a tie at most.', {
    unit: 'count',
    min: 1,
    max: 64,
    default: D.tieCandidates,
  }),
  holdMs: quantity(
    'Queue: a replica with this much prefill waiting is full; requests wait in the router.',
    { unit: 'ms', min: 1, max: 60_000, default: D.holdMs },
  ),
  crowdingWeight: quantity(
    'Cost: weight of what a prefill delays others, where work waits; 0 = none.',
    { unit: 'ratio', min: 0, max: 10, default: D.crowdingWeight },
  ),
  ageCredit: quantity(
    'Queue: how much of its age a request is credited against its predicted prefill.',
    { unit: 'ratio', min: 0, max: 10, default: D.ageCredit },
  ),
  queueMaxRequests: quantity('Queue: requests at most; one more is refused with 429.', {
    unit: 'requests',
    min: 1,
    max: 1_000_000,
    default: D.queueMaxRequests,
  }),
  queueMaxBytes: quantity('Queue: bodies of queued requests together at most.', {
    unit: 'bytes',
    min: MIB,
    max: 64 * GIB,
    default: D.queueMaxBytes,
  }),
  queueMaxWaitMs: quantity('Queue: longest wait that is still accepted.', {
    unit: 'ms',
    min: 100,
    max: HOUR,
    default: D.queueMaxWaitMs,
  }),
  keepAliveAfterMs: quantity(
    'Queue: silence towards a streaming client before it is sent 200 and comments.',
    { unit: 'ms', min: 100, max: HOUR, default: D.keepAliveAfterMs },
  ),
  workingSetBound: bounded(
    'Working set: share of the KV capacity that live conversations may take before new ones wait, at start; `null`: the rule is off.',
    { unit: 'ratio', min: 0.1, max: 2 },
  )
    .nullable()
    .default(D.workingSetBound),
  workingSetBoundMin: quantity(
    'Working set: the bound is tightened no further; equal to the greatest, it stands still.',
    { unit: 'ratio', min: 0.1, max: 2, default: D.workingSetBoundMin },
  ),
  workingSetBoundMax: quantity('Working set: the bound is eased no further.', {
    unit: 'ratio',
    min: 0.1,
    max: 2,
    default: D.workingSetBoundMax,
  }),
  newConversationWaitMs: quantity(
    'Working set: how long a new conversation waits for KV room before it enters anyway.',
    { unit: 'ms', min: 0, max: HOUR, default: D.newConversationWaitMs },
  ),
  unknownConcurrency: quantity(
    'Requests at most in a replica whose waiting work is unknown, or whose pool has learned no cost curve.',
    {
      unit: 'requests',
      min: 1,
      max: 10_000,
      default: D.unknownConcurrency,
    },
  ),
  staleGraceMs: quantity("Link lost: how long a replica's last report is still used.", {
    unit: 'ms',
    min: 1_000,
    max: HOUR,
    default: D.staleGraceMs,
  }),
  staticWindowMs: quantity(
    'Fewer than half of the replicas that were fresh this long ago make a pool static.',
    { unit: 'ms', min: 1_000, max: HOUR, default: D.staticWindowMs },
  ),
  minReportIntervalMs: quantity("An agent's least time between two reports, per 50 agents.", {
    unit: 'ms',
    min: 10,
    max: 1_000,
    default: D.minReportIntervalMs,
  }),
  maxAttempts: quantity('Attempts per request, the first included.', {
    unit: 'count',
    min: 1,
    max: 10,
    default: D.maxAttempts,
  }),
  retryBudgetRatio: quantity('Retries at most, as a share of requests.', {
    unit: 'ratio',
    min: 0,
    max: 1,
    default: D.retryBudgetRatio,
  }),
  retryBudgetMinPerS: quantity('Retries always allowed, however little traffic there is.', {
    unit: 'per second',
    min: 0,
    max: 1_000,
    default: D.retryBudgetMinPerS,
  }),
  connectTimeoutMs: quantity('Deadline to connect to an engine.', {
    unit: 'ms',
    min: 10,
    max: 60_000,
    default: D.connectTimeoutMs,
  }),
  firstTokenBaseMs: quantity(
    'First-token deadline: this plus twice the predicted wait and prefill.',
    { unit: 'ms', min: 100, max: HOUR, default: D.firstTokenBaseMs },
  ),
  firstTokenExtendWindowMs: quantity(
    'First-token deadline: extended once if the replica gave anybody a first token in this time.',
    { unit: 'ms', min: 0, max: HOUR, default: D.firstTokenExtendWindowMs },
  ),
  stallMinMs: quantity('Least deadline between two pieces of a stream.', {
    unit: 'ms',
    min: 100,
    max: HOUR,
    default: D.stallMinMs,
  }),
  assumedMaxTokens: quantity(
    'Tokens assumed for the deadline of a request that is not streamed and names no maximum.',
    { unit: 'tokens', min: 1, max: 10_000_000, default: D.assumedMaxTokens },
  ),
  breakerFailures: quantity("Consecutive server faults that open a replica's breaker.", {
    unit: 'count',
    min: 1,
    max: 1_000,
    default: D.breakerFailures,
  }),
  breakerOpenMs: quantity(
    'How long an open breaker keeps a replica out before it is tried again.',
    { unit: 'ms', min: 100, max: HOUR, default: D.breakerOpenMs },
  ),
  prefixIndexBytes: quantity(
    "Memory for the index of which prefixes the replicas' KV caches hold: about 40 bytes a chunk of 512 bytes of prompt, " +
      'however many replicas there are.',
    { unit: 'bytes', min: MIB, max: 64 * GIB, default: D.prefixIndexBytes },
  ),
} satisfies Record<keyof RegionalSettings, z.ZodType>;

const WORKERS_PROBLEM = `must be auto, or a whole number from 1 to ${WORKERS_MAX}: where more are wanted, run further routers behind the same balancer`;

const WORKER_COUNT = z
  .number()
  .int()
  .refine((count) => count >= 1 && count <= WORKERS_MAX, WORKERS_PROBLEM)
  .meta({ minimum: 1, maximum: WORKERS_MAX });

export const routerSchema = z
  .strictObject({
    clients: clientsSection('127.0.0.1:8080'),
    links: z
      .strictObject({
        listen: listen('Where agents connect.').default('127.0.0.1:8081').meta({
          'x-flag': '--links',
          'x-env': 'SPILLWAY_LINKS',
        }),
        secrets: z.array(secret('A bearer secret.')).max(8).default([]).meta({
          description:
            'Bearer secrets that agents may use, of 16 characters at least; two while rotating. None, or shorter ones, are allowed on loopback, and none where certificates are required.',
          'x-env': 'SPILLWAY_LINK_SECRET',
        }),
        tls: listenerTls('agents'),
      })
      .prefault({})
      .meta({ description: 'The listener for agents.' }),
    admin: adminSection('127.0.0.1:8082'),
    tier: TIER_SECTION,
    global: UPLINK_SECTION,
    addressProof: flag(
      true,
      'Ask agents to prove that they sit beside the engine that they advertise.',
    ),
    workers: z
      .union([WORKER_COUNT, z.literal('auto')], { error: WORKERS_PROBLEM })
      .default(1)
      .meta({
        description:
          'Processes that share the listener of clients, each a whole router with a link port of its own: the first has that of `links.listen`, the others begin 10 above it. `auto`: one for each core that the process may use.',
        'x-flag': '--workers',
        'x-env': 'SPILLWAY_WORKERS',
      }),
    siblings: z
      .array(baseUrl(['ws', 'wss'], 'A link address.'))
      .max(64)
      .default([])
      .meta({
        description:
          'Link addresses of all routers of this region, this one included, as agents reach them; a name stands for all its addresses. Agents are led to them, and the routers tell each other what they send.',
      }),
    siblingNames: z
      .array(z.string().regex(/^(\*\.)?[A-Za-z0-9._-]{1,253}$/, 'must be a host name, or *.domain'))
      .max(64)
      .default([])
      .meta({
        description:
          'Names of which a certificate must bear one to link as a router of this region. Without them a certificate does where those of agents need bear no name, and otherwise one of `links.secrets`. `*.` stands for any host below.',
      }),
    siblingTls: peerTls(
      'What its siblings must prove where they are dialled over `wss`; `null`: by the `ca` of `links.tls`, with its certificate as ours.',
    ),
    routing: z.strictObject(ROUTING).prefault({}).meta({ description: 'How requests are placed.' }),
    limits: LIMITS,
    shutdown: SHUTDOWN,
  })
  .meta({ description: 'A regional router.' });
