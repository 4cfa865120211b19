// The only place where the process draws unseeded randomness.

import { randomFillSync, randomInt } from 'node:crypto';
import { seededRandom, type Random } from '../lib/random.ts';

/** Asking the operating system costs 10 µs however much is asked: bytes that nobody has been given yet. */
const drawn = Buffer.alloc(4_096);
let given = drawn.length;

/** Hex id of `bytes` random bytes, 4,096 at most. */
export function randomHex(bytes: number): string {
  if (given + bytes > drawn.length) {
    randomFillSync(drawn);
    given = 0;
  }
  given += bytes;
  return drawn.toString('hex', given - bytes, given);
}

/** A generator with a seed from the operating system. */
export function processRandom(): Random {
  return seededRandom(randomInt(2 ** 31));
}
