// What `fleet.yaml` says of the global tier: a global router's own part, and how a region appears to global routers.

import { z } from 'zod';
import {
  GLOBAL_DEFAULTS as D,
  UPLINK_DEFAULTS as U,
  type GlobalSettings,
  type UplinkSettings,
} from '../model/global-settings.ts';
import { CONVERSATION_IDS } from '../model/conversation-ids.ts';
import { baseUrl, bounded, listen, name, quantity, secret } from './fields.ts';
import { adminSection, clientsSection, LIMITS, SHUTDOWN } from './schema-listeners.ts';
import { TIER_KEY } from './schema-tenants.ts';
import { listenerTls, peerTls } from './schema-tls.ts';

const HOUR = 3_600_000;
const MIB = 1_048_576;
const GIB = 1_073_741_824;

const ms = (about: string, min: number, max: number, byDefault: number) =>
  quantity(about, { unit: 'ms', min, max, default: byDefault });
const ratio = (about: string, max: number, byDefault: number) =>
  quantity(about, { unit: 'ratio', min: 0, max, default: byDefault });
const count = (about: string, min: number, max: number, byDefault: number) =>
  quantity(about, { unit: 'count', min, max, default: byDefault });

const ROUTING = {
  spillStartMs: ms(
    'Spill: estimated queue of a region from which new conversations begin to go abroad.',
    1,
    HOUR,
    D.spillStartMs,
  ),
  spillStopMs: ms('Spill: estimated queue below which they come back.', 0, HOUR, D.spillStopMs),
  spillRampRatio: ratio(
    'Spill: share of new conversations by which it moves in one interval.',
    1,
    D.spillRampRatio,
  ),
  spillIntervalMs: ms('Spill: that interval.', 100, HOUR, D.spillIntervalMs),
  spillDwellMs: ms('Spill: least time between moving up and moving down.', 0, HOUR, D.spillDwellMs),
  spillCeilingRatio: ratio(
    'Spill: share of new conversations that go abroad at most.',
    1,
    D.spillCeilingRatio,
  ),
  spillTokensPerS: bounded(
    'Spill: uncached prompt tokens that go abroad at most; `null`: no cap but the credit of receivers.',
    { unit: 'per second', min: 1, max: 1_000_000_000 },
  )
    .nullable()
    .default(D.spillTokensPerS),
  spillBlindMs: ms(
    'Spill: how long the last estimate of a region is believed; then new conversations come back.',
    0,
    HOUR,
    D.spillBlindMs,
  ),
  spillSightMs: ms(
    'Spill: a region without a report for so long gets none of it.',
    100,
    HOUR,
    D.spillSightMs,
  ),
  temperatureMs: ms(
    'Choice: how far estimates must be apart for the better one to be drawn e times as often.',
    0,
    60_000,
    D.temperatureMs,
  ),
  smoothingHalfLifeMs: ms('Estimate: half-life of what was.', 0, 60_000, D.smoothingHalfLifeMs),
  unacknowledgedMs: ms(
    'Estimate: how long a send that no region reports as arrived counts.',
    100,
    HOUR,
    D.unacknowledgedMs,
  ),
  moveFactor: ratio(
    'A conversation moves for load when staying costs more by so many times `spillStartMs`.',
    1_000,
    D.moveFactor,
  ),
  moveDwellMs: ms(
    'A conversation that has moved for load does not again for so long.',
    0,
    24 * HOUR,
    D.moveDwellMs,
  ),
  affinityMax: count('Conversations whose place is remembered.', 1_000, 10_000_000, D.affinityMax),
  affinityLifeMs: ms(
    'A conversation is forgotten after so long without a turn.',
    1_000,
    24 * HOUR,
    D.affinityLifeMs,
  ),
  affinityMatchedRatio: ratio(
    'Of a tenant’s prompts with earlier turns, how many must be conversations for all to be taken for such.',
    1,
    D.affinityMatchedRatio,
  ),
  reportIntervalMs: ms(
    'Time between reports of a region’s router, without change.',
    250,
    60_000,
    D.reportIntervalMs,
  ),
  staleGraceMs: ms(
    'Reports stay away: how long the last one of a region is still used.',
    1_000,
    HOUR,
    D.staleGraceMs,
  ),
  maxAttempts: count('Attempts per request, the first included.', 1, 10, D.maxAttempts),
  retryBudgetRatio: ratio('Retries at most, as a share of requests.', 1, D.retryBudgetRatio),
  retryBudgetMinPerS: quantity('Retries always allowed, however little traffic there is.', {
    unit: 'per second',
    min: 0,
    max: 1_000,
    default: D.retryBudgetMinPerS,
  }),
  connectTimeoutMs: ms('Deadline to connect to a region.', 10, 60_000, D.connectTimeoutMs),
  firstTokenBaseMs: ms(
    'First-token deadline: this plus twice the estimate.',
    100,
    HOUR,
    D.firstTokenBaseMs,
  ),
  firstTokenExtendWindowMs: ms(
    'First-token deadline: extended once if the region gave anybody a first token in this time.',
    0,
    HOUR,
    D.firstTokenExtendWindowMs,
  ),
  firstTokenMaxMs: ms(
    'First token: no extension beyond so long after sending.',
    1_000,
    HOUR,
    D.firstTokenMaxMs,
  ),
  stallMinMs: ms('Least deadline between two pieces of a stream.', 100, HOUR, D.stallMinMs),
  assumedMaxTokens: quantity(
    'Tokens assumed for the deadline of a request that is not streamed and names no maximum.',
    { unit: 'tokens', min: 1, max: 10_000_000, default: D.assumedMaxTokens },
  ),
  breakerFailures: count(
    'Consecutive server faults that open a region’s breaker.',
    1,
    1_000,
    D.breakerFailures,
  ),
  breakerOpenMs: ms(
    'How long an open breaker keeps a region out before it is tried again.',
    100,
    HOUR,
    D.breakerOpenMs,
  ),
  queueMaxRequests: quantity(
    'Queue, where every region that may serve asks for time: requests at most.',
    { unit: 'requests', min: 1, max: 1_000_000, default: D.queueMaxRequests },
  ),
  queueMaxBytes: quantity('Queue: bodies of queued requests together at most.', {
    unit: 'bytes',
    min: MIB,
    max: 64 * GIB,
    default: D.queueMaxBytes,
  }),
  queueMaxWaitMs: ms('Queue: longest wait that is still accepted.', 100, HOUR, D.queueMaxWaitMs),
  keepAliveAfterMs: ms(
    'Queue: silence towards a streaming client before it is sent 200 and comments.',
    100,
    HOUR,
    D.keepAliveAfterMs,
  ),
} satisfies Record<keyof GlobalSettings, z.ZodType>;

