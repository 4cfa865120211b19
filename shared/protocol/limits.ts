// Bounds of the link's frames. A frame past one of them is malformed; an encoder stays below them by itself.

/** Bytes of one frame: the greatest snapshot is a prefix index, 8 bytes a chunk. */
export const MAX_FRAME_BYTES = 16 * 1024 * 1024;
/** Bytes of a report or another message of an agent that is no prefix frame: figures and names. */
export const MAX_REPORT_BYTES = 1024 * 1024;
/** Bytes of a frame before the hello is accepted. */
export const MAX_HELLO_BYTES = 64 * 1024;
/** Nesting of a message. */
export const MAX_DEPTH = 12;
/** Chunks of one chain: 64 MiB of text. A longer chain is cut, and the beginning of a chain is a chain. */
export const MAX_CHAIN_CHUNKS = 131_072;
/** Chains of one request: a list prompt has one an element. */
export const MAX_CHAINS = 4_096;
/** Requests to an engine that one attempt may be; more are counted as so many. */
export const MAX_LEASE_REQUESTS = 65_536;
export const MAX_OPEN_LEASES = 65_536;
export const MAX_ENGINES = 256;
export const MAX_RANKS = 1_024;
export const MAX_SIBLINGS = 256;
/** Names of what one side of a link can do. */
export const MAX_FEATURES = 64;
export const MAX_MODELS = 1_024;
export const MAX_LORAS = 4_096;
/** Models and adapters of one report together. */
export const MAX_NAMES = 8_192;
/**
 * Greatest figure: sums of products of such are still far from infinity, which no subtraction would ever take away
 * again.
 */
export const MAX_AMOUNT = 1e18;
export const MAX_PART_KINDS = 32;
export const MAX_RUNS = 262_144;
export const MAX_LEAVES = 262_144;
/** Messages that what has changed of a target's prefixes comes in. */
export const DELTA_PARTS_MAX = 16;
/** Characters of an id, a name or an address. */
export const MAX_TEXT = 512;

// Of the link between two routers of a region.

/** Bytes of a message between two routers of one region. */
export const MAX_SIBLING_FRAME_BYTES = 1024 * 1024;

// Of the link between a region and the global tier.

/** Bytes of a message between a regional and a global router. */
export const MAX_REGION_FRAME_BYTES = 4 * 1024 * 1024;
export const MAX_POOLS = 256;
/** Rows of all pools of one report together. */
export const MAX_REGION_MODELS = 2_048;
export const MAX_TIERS = 16;
/** Steps by which capacity comes. */
export const MAX_PENDING = 64;
/** Characters of a conversation's key. */
export const MAX_KEY = 128;
