// English-like text in any amount from a seed: sentences of common words with the word lengths and the punctuation of
// ordinary prose, so that the tiny model's tokenizer sees bytes per token of real text (about 3.5) and every
// conversation differs from the first sentence on.

import type { Random } from '../../shared/lib/random.ts';

const OPENERS =
  'In practice|After the review|When the load grows|For most teams|As the report says|Before the release|On a quiet day|At the end of the month|By contrast|In the second half of the year|Under these conditions|With a little care'.split(
    '|',
  );
const SUBJECTS =
  'the committee|a small group of engineers|the second proposal|our customer in the north|every measurement|the old library|a passing stranger|the night train|the editor of the journal|the harbour office|one of the students|this chapter|the new regulation|the repair crew|a careful reader|the whole department'.split(
    '|',
  );
const VERBS =
  'explains|replaces|compares|rejects|describes|supports|delays|measures|carries|changes|questions|improves|depends on|returns to|looks after|writes about'.split(
    '|',
  );
const OBJECTS =
  'the first draft|a long list of results|the price of water|the shape of the valley|several letters|the meaning of the word|an unusual request|the distance between two towns|the cost of storage|the work of the last ten years|a simple answer|the history of the bridge|the number of visitors|the colour of the evening sky|their common interest|the quality of the translation'.split(
    '|',
  );
const ENDINGS =
  'without further comment|in almost every case|for a very long time|because nobody had asked before|although the evidence was thin|and nothing else was said|before the winter came|so that the others could follow|as far as we can tell|with some hesitation|while the others waited outside|and the plan was kept'.split(
    '|',
  );
const QUESTIONS =
  'What follows from this for the people who live there?|Could you explain the last point in other words?|Which of these reasons matters most, and why?|Please give me a short summary of the second part.|How would you compare the two accounts?|What should we do next?|Is there anything in this that surprises you?|Where does the argument fail?'.split(
    '|',
  );

function pick(random: Random, words: readonly string[]): string {
  return words[Math.floor(random.next() * words.length)] ?? '';
}

function sentence(random: Random): string {
  const subject = pick(random, SUBJECTS);
  const start =
    random.next() < 0.4
      ? `${pick(random, OPENERS)}, ${subject}`
      : `${subject.charAt(0).toUpperCase()}${subject.slice(1)}`;
  const end = random.next() < 0.6 ? ` ${pick(random, ENDINGS)}` : '';
  return `${start} ${pick(random, VERBS)} ${pick(random, OBJECTS)}${end}.`;
}

/** Paragraphs of at least `bytes` bytes, at most one sentence more. ASCII only: a character is a byte. */
export function prose(random: Random, bytes: number): string {
  const parts: string[] = [];
  let length = 0;
  while (length < bytes) {
    const next = sentence(random) + (random.next() < 0.15 ? '\n\n' : ' ');
    parts.push(next);
    length += next.length;
  }
  return parts.join('').trimEnd();
}

export function question(random: Random): string {
  return pick(random, QUESTIONS);
}
