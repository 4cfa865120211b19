// A chain of hashes made as its bytes come, in whatever pieces: the same values as `ChainHasher.chain` gives for all of
// them at once, without the whole prompt ever standing in one place.
//
//   bytes added ─▶ [tail < 512] ─▶ chunk full: h = XXH64(chunk, h)        a turn ends: XXH64(tail, h)

import { CHUNK_BYTES, type PromptChain, type TurnEnd } from '../model/prompt.ts';

/** XXH64 of the bytes with that seed. */
type Hash64 = (bytes: Uint8Array, seed: bigint) => bigint;

/** What a chain says of its prompt beside the hashes. */
export interface ChainFacts {
  readonly keySpace: string;
  /** Bytes that frame non-text parts and stand for no text. */
  readonly partBytes: number;
  /** Non-text parts by kind. */
  readonly parts: Readonly<Record<string, number>>;
}

const LOW_WORD = 0xffff_ffffn;
const FIRST_CHUNKS = 256;

export class ChainRun {
  readonly #hash64: Hash64;
  readonly #tail = new Uint8Array(CHUNK_BYTES);
  readonly #turnEnds: TurnEnd[] = [];
  #tailLength = 0;
  #hash: bigint;
  #words = new Uint32Array(2 * FIRST_CHUNKS);
  #chunks = 0;

  /** `seed`: hash of what separates prompts of equal bytes. */
  constructor(hash64: Hash64, seed: bigint) {
    this.#hash64 = hash64;
    this.#hash = seed;
  }

  /** Bytes so far. */
  get length(): number {
    return this.#chunks * CHUNK_BYTES + this.#tailLength;
  }

  add(bytes: Uint8Array): void {
    let at = this.#fill(bytes);
    for (; at + CHUNK_BYTES <= bytes.length; at += CHUNK_BYTES) {
      this.#chunk(bytes.subarray(at, at + CHUNK_BYTES));
    }
    if (at >= bytes.length) return;
    this.#tail.set(bytes.subarray(at));
    this.#tailLength = bytes.length - at;
  }

  /** The next bytes are an assistant's message. */
  endTurn(): void {
    this.#turnEnds.push(this.#end());
  }

  finish({ keySpace, partBytes, parts }: ChainFacts): PromptChain {
    return {
      keySpace,
      bytes: this.length - partBytes,
      hashes: this.#words.slice(0, 2 * this.#chunks),
      turnEnds: this.#turnEnds,
      end: this.#end(),
      parts: { ...parts },
      tokenIds: null,
    };
  }

  /** How many of the bytes went to complete a chunk that others began. */
  #fill(bytes: Uint8Array): number {
    if (this.#tailLength === 0) return 0;
    const taken = Math.min(CHUNK_BYTES - this.#tailLength, bytes.length);
    this.#tail.set(taken === bytes.length ? bytes : bytes.subarray(0, taken), this.#tailLength);
    this.#tailLength += taken;
    if (this.#tailLength < CHUNK_BYTES) return taken;
    this.#tailLength = 0;
    this.#chunk(this.#tail);
    return taken;
  }

  #chunk(chunk: Uint8Array): void {
    this.#hash = this.#hash64(chunk, this.#hash);
    const at = 2 * this.#chunks;
    if (at === this.#words.length) {
      const grown = new Uint32Array(2 * at);
      grown.set(this.#words);
      this.#words = grown;
    }
    this.#words[at] = Number(this.#hash & LOW_WORD);
    this.#words[at + 1] = Number(this.#hash >> 32n);
    this.#chunks += 1;
  }

  #end(): TurnEnd {
    const hash = this.#hash64(this.#tail.subarray(0, this.#tailLength), this.#hash);
    return {
      offset: this.length,
      chunks: this.#chunks,
      hashLow: Number(hash & LOW_WORD),
      hashHigh: Number(hash >> 32n),
    };
  }
}