const PROBES = {
  intervalMs: ms('Time between synthetic generations in a region.', 1_000, HOUR, 15_000),
  timeoutMs: ms('How long one may take.', 100, HOUR, 10_000),
  gapMs: ms(
    'Time between two of its pieces from which something between the tiers is said to hold streams back.',
    10,
    60_000,
    1_000,
  ),
};

const CONVERSATION_ID_SOURCES = z
  .strictObject({
    headers: z
      .array(z.string().regex(/^[a-z0-9_-]{1,64}$/, 'must be a header name in lower case'))
      .max(32)
      .default([...CONVERSATION_IDS.headers])
      .meta({ description: 'Headers, in their order; before members.' }),
    members: z
      .array(
        z
          .string()
          .regex(
            /^[A-Za-z0-9_]{1,64}(\.[A-Za-z0-9_]{1,64})?$/,
            'must be like name or metadata.name',
          ),
      )
      .max(32)
      .default([...CONVERSATION_IDS.members])
      .meta({
        description:
          'Members of the body, in their order: a text, a number, or an object with `id`.',
      }),
  })
  .prefault({})
  .meta({
    description:
      'Where clients name their conversations. An id tells where one lives where its text does not; it is used as long as it stands for one.',
  });

export const globalSchema = z
  .strictObject({
    zone: name('A zone.').nullable().default(null).meta({
      description:
        'The zone that this router stands in; `null`: none, and tenants with `ingress: inZone` are refused.',
      'x-env': 'SPILLWAY_ZONE',
      'x-flag': '--zone',
    }),
    clients: clientsSection('127.0.0.1:9080'),
    links: z
      .strictObject({
        listen: listen('Where routers of regions connect.').default('127.0.0.1:9081').meta({
          'x-flag': '--links',
          'x-env': 'SPILLWAY_LINKS',
        }),
        tls: listenerTls('regions'),
      })
      .prefault({})
      .meta({
        description:
          'The listener for regions: each is known by its own `linkSecrets` or `linkNames`.',
      }),
    admin: adminSection('127.0.0.1:9082'),
    affinitySecret: secret('A secret.').nullable().default(null).meta({
      description:
        'Makes the keys by which conversations are known, and signs hints: the same in every global router, and kept; `null`: made at start, and with it every conversation is forgotten.',
    }),
    affinityOldSecrets: z.array(secret('A secret.')).max(4).default([]).meta({
      description:
        'What these have named is still known, and hints that they have signed are good. To rotate: the new one here first, in every global router; then it changes places with `affinitySecret`; after an `affinityLifeMs` the old one goes.',
    }),
    conversationIds: CONVERSATION_ID_SOURCES,
    probes: z.strictObject(PROBES).nullable().prefault({}).meta({
      description:
        'Small generations through the whole path, which show a region as clients have it; `null`: none.',
    }),
    routing: z.strictObject(ROUTING).prefault({}).meta({ description: 'How regions are chosen.' }),
    limits: LIMITS,
    shutdown: SHUTDOWN,
  })
  .meta({ description: 'A global router.' });

