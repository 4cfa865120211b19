// Prompts for the checks: text that no other check sends, so that nothing of it is in the cache before.

import { seededRandom } from '../../shared/lib/random.ts';
import { prose } from '../engines/prose.ts';

/** Bytes of English per token: the real engine's small vocabulary takes 3.4, the simulated one 4. */
const BYTES_PER_TOKEN = 3.6;

let drawn = 0;
const runSeed = Number(process.hrtime.bigint() % 1_000_000n) * 1_000;

/** A text of about so many tokens that was never sent before: it differs from the first word on. */
export function freshText(tokens: number): string {
  drawn += 1;
  const seed = runSeed + drawn;
  return `${seed} ${prose(seededRandom(seed), Math.ceil(tokens * BYTES_PER_TOKEN))}`;
}

/** Token ids that were never sent before, for `/v1/completions`: the exact number, whatever the tokenizer. */
export function freshTokens(count: number): number[] {
  drawn += 1;
  const random = seededRandom(runSeed + drawn);
  // From 1,000 on, clear of special tokens; below 8,000, the small model's vocabulary.
  return Array.from({ length: count }, () => 1_000 + Math.floor(random.next() * 6_900));
}

export interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

export function userMessage(content: string): Message[] {
  return [{ role: 'user', content }];
}
