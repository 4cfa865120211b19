// A prompt as the routing sees it: how long it is and which prefixes it has, never its text.
//
// Chains are XXH64 over 512-byte chunks of the canonical bytes, each seeded with the one before, so
// equal values mean equal prefixes. A 64-bit hash is two words (low, high) of a Uint32Array
// everywhere: no bigint on the request path.

/** Bytes of canonical text per chain element. The partial last chunk is left out. */
export const CHUNK_BYTES = 512;

/** 2 words a hash: low 32 bits, then high 32 bits. */
export type HashWords = Uint32Array;

/**
 * A point of the prompt where a turn ended: the end of the whole prompt, or a boundary directly before an
 * assistant message. `hash` is XXH64 of the bytes after the last full chunk up to `offset`, seeded with that
 * chunk's hash: equal values mean that the conversation up to there is the same.
 */
export interface TurnEnd {
  /** Canonical bytes up to here. */
  readonly offset: number;
  /** Full chunks before here: ⌊offset / 512⌋. */
  readonly chunks: number;
  readonly hashLow: number;
  readonly hashHigh: number;
}

export interface PromptChain {
  /** `text/1` and so on; part of the seed. */
  readonly keySpace: string;
  /** Canonical bytes in all, non-text parts not included. */
  readonly bytes: number;
  /** Full chunks only, 2 words each. */
  readonly hashes: HashWords;
  /** Boundaries before an assistant message, in order: where an earlier turn's prompt ended. */
  readonly turnEnds: readonly TurnEnd[];
  /** The end of this whole prompt: the leaf that the next turn looks for. */
  readonly end: TurnEnd;
  /** Non-text parts by kind (image, audio, …). */
  readonly parts: Readonly<Record<string, number>>;
  /** Exact token count where the prompt came as token ids, else null. */
  readonly tokenIds: number | null;
}