const UPLINK = {
  spillStartMs: ms(
    'Own estimated queue up to which the region grants others credit: as `global.routing.spillStartMs`.',
    1,
    HOUR,
    U.spillStartMs,
  ),
  creditLifeMs: ms('A grant that is not spent lapses after so long.', 500, HOUR, U.creditLifeMs),
  creditGraceMs: ms(
    'How long after its life the spending of a grant may still be on the way.',
    0,
    HOUR,
    U.creditGraceMs,
  ),
  awayMax: count(
    'Conversations away from home that are remembered, and told to global routers.',
    0,
    10_000_000,
    U.awayMax,
  ),
} satisfies Record<keyof UplinkSettings, z.ZodType>;

/** `router.global`. */
export const UPLINK_SECTION = z
  .strictObject({
    urls: z
      .array(baseUrl(['ws', 'wss'], 'A link address.'))
      .min(1)
      .max(64)
      .meta({
        description:
          'Link addresses of global routers; a name may stand for several, and is looked up again and again.',
      }),
    secret: secret('A bearer secret.').nullable().default(null).meta({
      description:
        'Says which region this is: one of its `linkSecrets` at the global routers. Needed unless a certificate says it.',
    }),
    tls: peerTls('How global routers are verified, and the certificate that they are shown.'),
    settings: z
      .strictObject(UPLINK)
      .prefault({})
      .meta({ description: 'What the region grants and remembers.' }),
  })
  .nullable()
  .default(null)
  .meta({ description: 'The global routers that this region reports to; `null`: none.' });

/** `router.tier`. */
export const TIER_SECTION = z
  .strictObject({
    listen: listen('Where global routers connect.').default('127.0.0.1:8083'),
    keys: z.array(TIER_KEY).min(1).max(64).meta({
      description:
        'Keys whose signed contexts are accepted, one for each pair of tiers, two while one is rotated. Nothing else is accepted there, and contexts nowhere else.',
    }),
    tls: listenerTls('global routers'),
  })
  .nullable()
  .default(null)
  .meta({ description: 'The listener for global routers; `null`: none.' });
