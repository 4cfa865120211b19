// The tokens of one request, prompt and answer, as the KV cache sees them: a chain of block keys.
//
// The key of block i covers all tokens up to its end and the salt, so equal keys mean equal prefixes. Keys
// are 52-bit integers (two are equal by chance once in 4.5e15 pairs). A sequence is made either from token ids, or, for
// prompts of a hundred thousand tokens in virtual time, from keys of larger units alone.

const HIGH_BITS = 0xfffff;
const NO_KEY = -1;

export interface TokenSequence {
  readonly promptTokens: number;
  /** Seeds the answer: equal prompts get equal answers. */
  readonly promptKey: number;
  /** Key of the block at `index`, which is full; −1 when its content is not known and cannot be shared. */
  blockKey(index: number): number;
  /** An answer token was generated. */
  append(tokenId: number): void;
}

/** Prompt given as keys of units. `unitTokens` is a multiple of the engine's block. */
export interface UnitPrompt {
  readonly promptTokens: number;
  readonly unitTokens: number;
  /**
   * 2 words (low, high) for each unit, each a key of everything up to the unit's end: as chained hashes
   * are. They may reach past the prompt: then they say what the answer will be, and the next turn finds it.
   */
  readonly unitWords: Uint32Array;
  readonly salt?: string | undefined;
}

/** Blocks of a prompt whose token ids are known. */
export function tokenSequence(
  promptTokenIds: Uint32Array,
  blockTokens: number,
  salt?: string,
): TokenSequence {
  const chain = new KeyChain(blockTokens, textKey(salt ?? ''));
  for (const id of promptTokenIds) chain.push(id);
  return {
    promptTokens: promptTokenIds.length,
    promptKey: chain.tail(),
    blockKey: (index) => chain.key(index),
    append: (id) => chain.push(id),
  };
}

/** Blocks of a prompt that is known by its units only. */
export function unitSequence(prompt: UnitPrompt, blockTokens: number): TokenSequence {
  const perUnit = prompt.unitTokens / blockTokens;
  if (!Number.isInteger(perUnit) || perUnit < 1) {
    throw new RangeError(`unit of ${prompt.unitTokens} tokens is no multiple of ${blockTokens}`);
  }
  const salt = textKey(prompt.salt ?? '');
  const units = prompt.unitWords.length >> 1;
  const keyOf = (unit: number, part: number): number => {
    if (unit >= units) return NO_KEY;
    const low = prompt.unitWords[2 * unit] ?? 0;
    const high = prompt.unitWords[2 * unit + 1] ?? 0;
    return mixKey(mixKey(low * 0x100000 + (high & HIGH_BITS), (high >>> 20) ^ (part << 12)), salt);
  };
  const lastUnit = Math.max(0, Math.ceil(prompt.promptTokens / prompt.unitTokens) - 1);
  return {
    promptTokens: prompt.promptTokens,
    promptKey: mixKey(Math.max(0, keyOf(Math.min(lastUnit, units - 1), 0)), prompt.promptTokens),
    blockKey: (index) => keyOf(Math.floor(index / perUnit), index % perUnit),
    append: () => {},
  };
}

/** Mixes `word` (32 bits) into `key`. */
export function mixKey(key: number, word: number): number {
  let low = key >>> 0;
  let high = Math.floor(key / 0x100000000) >>> 0;
  low = Math.imul(low ^ word, 0x9e3779b1);
  low = Math.imul(low ^ (low >>> 15), 0x85ebca77);
  high = Math.imul(high ^ low ^ (word >>> 7), 0xc2b2ae3d);
  high = Math.imul(high ^ (high >>> 13), 0x27d4eb2f);
  low ^= high >>> 11;
  return (high & HIGH_BITS) * 0x100000000 + (low >>> 0);
}

function textKey(text: string): number {
  let key = text.length;
  for (let at = 0; at < text.length; at += 1) key = mixKey(key, text.charCodeAt(at));
  return key;
}

/** Keys of full blocks, grown token by token. */
class KeyChain {
  readonly #blockTokens: number;
  readonly #keys: number[] = [];
  #running: number;
  #filled = 0;

  constructor(blockTokens: number, seed: number) {
    this.#blockTokens = blockTokens;
    this.#running = mixKey(seed, 1);
  }

  push(tokenId: number): void {
    this.#running = mixKey(this.#running, tokenId);
    this.#filled += 1;
    if (this.#filled === this.#blockTokens) {
      this.#keys.push(this.#running);
      this.#filled = 0;
    }
  }

  key(index: number): number {
    return this.#keys[index] ?? NO_KEY;
  }

  tail(): number {
    return mixKey(this.#running, this.#filled);
  }
}
