// What an engine says about its KV cache, whatever its encoding: blocks stored, blocks removed, all cleared.
//
// Only full blocks are told. A block's key covers everything before it. One key can be stored several times (two
// physical blocks) and is then removed as often. Keys of different engines, and of one engine before and after
// a restart, have nothing to do with each other.

/** Hexadecimal: 16 digits of an integer hash, or all bytes of a longer one. */
export type BlockKey = string;

export interface BlocksStored {
  readonly kind: 'stored';
  /** Consecutive blocks, first to last. */
  readonly keys: readonly BlockKey[];
  /** The block before the first; null at the start of a prompt. */
  readonly parentKey: BlockKey | null;
  /** Tokens of all these blocks together; null where they are not plain ids (pairs of speculative decoding). */
  readonly tokenIds: Uint32Array | null;
  /** Tokens of a full block. */
  readonly blockTokens: number;
  /** Adapter: its name, or its number where no name is told. */
  readonly lora: string | null;
  /** Only on the first block of a salted prompt, and only where the engine tells it. */
  readonly salt: string | null;
  /** `GPU`, `CPU`, …; null where the engine names none: then it is the GPU. */
  readonly medium: string | null;
  /** Of caches with several groups of layers; null where there is one. */
  readonly group: number | null;
  /** `full_attention`, `sliding_window`, …; null where the engine does not tell. */
  readonly groupKind: string | null;
}

export interface BlocksRemoved {
  readonly kind: 'removed';
  readonly keys: readonly BlockKey[];
  readonly medium: string | null;
  readonly group: number | null;
}

export interface BlocksCleared {
  readonly kind: 'cleared';
}

export type KvEvent = BlocksStored | BlocksRemoved | BlocksCleared;

/** What one scheduler step, or one flush, of the engine published. */
export interface KvBatch {
  /** Counts from 0 in each engine process. */
  readonly seq: number;
  /** May be none: an engine publishes empty batches too. */
  readonly events: readonly KvEvent[];
}

/** Where an engine's KV events are heard. A rank above 0 has the ports after these. */
export interface KvEventsOptions {
  /** ZeroMQ address of the events; a wildcard host is the engine's own. */
  readonly endpoint: string;
  /** Of the replays; null where the engine offers none. */
  readonly replay: string | null;
  /** Prefix of the topics that are heard. */
  readonly topic: string;
  /** Bind instead of connecting: an engine whose own endpoint names a host connects itself. */
  readonly bind: boolean;
}
