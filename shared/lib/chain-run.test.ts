// A chain whose bytes come piece by piece is the chain of all of them at once.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CHUNK_BYTES } from '../model/prompt.ts';
import { createChainHasher } from './chain-hash.ts';

const SEED = { saltGroup: 'a', lora: 'b' };
const KEY_SPACE = 'text/1';
const length = fc.oneof(
  fc.nat(3 * CHUNK_BYTES),
  fc.constantFrom(0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 300 * CHUNK_BYTES),
);

test('is the same in any pieces, with the turns that end between them', async () => {
  const hasher = await createChainHasher();
  fc.assert(
    fc.property(
      fc.array(fc.tuple(length, fc.boolean()), { maxLength: 6 }),
      fc.nat(255),
      (pieces, salt) => {
        const bytes = Buffer.alloc(pieces.reduce((sum, [size]) => sum + size, 0));
        for (let at = 0; at < bytes.length; at += 1) bytes[at] = (at * 31 + salt) % 251;
        const run = hasher.open(SEED, KEY_SPACE);
        const boundaries: number[] = [];
        for (const [size, ends] of pieces) {
          // The piece may be written over as soon as it is added.
          const piece = Buffer.from(bytes.subarray(run.length, run.length + size));
          run.add(piece);
          piece.fill(0);
          if (ends) run.endTurn();
          if (ends) boundaries.push(run.length);
        }
        const facts = { keySpace: KEY_SPACE, parts: { image: 1 }, partBytes: 7 };
        const whole = { bytes, length: bytes.length, seed: SEED, boundaries, ...facts };
        expect(run.finish(facts)).toEqual(hasher.chain(whole));
      },
    ),
  );
});
