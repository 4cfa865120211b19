// The link between a regional router, which dials, and a global router.

import { MAX_REGION_FRAME_BYTES } from '../protocol/limits.ts';
import {
  decodeRegionChild,
  decodeRegionParent,
  encodeRegionChild,
  encodeRegionParent,
} from '../protocol/region-codec.ts';
import {
  REGION_PROTOCOL_VERSION,
  type RegionChildMessage,
  type RegionHello,
  type RegionParentMessage,
  type RegionWelcome,
} from '../protocol/region-messages.ts';
import { LINK_LIMITS, type LinkLimits } from './link-socket.ts';
import type { ChildWords, ParentWords } from './link-words.ts';

export type ToldByRegion = Exclude<RegionChildMessage, RegionHello>;

/** A handful of messages a second in either direction, and now and then all conversations away from home. */
export const REGION_LINK_LIMITS: LinkLimits = {
  ...LINK_LIMITS,
  maxFrameBytes: MAX_REGION_FRAME_BYTES,
  maxBufferedBytes: 4 * MAX_REGION_FRAME_BYTES,
  messagesPerS: 1_000,
};

export const ROUTER_OF_REGIONS: ParentWords<RegionHello, ToldByRegion, RegionParentMessage> = {
  version: REGION_PROTOCOL_VERSION,
  decode: decodeRegionChild,
  encode: encodeRegionParent,
  speaksFor: ({ region }) => region,
  child: 'region',
  named: ({ region, routerId }) => ({ region, routerId }),
};

export const REGION_OF_ROUTERS: ChildWords<
  RegionChildMessage,
  RegionWelcome,
  Exclude<RegionParentMessage, RegionWelcome>
> = {
  version: REGION_PROTOCOL_VERSION,
  decode: decodeRegionParent,
  encode: encodeRegionChild,
  siblings: () => [],
};
