import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BytePieces } from './byte-pieces.ts';

const sizes = fc.array(fc.integer({ min: 0, max: 9_000 }), { maxLength: 40 });

test('pieces of any size come back as one, and the next ones as the next', () => {
  const pieces = new BytePieces();
  fc.assert(
    fc.property(sizes, (lengths) => {
      const given = lengths.map((length, k) => Buffer.alloc(length, k + 1));
      for (const piece of given) pieces.add(piece);
      const whole = Buffer.concat(given);
      expect(pieces.length).toBe(whole.length);
      expect(pieces.take().equals(whole)).toBe(true);
      expect(pieces.length).toBe(0);
    }),
  );
});

test('a piece is free to change when it was copied', () => {
  const pieces = new BytePieces();
  const piece = Buffer.from('a');
  pieces.add(piece);
  piece[0] = 0x62;
  expect(pieces.take().toString()).toBe('a');
});

test('many bytes one by one are held in little more than they are', () => {
  const pieces = new BytePieces();
  const one = Buffer.from('x');
  for (let k = 0; k < 1_048_576; k += 1) pieces.add(one);
  expect(pieces.heldBytes).toBe(1_048_576);
  pieces.clear();
  expect(pieces.heldBytes).toBe(0);
});

test('small pieces between large ones share a block', () => {
  const pieces = new BytePieces();
  for (let k = 0; k < 100; k += 1) {
    pieces.add(Buffer.alloc(1));
    pieces.add(Buffer.alloc(4_096));
  }
  expect(pieces.heldBytes).toBe(100 * 4_096 + 16_384);
});

test('what is announced is held in as much, and more than that as if nothing had been said', () => {
  const pieces = new BytePieces(1_000);
  pieces.add(Buffer.alloc(700));
  pieces.add(Buffer.alloc(300));
  expect(pieces.heldBytes).toBe(1_000);
  pieces.add(Buffer.alloc(1));
  expect(pieces.heldBytes).toBe(1_000 + 16_384);
  expect(pieces.take()).toHaveLength(1_001);
});

test('pieces come back as one whatever was announced', () => {
  fc.assert(
    fc.property(sizes, fc.nat({ max: 100_000 }), (lengths, expected) => {
      const pieces = new BytePieces(expected);
      const given = lengths.map((length, k) => Buffer.alloc(length, k + 1));
      for (const piece of given) pieces.add(piece);
      expect(pieces.take().equals(Buffer.concat(given))).toBe(true);
    }),
  );
});
