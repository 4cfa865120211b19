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
  /** The tenant's part of the first block's key; null for none. */
  readonly salt: string | null;
  /** Name of the adapter, part of every block's key; null for the base model. */
  readonly lora: string | null;
  /** Key of the block at `index`, which is full; −1 when its content is not known and cannot be shared. */
  blockKey(index: number): number;
  /** Prompt and answer from token `from` to before `to`, all generated already; null when only keys are known. */
  tokenIds(from: number, to: number): Uint32Array | null;
  /** An answer token was generated. */
  append(tokenId: number): void;
  /** The same, going on by itself: what is appended to one is not in the other. */
  fork(): TokenSequence;
}

/** What besides the tokens makes a sequence. */
export interface SequenceIdentity {
  readonly salt?: string | undefined;
  readonly lora?: string | undefined;
  /** The answer where somebody else decides it: taken in place of what is appended, as far as it reaches. */
  readonly answerIds?: Uint32Array;
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
  readonly lora?: string | undefined;
}

/** Blocks of a prompt whose token ids are known. */
export function tokenSequence(
  promptTokenIds: Uint32Array,
  blockTokens: number,
  identity: SequenceIdentity = {},
): TokenSequence {
  const chain = new KeyChain(blockTokens, seedOf(identity));
  for (const id of promptTokenIds) chain.push(id);
  return knownSequence({ promptTokenIds, identity, promptKey: chain.tail() }, chain, []);
}

interface KnownPrompt {
  readonly promptTokenIds: Uint32Array;
  readonly identity: SequenceIdentity;
  readonly promptKey: number;
}

function knownSequence(prompt: KnownPrompt, chain: KeyChain, generated: number[]): TokenSequence {
  const { promptTokenIds, identity, promptKey } = prompt;
  const promptTokens = promptTokenIds.length;
  return {
    promptTokens,
    promptKey,
    salt: nameOf(identity.salt),
    lora: nameOf(identity.lora),
    blockKey: (index) => chain.key(index),
    tokenIds(from, to) {
      if (to <= promptTokens) return promptTokenIds.slice(from, to);
      const ids = new Uint32Array(to - from);
      ids.set(promptTokenIds.subarray(Math.min(from, promptTokens)));
      for (let at = Math.max(from, promptTokens); at < to; at += 1) {
        ids[at - from] = generated[at - promptTokens] ?? 0;
      }
      return ids;
    },
    append(tokenId) {
      const id = identity.answerIds?.[generated.length] ?? tokenId;
      generated.push(id);
      chain.push(id);
    },
    fork: () => knownSequence(prompt, chain.fork(), generated.slice()),
  };
}

/** Blocks of a prompt that is known by its units only. */
export function unitSequence(prompt: UnitPrompt, blockTokens: number): TokenSequence {
  const perUnit = prompt.unitTokens / blockTokens;
  if (!Number.isInteger(perUnit) || perUnit < 1) {
    throw new RangeError(`unit of ${prompt.unitTokens} tokens is no multiple of ${blockTokens}`);
  }
  const seed = seedOf(prompt);
  const units = prompt.unitWords.length >> 1;
  const keyOf = (unit: number, part: number): number => {
    if (unit >= units) return NO_KEY;
    const low = prompt.unitWords[2 * unit] ?? 0;
    const high = prompt.unitWords[2 * unit + 1] ?? 0;
    return mixKey(mixKey(low * 0x100000 + (high & HIGH_BITS), (high >>> 20) ^ (part << 12)), seed);
  };
  const lastUnit = Math.max(0, Math.ceil(prompt.promptTokens / prompt.unitTokens) - 1);
  const sequence: TokenSequence = {
    promptTokens: prompt.promptTokens,
    promptKey: mixKey(Math.max(0, keyOf(Math.min(lastUnit, units - 1), 0)), prompt.promptTokens),
    salt: nameOf(prompt.salt),
    lora: nameOf(prompt.lora),
    blockKey: (index) => keyOf(Math.floor(index / perUnit), index % perUnit),
    tokenIds: () => null,
    append: () => {},
    fork: () => sequence,
  };
  return sequence;
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

/** Chains under different salts or adapters share nothing. */
function seedOf({ salt, lora }: Pick<SequenceIdentity, 'salt' | 'lora'>): number {
  const key = textKey(salt ?? '');
  return lora === undefined || lora === '' ? key : mixKey(textKey(lora), key);
}

function nameOf(text: string | undefined): string | null {
  return text === undefined || text === '' ? null : text;
}

function textKey(text: string): number {
  let key = text.length;
  for (let at = 0; at < text.length; at += 1) key = mixKey(key, text.charCodeAt(at));
  return key;
}

/** Keys of full blocks, grown token by token. A fork shares what was there and grows on its own. */
class KeyChain {
  readonly #blockTokens: number;
  readonly #shared: readonly number[];
  readonly #sharedBlocks: number;
  readonly #own: number[] = [];
  #running: number;
  #filled = 0;

  constructor(blockTokens: number, seed: number, from: KeyChain | null = null) {
    this.#blockTokens = blockTokens;
    this.#running = from === null ? mixKey(seed, 1) : from.#running;
    this.#filled = from === null ? 0 : from.#filled;
    // A fork of a fork would need a chain of them: nobody makes one.
    if (from !== null && from.#sharedBlocks > 0) throw new Error('a fork is not forked again');
    this.#shared = from === null ? [] : from.#own;
    this.#sharedBlocks = this.#shared.length;
  }

  push(tokenId: number): void {
    this.#running = mixKey(this.#running, tokenId);
    this.#filled += 1;
    if (this.#filled === this.#blockTokens) {
      this.#own.push(this.#running);
      this.#filled = 0;
    }
  }

  key(index: number): number {
    const own = index - this.#sharedBlocks;
    return (own < 0 ? this.#shared[index] : this.#own[own]) ?? NO_KEY;
  }

  tail(): number {
    return mixKey(this.#running, this.#filled);
  }

  fork(): KeyChain {
    return new KeyChain(this.#blockTokens, 0, this);
  }
}
