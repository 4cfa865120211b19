import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { CHUNK_BYTES, type PromptChain } from '../model/prompt.ts';
import { createChainHasher, type ChainHasher, type ChainSeed } from './chain-hash.ts';

let hasher: ChainHasher;
beforeAll(async () => {
  hasher = await createChainHasher();
});

const seed: ChainSeed = { saltGroup: 'a', lora: null };

function chainOf(
  bytes: Uint8Array,
  options: { boundaries?: number[]; seed?: ChainSeed; keySpace?: string } = {},
): PromptChain {
  return hasher.chain({
    bytes,
    length: bytes.length,
    seed: options.seed ?? seed,
    boundaries: options.boundaries ?? [],
    parts: {},
    keySpace: options.keySpace ?? 'text/1',
  });
}

const bytesOf = (least: number): fc.Arbitrary<Uint8Array> =>
  fc.uint8Array({ minLength: least, maxLength: least + 3 * CHUNK_BYTES });

describe('chains', () => {
  test('a longer prompt keeps every hash of the prompt that it extends', () => {
    fc.assert(
      fc.property(bytesOf(0), bytesOf(1), (first, more) => {
        const whole = new Uint8Array(first.length + more.length);
        whole.set(first);
        whole.set(more, first.length);
        const before = chainOf(first);
        const after = chainOf(whole, { boundaries: [first.length] });
        expect(after.hashes.subarray(0, before.hashes.length)).toEqual(before.hashes);
        expect(after.turnEnds).toEqual([before.end]);
      }),
    );
  });

  test('a changed byte changes its chunk and every later one, and no earlier one', () => {
    fc.assert(
      fc.property(bytesOf(CHUNK_BYTES), fc.nat(), (bytes, at) => {
        const place = at % bytes.length;
        const changed = bytes.slice();
        changed[place] = (changed[place] ?? 0) ^ 1;
        const before = chainOf(bytes);
        const after = chainOf(changed);
        const chunk = Math.floor(place / CHUNK_BYTES);
        for (let i = 0; i < before.hashes.length / 2; i += 1) {
          const same =
            before.hashes[2 * i] === after.hashes[2 * i] &&
            before.hashes[2 * i + 1] === after.hashes[2 * i + 1];
          expect(same).toBe(i < chunk);
        }
        expect(after.end).not.toEqual(before.end);
      }),
    );
  });

  test('permuted chunks share no hash after the point where they differ', () => {
    const a = new Uint8Array(CHUNK_BYTES).fill(1);
    const b = new Uint8Array(CHUNK_BYTES).fill(2);
    const ab = chainOf(Uint8Array.from([...a, ...b]));
    const ba = chainOf(Uint8Array.from([...b, ...a]));
    const values = new Set([...ab.hashes]);
    for (const word of ba.hashes) expect(values.has(word)).toBe(false);
  });

  test('salt group, LoRA and key space separate equal bytes', () => {
    const bytes = new Uint8Array(2 * CHUNK_BYTES).fill(7);
    const chains = [
      chainOf(bytes),
      chainOf(bytes, { seed: { saltGroup: 'b', lora: null } }),
      chainOf(bytes, { seed: { saltGroup: 'a', lora: 'x' } }),
      chainOf(bytes, { seed: { saltGroup: 'a","x', lora: null } }),
      chainOf(bytes, { keySpace: 'ids/1' }),
    ];
    const firsts = chains.map((chain) => `${chain.hashes[0]}:${chain.hashes[1]}`);
    expect(new Set(firsts).size).toBe(chains.length);
  });

  test('the values are those of XXH64 as published: empty input with seed 0', () => {
    const target = new Uint8Array(8);
    hasher.digestInto(new Uint8Array(0), target, 0);
    const hex = Buffer.from(target).reverse().toString('hex');
    expect(hex).toBe('ef46db3751d8e999');
  });
});
