// The link between two routers of one region: each dials every other, on the listener where agents link too. A router
// that knows nothing of it has no such path there.

import { MAX_SIBLING_FRAME_BYTES } from '../protocol/limits.ts';
import {
  decodeSiblingChild,
  decodeSiblingParent,
  encodeSiblingMessage,
} from '../protocol/sibling-codec.ts';
import {
  SIBLING_PROTOCOL_VERSION,
  type SiblingChildMessage,
  type SiblingHello,
  type SiblingSends,
  type SiblingWelcome,
} from '../protocol/sibling-messages.ts';
import { LINK_LIMITS, type LinkLimits } from './link-socket.ts';
import type { ChildWords, ParentWords } from './link-words.ts';

/** Where routers link, beside the `/link` of agents. */
export const SIBLING_PATH = '/siblings';

/** Fifty small messages a second, and now and then all that is open: four seconds' worth may come at once. */
export const SIBLING_LINK_LIMITS: LinkLimits = {
  ...LINK_LIMITS,
  maxFrameBytes: MAX_SIBLING_FRAME_BYTES,
  maxBufferedBytes: 4 * MAX_SIBLING_FRAME_BYTES,
  messagesPerS: 200,
  bytesPerS: 4 * MAX_SIBLING_FRAME_BYTES,
};

export const ROUTER_OF_SIBLINGS: ParentWords<SiblingHello, SiblingSends, SiblingWelcome> = {
  version: SIBLING_PROTOCOL_VERSION,
  decode: decodeSiblingChild,
  encode: encodeSiblingMessage,
  speaksFor: ({ region }) => region,
  child: 'router',
  named: ({ routerId, region }) => ({ routerId, region }),
};

export const SIBLING_OF_ROUTERS: ChildWords<SiblingChildMessage, SiblingWelcome, never> = {
  version: SIBLING_PROTOCOL_VERSION,
  decode: decodeSiblingParent,
  encode: encodeSiblingMessage,
  siblings: ({ siblings }) => siblings.flatMap((url) => siblingUrl(url) ?? []),
};

/** Where a router that agents reach at `url` hears its siblings; null where that is no URL. */
export function siblingUrl(url: string): string | null {
  const parsed = URL.parse(url);
  return parsed === null ? null : `${parsed.protocol}//${parsed.host}${SIBLING_PATH}`;
}
