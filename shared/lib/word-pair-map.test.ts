import fc from 'fast-check';
import { expect, test } from 'vitest';
import { WordPairMap } from './word-pair-map.ts';

const word = fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 0xffff_ffff }));
const act = fc.record({
  kind: fc.constantFrom('set', 'set', 'delete', 'get'),
  low: word,
  high: word,
  value: fc.nat(),
});

test('does what a Map does, through growth and removals', () => {
  fc.assert(
    fc.property(fc.array(act, { maxLength: 600 }), (acts) => {
      const map = new WordPairMap();
      const naive = new Map<string, number>();
      for (const { kind, low, high, value } of acts) {
        const key = `${low}/${high}`;
        if (kind === 'set') {
          map.set(low, high, value);
          naive.set(key, value);
        } else if (kind === 'delete') {
          expect(map.delete(low, high)).toBe(naive.delete(key));
        } else {
          expect(map.get(low, high)).toBe(naive.get(key) ?? -1);
        }
        expect(map.size).toBe(naive.size);
      }
      for (const [key, value] of naive) {
        const [low = 0, high = 0] = key.split('/').map(Number);
        expect(map.get(low, high)).toBe(value);
      }
    }),
    { numRuns: 300 },
  );
});

test('keys that share a home slot survive each other’s removal', () => {
  const map = new WordPairMap();
  for (let i = 0; i < 20; i += 1) map.set(i * 64, 0, i);
  for (let i = 0; i < 20; i += 2) map.delete(i * 64, 0);
  for (let i = 0; i < 20; i += 1) expect(map.get(i * 64, 0)).toBe(i % 2 === 0 ? -1 : i);
});
