// Listeners in `fleet.yaml`, and what clients may ask for there: the same for routers of both tiers.

import { z } from 'zod';
import { flag, listen, origin, quantity } from './fields.ts';
import { CLIENT_KEY, listenerTls } from './schema-tls.ts';

const HOUR = 3_600_000;
const MIB = 1_048_576;
const GIB = 1_073_741_824;

const LIMIT_FIELDS = {
  bodyBytes: quantity('One request body at most.', {
    unit: 'bytes',
    min: 1_024,
    max: GIB,
    default: 32 * MIB,
  }),
  bodyBytesMax: quantity('All request bodies in memory together at most.', {
    unit: 'bytes',
    min: MIB,
    max: 64 * GIB,
    default: 512 * MIB,
  }),
  answerBytesMax: quantity(
    'All answers together that are held until they are whole at most, and of streams what is longer than 64 KiB of events whose end has not come; beyond it answers pass on as they come, without failover, and a stream in so long an event is given up.',
    { unit: 'bytes', min: MIB, max: 64 * GIB, default: 256 * MIB },
  ),
  bodyRatio: quantity('Times its compressed size that a compressed request body may have.', {
    unit: 'ratio',
    min: 1,
    max: 10_000,
    default: 100,
  }),
  jsonDepth: quantity("Nesting of a request's JSON at most.", {
    unit: 'count',
    min: 4,
    max: 1_024,
    default: 64,
  }),
  openRequests: quantity('Requests open at the same time at most.', {
    unit: 'requests',
    min: 1,
    max: 1_000_000,
    default: 10_000,
  }),
  headerBytes: quantity("A request's headers together at most.", {
    unit: 'bytes',
    min: 1_024,
    max: MIB,
    default: 32_768,
  }),
  requestTimeoutMs: quantity("From the first byte to the end of a request's head and body.", {
    unit: 'ms',
    min: 100,
    max: HOUR,
    default: 60_000,
  }),
  keepAliveMs: quantity(
    'How long an idle connection of a client is kept: longer than load balancers keep theirs, so that they close first.',
    { unit: 'ms', min: 1_000, max: HOUR, default: 620_000 },
  ),
  clientStallMs: quantity(
    'How long a client may take nothing of its answer, or not the last of it, before its connection is cut.',
    { unit: 'ms', min: 100, max: HOUR, default: 300_000 },
  ),
};

const CORS = z.strictObject({
  origins: z
    .array(origin('A page\u2019s origin, or `*` for every page.'))
    .min(1)
    .max(256)
    .meta({ description: 'Origins of pages that may use it; `*`: every page.' }),
  maxAgeS: quantity('How long browsers remember what they were told of it, in seconds.', {
    unit: 'count',
    min: 0,
    max: 86_400,
    default: 600,
  }),
});

const SHUTDOWN_FIELDS = {
  acceptMs: quantity(
    'After SIGTERM: not ready, but still accepting, for load balancers to notice.',
    { unit: 'ms', min: 0, max: 300_000, default: 5_000 },
  ),
  drainMs: quantity('Then: how long running requests may take to end.', {
    unit: 'ms',
    min: 0,
    max: 24 * HOUR,
    default: 900_000,
  }),
};

export const LIMITS = z
  .strictObject(LIMIT_FIELDS)
  .prefault({})
  .meta({ description: 'What clients may ask for.' });

export const SHUTDOWN = z
  .strictObject(SHUTDOWN_FIELDS)
  .prefault({})
  .meta({ description: 'How SIGTERM ends it.' });

export function clientsSection(byDefault: string) {
  return z
    .strictObject({
      listen: listen('Where clients connect.').default(byDefault).meta({
        'x-flag': '--listen',
        'x-env': 'SPILLWAY_LISTEN',
      }),
      access: z.enum(['loopback', 'open']).default('loopback').meta({
        description:
          '`open` lets everybody use a listener that is reachable from elsewhere; with `loopback` such a one needs keys or certificates.',
        'x-flag': '--access',
        'x-env': 'SPILLWAY_ACCESS',
      }),
      cors: CORS.nullable().default(null).meta({
        description: 'Pages of other origins that may use it from a browser; `null`: none.',
      }),
      explain: flag(
        false,
        'Answer `x-spillway-explain: 1` with the routing decision: it names replicas and their load.',
      ),
      keys: z.array(CLIENT_KEY).max(4_096).default([]).meta({
        description: 'Keys of clients; where there are any, every request needs one.',
      }),
      tls: listenerTls('clients', true),
    })
    .prefault({})
    .meta({ description: 'The listener for clients.' });
}

export function adminSection(byDefault: string) {
  return z
    .strictObject({
      listen: listen('Where operators connect.').default(byDefault).meta({
        'x-flag': '--admin',
        'x-env': 'SPILLWAY_ADMIN',
      }),
      tls: listenerTls('operators'),
    })
    .nullable()
    .prefault({})
    .meta({
      description:
        '`/metrics`, `/status`, `/readyz`, explain. `null` puts them on the client listener.',
    });
}
