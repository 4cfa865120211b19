// What a simulated model says: words of three letters and a space, one token each, chosen by the prompt.
//
// Equal prompts get equal answers, as at temperature 0, on every replica: a failover that replays an answer shows.

import { mixKey } from './sequence.ts';
import { END_TOKEN, tokenize } from './tokenizer.ts';

const WORDS = [
  'the',
  'sea',
  'sun',
  'and',
  'sky',
  'ice',
  'oak',
  'fog',
  'bay',
  'run',
  'ark',
  'new',
  'old',
  'red',
  'dry',
  'wet',
  'far',
  'low',
  'map',
  'net',
  'owl',
  'pen',
  'row',
  'sit',
  'try',
  'use',
  'van',
  'way',
  'yes',
  'zoo',
  'arm',
  'bed',
  'cut',
  'day',
  'ear',
  'fit',
  'gas',
  'hat',
  'ink',
  'jar',
  'key',
  'lip',
].map((word) => tokenize(`${word} `)[0] ?? END_TOKEN);

/** The answer's token at `index`. */
export function answerToken(promptKey: number, index: number): number {
  return WORDS[mixKey(mixKey(promptKey, 0x5eed), index) % WORDS.length] ?? END_TOKEN;
}

/** Length in tokens of an answer that ends by itself: geometric around the mean, the end token included. */
export function answerLength(promptKey: number, meanTokens: number): number {
  const uniform = (mixKey(promptKey, 0x1e4) % 1_000_003) / 1_000_003;
  return Math.max(1, Math.ceil(-Math.log(1 - uniform) * meanTokens));
}
