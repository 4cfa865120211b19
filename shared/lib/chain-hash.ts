// Chains of prompt prefixes: XXH64 over chunks of the canonical bytes, each seeded with the one before.
//
//   h(-1) = XXH64(key space, salt group, LoRA)        h(i) = XXH64(chunk i, seed h(i-1))
//
// Equal values mean equal prefixes, so a text in mid-prompt never matches and two salt groups never
// share a value. A turn's end inside a chunk is XXH64 of the bytes after the last full chunk, seeded
// with that chunk's hash. The hasher keeps no state between calls.

import xxhash from 'xxhash-wasm';
import { CHUNK_BYTES, type PromptChain, type TurnEnd } from '../model/prompt.ts';
import { ChainRun } from './chain-run.ts';

/** What separates prompts of equal bytes. Model and revision belong to the replica, not to the key. */
export interface ChainSeed {
  /** The tenant, or the group of tenants that share their cache. */
  readonly saltGroup: string;
  readonly lora: string | null;
}

export interface ChainInput {
  /** Canonical bytes; only the first `length` count. */
  readonly bytes: Uint8Array;
  readonly length: number;
  readonly seed: ChainSeed;
  /** Ascending byte offsets directly before assistant messages, each at most `length`. */
  readonly boundaries: readonly number[];
  /** Non-text parts by kind. */
  readonly parts: Readonly<Record<string, number>>;
  readonly keySpace: string;
  /** Bytes of `length` that frame non-text parts and stand for no text. 0 when absent. */
  readonly partBytes?: number;
  /** Exact number of tokens where the prompt came as ids. */
  readonly tokenIds?: number;
}

export interface ChainHasher {
  chain(input: ChainInput): PromptChain;
  /** A chain whose bytes come one after the other. */
  open(seed: ChainSeed, keySpace: string): ChainRun;
  /** XXH64 of `length` bytes, as 8 little-endian bytes written at `target[offset]`. */
  digestInto(bytes: Uint8Array, target: Uint8Array, offset: number): void;
}

const LOW_WORD = 0xffff_ffffn;

/** Loads the hash function once; the hasher itself is synchronous. */
export async function createChainHasher(): Promise<ChainHasher> {
  const api = await xxhash();
  const h64Raw = (bytes: Uint8Array, seed: bigint): bigint => api.h64Raw(bytes, seed);
  const encoder = new TextEncoder();

  const seedOf = ({ saltGroup, lora }: ChainSeed, keySpace: string): bigint => {
    const framed = JSON.stringify([keySpace, saltGroup, lora]);
    return h64Raw(encoder.encode(framed), 0n);
  };

  const turnEnd = (input: ChainInput, offset: number, chunkHashes: readonly bigint[]): TurnEnd => {
    const chunks = Math.floor(offset / CHUNK_BYTES);
    const before = chunkHashes[chunks];
    if (before === undefined) throw new RangeError('turn end lies behind the prompt');
    const hash = h64Raw(input.bytes.subarray(chunks * CHUNK_BYTES, offset), before);
    return {
      offset,
      chunks,
      hashLow: Number(hash & LOW_WORD),
      hashHigh: Number(hash >> 32n),
    };
  };

  return {
    chain(input) {
      const chunks = Math.floor(input.length / CHUNK_BYTES);
      const hashes = new Uint32Array(chunks * 2);
      // Element i is the hash before chunk i: the seed first.
      const running: bigint[] = [seedOf(input.seed, input.keySpace)];
      let hash = running[0] as bigint;
      for (let i = 0; i < chunks; i += 1) {
        hash = h64Raw(input.bytes.subarray(i * CHUNK_BYTES, (i + 1) * CHUNK_BYTES), hash);
        running.push(hash);
        hashes[2 * i] = Number(hash & LOW_WORD);
        hashes[2 * i + 1] = Number(hash >> 32n);
      }
      return {
        keySpace: input.keySpace,
        bytes: input.length - (input.partBytes ?? 0),
        hashes,
        turnEnds: input.boundaries.map((offset) => turnEnd(input, offset, running)),
        end: turnEnd(input, input.length, running),
        parts: { ...input.parts },
        tokenIds: input.tokenIds ?? null,
      };
    },
    open: (seed, keySpace) => new ChainRun(h64Raw, seedOf(seed, keySpace)),
    digestInto(bytes, target, offset) {
      let hash = h64Raw(bytes, 0n);
      for (let i = 0; i < 8; i += 1) {
        target[offset + i] = Number(hash & 0xffn);
        hash >>= 8n;
      }
    },
  };
}
