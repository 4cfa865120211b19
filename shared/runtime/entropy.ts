// The only place where the process draws unseeded randomness.

import { randomBytes, randomInt } from 'node:crypto';
import { seededRandom, type Random } from '../lib/random.ts';

/** Hex id of `bytes` random bytes. */
export function randomHex(bytes: number): string {
  return randomBytes(bytes).toString('hex');
}

/** A generator with a seed from the operating system. */
export function processRandom(): Random {
  return seededRandom(randomInt(2 ** 31));
}
