// Prompts without text: a prompt is a row of segments, and a segment stands for bytes that only its id decides.
//
// Two prompts that begin with the same segments have the same bytes up to there, so their chain values and their
// token ids are equal up to there and nowhere else: a chunk's hash covers the hash before it and the slices of the
// segments inside it. Offsets, chunks and turn ends are those of `shared/model/prompt.ts`.

import { CHUNK_BYTES, type PromptChain, type TurnEnd } from '../../shared/model/prompt.ts';

export interface Segment {
  /** 32 bits; equal ids have equal length, tokens and role. */
  readonly id: number;
  /** Canonical bytes, at least 1. */
  readonly bytes: number;
  /** The engine's token ids for these bytes. */
  readonly tokenIds: Uint32Array;
  /** An assistant message: the boundary before it is where an earlier turn's prompt ended. */
  readonly assistant: boolean;
}

/** A segment whose token ids follow from its id. */
export function segmentOf(options: {
  id: number;
  tokens: number;
  bytesPerToken: number;
  assistant: boolean;
}): Segment {
  const tokenIds = new Uint32Array(options.tokens);
  for (let index = 0; index < options.tokens; index++) {
    tokenIds[index] = scramble(options.id ^ Math.imul(index + 1, 0x9e3779b1));
  }
  const bytes = Math.max(1, Math.round(options.tokens * options.bytesPerToken));
  return { id: options.id, bytes, tokenIds, assistant: options.assistant };
}

export function tokenIdsOf(segments: readonly Segment[]): Uint32Array {
  let length = 0;
  for (const segment of segments) length += segment.tokenIds.length;
  const ids = new Uint32Array(length);
  let offset = 0;
  for (const segment of segments) {
    ids.set(segment.tokenIds, offset);
    offset += segment.tokenIds.length;
  }
  return ids;
}

/** `salt` stands for key space, salt group and LoRA: chains of different salts share nothing. */
export function chainOf(segments: readonly Segment[], salt: number): PromptChain {
  const hash = new RunningHash(salt);
  const hashes: number[] = [];
  const turnEnds: TurnEnd[] = [];
  let bytes = 0;
  for (const segment of segments) {
    if (segment.assistant && bytes > 0) turnEnds.push(hash.turnEnd(bytes));
    let done = 0;
    while (done < segment.bytes) {
      const take = Math.min(segment.bytes - done, CHUNK_BYTES - (bytes % CHUNK_BYTES));
      hash.slice(segment.id, done, take);
      done += take;
      bytes += take;
      if (bytes % CHUNK_BYTES === 0) hash.closeChunk(hashes);
    }
  }
  return {
    keySpace: 'text/1',
    bytes,
    hashes: Uint32Array.from(hashes),
    turnEnds,
    end: hash.turnEnd(bytes),
    parts: {},
    tokenIds: null,
  };
}

/** A hash of 32 bits from one of 32 bits: neighbours differ in about half of their bits. */
export function scramble(value: number): number {
  let mixed = value >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x7feb352d);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x846ca68b);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** The hash of everything so far in two words, closed at every full chunk. */
class RunningHash {
  #low: number;
  #high: number;

  constructor(salt: number) {
    this.#low = scramble(salt + 1);
    this.#high = scramble(salt ^ 0x5bd1e995);
  }

  slice(id: number, start: number, length: number): void {
    this.#mix(id);
    this.#mix(start * CHUNK_BYTES + length);
  }

  closeChunk(into: number[]): void {
    into.push(this.#low, this.#high);
  }

  turnEnd(offset: number): TurnEnd {
    return {
      offset,
      chunks: Math.floor(offset / CHUNK_BYTES),
      hashLow: scramble(this.#low ^ 0x165667b1),
      hashHigh: scramble(this.#high ^ 0x27d4eb2f),
    };
  }

  #mix(value: number): void {
    this.#low = scramble(Math.imul(this.#low, 0x01000193) ^ value);
    this.#high = scramble(Math.imul(this.#high, 0x01000197) + (value ^ this.#low));
  }
}
