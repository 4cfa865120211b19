// Frames of the link between two routers of one region: plain msgpack maps with a `kind`, as those of agents.

import { z } from 'zod';
import type { PoolId, ReplicaId, RouterId } from '../model/ids.ts';
import { helloFields, welcomeFields } from './greeting.ts';
import { MAX_LEASE_REQUESTS, MAX_RANKS, MAX_SIBLING_FRAME_BYTES, MAX_SIBLINGS } from './limits.ts';
import { decodeMap, packMap, refused, type Decoded } from './map-frame.ts';
import { plainReader } from './plain-reader.ts';
import { amount, count, idOf, text } from './schema-fields.ts';
import {
  MAX_HELD,
  MAX_OPENED,
  MAX_PAST,
  type SiblingChildMessage,
  type SiblingHeld,
  type SiblingHello,
  type SiblingParentMessage,
  type SiblingSend,
  type SiblingSends,
  type SiblingWelcome,
} from './sibling-messages.ts';

const send = z.object({
  no: count,
  replica: idOf<ReplicaId>(),
  rank: z.int().min(0).max(MAX_RANKS),
  seq: count.nullable(),
  promptTokens: amount,
  uncachedTokens: amount,
  contextTokens2: amount,
  requests: z.int().min(1).max(MAX_LEASE_REQUESTS).optional(),
  growthTokens: amount.optional(),
  aged: z.boolean().optional(),
}) satisfies z.ZodType<SiblingSend>;

const held = z.object({
  pool: idOf<PoolId>(),
  first: z
    .object({
      tenant: text,
      priority: z.number(),
      returning: z.boolean(),
      ageMs: amount,
      patienceMs: amount,
    })
    .optional(),
}) satisfies z.ZodType<SiblingHeld>;

const CHILD_SCHEMAS = {
  hello: z.object({
    ...helloFields,
    routerId: idOf<RouterId>(),
    region: text,
  }) satisfies z.ZodType<SiblingHello>,
  sends: z.object({
    kind: z.literal('sends'),
    anew: z.boolean().optional(),
    opened: z.array(send).max(MAX_OPENED),
    past: z.array(count).max(MAX_PAST),
    held: z.array(held).max(MAX_HELD).optional(),
  }) satisfies z.ZodType<SiblingSends>,
} as const;

const PARENT_SCHEMAS = {
  welcome: z.object({
    ...welcomeFields,
    siblings: z.array(text).max(MAX_SIBLINGS),
  }) satisfies z.ZodType<SiblingWelcome>,
} as const;

/** They come fifty times a second from each sibling. */
const readSends = plainReader<SiblingChildMessage>(CHILD_SCHEMAS.sends);

export function encodeSiblingMessage(message: SiblingChildMessage | SiblingWelcome): Uint8Array {
  return packMap(message);
}

export function decodeSiblingChild(frame: Uint8Array): Decoded<SiblingChildMessage> {
  if (frame.length > MAX_SIBLING_FRAME_BYTES) return refused('malformed', 'message too large');
  const sends = readSends(frame);
  if (sends !== null) return { ok: true, message: sends, unknownFields: 0 };
  return decodeMap<SiblingChildMessage>(frame, CHILD_SCHEMAS);
}

export function decodeSiblingParent(frame: Uint8Array): Decoded<SiblingParentMessage> {
  if (frame.length > MAX_SIBLING_FRAME_BYTES) return refused('malformed', 'message too large');
  return decodeMap<SiblingParentMessage>(frame, PARENT_SCHEMAS);
}
