// Frames of the link between a region and the global tier: plain msgpack maps with a `kind`, as those of agents.
//
// An encoder keeps within every bound by itself: what is too much is left out, never a reason for the other side to close
// the link.

import {
  MAX_AMOUNT,
  MAX_PENDING,
  MAX_POOLS,
  MAX_REGION_FRAME_BYTES,
  MAX_REGION_MODELS,
  MAX_TIERS,
} from './limits.ts';
import { decodeMap, packMap, refused, type Decoded, type Schemas } from './map-frame.ts';
import {
  MAX_ARRIVED,
  MAX_AWAY,
  type RegionChildMessage,
  type RegionParentMessage,
  type RegionPoolReport,
  type RegionReportMessage,
} from './region-messages.ts';
import { REGION_CHILD_SCHEMAS, REGION_PARENT_SCHEMAS } from './region-schemas.ts';

export function encodeRegionChild(message: RegionChildMessage): Uint8Array {
  return packMap(withinAmounts(bounded(message)));
}

export function encodeRegionParent(message: RegionParentMessage): Uint8Array {
  return packMap(withinAmounts(message));
}

export function decodeRegionChild(frame: Uint8Array): Decoded<RegionChildMessage> {
  return decode<RegionChildMessage>(frame, REGION_CHILD_SCHEMAS);
}

export function decodeRegionParent(frame: Uint8Array): Decoded<RegionParentMessage> {
  return decode<RegionParentMessage>(frame, REGION_PARENT_SCHEMAS);
}

function decode<T>(frame: Uint8Array, schemas: Schemas<T>): Decoded<T> {
  if (frame.length > MAX_REGION_FRAME_BYTES) return refused('malformed', 'message too large');
  return decodeMap<T>(frame, schemas);
}

/** Sums of what agents may say can be greater than what anybody may. */
function withinAmounts<T>(value: T): T {
  if (typeof value === 'number') return Math.min(value, MAX_AMOUNT) as T;
  if (Array.isArray(value)) return value.map(withinAmounts) as T;
  if (typeof value !== 'object' || value === null) return value;
  const within = Object.entries(value).map(([key, inner]) => [key, withinAmounts(inner)] as const);
  return Object.fromEntries(within) as T;
}

function bounded(message: RegionChildMessage): RegionChildMessage {
  switch (message.kind) {
    case 'report':
      return boundedReport(message);
    case 'away':
      return {
        ...message,
        here: message.here.slice(0, MAX_AWAY),
        gone: message.gone.slice(0, MAX_AWAY),
      };
    default:
      return message;
  }
}

function boundedReport(message: RegionReportMessage): RegionReportMessage {
  let rows = MAX_REGION_MODELS;
  const pools = message.pools.slice(0, MAX_POOLS).map((pool): RegionPoolReport => {
    const models = pool.models.slice(0, rows);
    rows -= models.length;
    const { pending, tiers } = pool;
    return {
      ...pool,
      models,
      pending: pending.slice(0, MAX_PENDING),
      tiers: tiers.slice(0, MAX_TIERS),
    };
  });
  return { ...message, pools, arrived: message.arrived.slice(0, MAX_ARRIVED) };
}
