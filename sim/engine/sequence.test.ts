import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { tokenSequence, unitSequence } from './sequence.ts';

const BLOCK = 16;

function keysOf(ids: readonly number[], salt?: string): number[] {
  const sequence = tokenSequence(Uint32Array.from(ids), BLOCK, { salt });
  return Array.from({ length: Math.floor(ids.length / BLOCK) }, (_, at) => sequence.blockKey(at));
}

describe('token sequence', () => {
  it('has a key for full blocks only', () => {
    const sequence = tokenSequence(new Uint32Array(BLOCK * 2 + 5), BLOCK);
    expect([0, 1, 2].map((at) => sequence.blockKey(at) >= 0)).toEqual([true, true, false]);
  });

  it('shares exactly the blocks before the first difference', () => {
    const tokens = fc.array(fc.nat(3), { minLength: 0, maxLength: 80 });
    fc.assert(
      fc.property(tokens, tokens, tokens, (start, left, right) => {
        const a = [...start, ...left];
        const b = [...start, ...right];
        const differs = a.findIndex((id, at) => id !== b[at]);
        const equal = differs < 0 ? Math.min(a.length, b.length) : Math.min(differs, b.length);
        const [keysA, keysB] = [keysOf(a), keysOf(b)];
        for (let at = 0; at < Math.min(keysA.length, keysB.length); at += 1) {
          expect(keysA[at] === keysB[at]).toBe((at + 1) * BLOCK <= equal);
        }
      }),
    );
  });

  it('shares nothing under another salt', () => {
    const ids = Array.from({ length: 64 }, (_, at) => at);
    const salted = keysOf(ids, 'tenant');
    expect(keysOf(ids).every((key, at) => key !== salted[at])).toBe(true);
    expect(keysOf(ids, 'tenant')).toEqual(salted);
  });

  it('continues with generated tokens as if they had been in the prompt', () => {
    const ids = Array.from({ length: 40 }, (_, at) => at * 3);
    const grown = tokenSequence(Uint32Array.from(ids.slice(0, 20)), BLOCK);
    for (const id of ids.slice(20)) grown.append(id);
    expect([grown.blockKey(0), grown.blockKey(1)]).toEqual(keysOf(ids));
  });
});

describe('unit sequence', () => {
  const words = Uint32Array.from({ length: 8 }, (_, at) => at * 2_654_435_761);

  it('gives every block of a unit its own key, equal for equal units', () => {
    const prompt = { promptTokens: 256, unitTokens: 128, unitWords: words };
    const [a, b] = [
      unitSequence(prompt, BLOCK),
      unitSequence({ ...prompt, promptTokens: 200 }, BLOCK),
    ];
    const keys = Array.from({ length: 16 }, (_, at) => a.blockKey(at));
    expect(new Set(keys).size).toBe(16);
    expect(Array.from({ length: 16 }, (_, at) => b.blockKey(at))).toEqual(keys);
  });

  it('knows the answer as far as its units reach, and nothing beyond', () => {
    const sequence = unitSequence(
      { promptTokens: 128, unitTokens: 128, unitWords: words.subarray(0, 4) },
      BLOCK,
    );
    expect(sequence.blockKey(8)).toBeGreaterThanOrEqual(0);
    expect(sequence.blockKey(16)).toBe(-1);
  });

  it('refuses units that do not hold whole blocks', () => {
    expect(() =>
      unitSequence({ promptTokens: 10, unitTokens: 100, unitWords: words }, BLOCK),
    ).toThrow(/multiple/);
  });
});
