// Texts for the agent's own generations: about as many tokens as asked, never found in a prefix cache.
//
// A text begins with its nonce, so that even its first block is new; the words after it are common English
// ones, drawn by the nonce. How many tokens a word makes is the tokenizer's matter: it is learned from what
// the engine reports for the first of these texts.

import { seededRandom } from '../../shared/lib/random.ts';

const WORDS = (
  'the of and to in is that for it as was with be by on not he his but at are this have from or had an they ' +
  'which one you were all her she there would their we him been has when who will no more if out so up said ' +
  'what its about than into them can only other time new some could these two may first then do any like my ' +
  'now over such our man me even most made after also did many off before must well back through years where ' +
  'much your way down should because long each just state those people too good never work still house water'
).split(' ');

/** Tokens per word until the engine has told. */
export const TOKENS_PER_WORD = 1.3;

/** A text of `words` words that begins with `nonce`. */
export function uniqueText(nonce: string, words: number): string {
  const random = seededRandom(seedOf(nonce));
  const drawn: string[] = [nonce];
  for (let i = 1; i < words; i += 1) {
    drawn.push(WORDS[Math.floor(random.next() * WORDS.length)] ?? 'the');
  }
  return drawn.join(' ');
}

/** `prefix` followed by `words` words of its own: the prefix is the part that may be cached. */
export function extendedText(prefix: string, nonce: string, words: number): string {
  return `${prefix} ${uniqueText(nonce, words)}`;
}

/** FNV-1a, 32 bits. */
function seedOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193) >>> 0;
  }
  return hash;
}
