// The chain of a prompt whose long texts were lifted out of its body: what the canonicaliser has laid out, with the
// texts put in where they belong, hashed step by step. The values are those of the whole prompt's canonical bytes.
//
//   laid     F9 user FE FB │ FF FD …          marks: at │ text 0 in its form
//   hashed   F9 user FE FB  …1 MB…  FF FD …

import type { ChainHasher, ChainSeed } from '../../shared/lib/chain-hash.ts';
import type { ChainFacts, ChainRun } from '../../shared/lib/chain-run.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import { OVER_LIMIT_BYTES, writeStretch, type TextForm } from './json-text.ts';
import type { LiftedText } from './lifted-body.ts';

/** What stands at a place of the laid bytes that they do not hold. */
export type PromptMark =
  | { readonly at: number; readonly kind: TextForm; readonly text: LiftedText }
  /** Length and hash of a part's JSON, in bytes that are kept free for them. */
  | {
      readonly at: number;
      readonly kind: 'part';
      readonly source: readonly (string | LiftedText)[];
    };

export interface LaidPrompt {
  readonly bytes: Buffer;
  readonly marks: readonly PromptMark[];
  /** Ascending; directly before assistant messages. */
  readonly boundaries: readonly number[];
  readonly facts: ChainFacts;
}

interface LongPromptContext {
  readonly hasher: ChainHasher;
  readonly seed: ChainSeed;
  /** Where the texts stand. */
  readonly body: Buffer;
}

/** UTF-16 units of a part's source that are hashed at once. */
export const PART_SLICE_CHARS = 16 * 1024;
/** Of a part in the prompt: 4 bytes for the length of its source, 8 for the hash. */
export const PART_DIGEST_BYTES = 12;
const HASH_BYTES = 8;
/** Of a step: a tenth of a millisecond, two where most is escapes. */
const STEP_BYTES = 32 * 1024;
const LONGEST_UTF8 = 3;

/** Yields between steps; nothing of it is shared with other prompts. */
export function* chainInSteps(
  prompt: LaidPrompt,
  context: LongPromptContext,
): Generator<void, PromptChain> {
  const run = context.hasher.open(context.seed, prompt.facts.keySpace);
  const laid = new LaidBytes(prompt, run);
  const window = Buffer.allocUnsafe(STEP_BYTES + OVER_LIMIT_BYTES);
  for (const mark of prompt.marks) {
    yield* laid.upTo(mark.at);
    if (mark.kind === 'part') {
      yield* digest(mark.source, prompt.bytes.subarray(mark.at), { ...context, window });
    } else {
      yield* stretches(mark.text, mark.kind, {
        ...context,
        window,
        take: (bytes) => run.add(bytes),
      });
    }
  }
  yield* laid.upTo(prompt.bytes.length);
  return run.finish(prompt.facts);
}

/** Hashes what is laid, and ends turns where they end. */
class LaidBytes {
  readonly #prompt: LaidPrompt;
  readonly #run: ChainRun;
  #at = 0;
  #turn = 0;

  constructor(prompt: LaidPrompt, run: ChainRun) {
    this.#prompt = prompt;
    this.#run = run;
  }

  *upTo(end: number): Generator<void, void> {
    const { boundaries } = this.#prompt;
    for (; ; this.#turn += 1) {
      const boundary = boundaries[this.#turn] ?? Number.POSITIVE_INFINITY;
      yield* this.#add(Math.min(boundary, end));
      if (boundary > end) return;
      this.#run.endTurn();
    }
  }

  *#add(end: number): Generator<void, void> {
    while (this.#at < end) {
      const to = Math.min(end, this.#at + STEP_BYTES);
      this.#run.add(this.#prompt.bytes.subarray(this.#at, to));
      if (to - this.#at === STEP_BYTES) yield;
      this.#at = to;
    }
  }
}

interface Stretches extends LongPromptContext {
  /** Scratch of a step. */
  readonly window: Buffer;
}

/** Hands on a text in its form; what it hands on is valid for the call. */
function* stretches(
  text: LiftedText,
  form: TextForm,
  { body, window, take }: Stretches & { readonly take: (bytes: Buffer) => void },
): Generator<void, void> {
  const { to, escaped } = text;
  for (let at = text.from; at < to;) {
    if (escaped) {
      const stretch = writeStretch({ body, to, form }, at, { target: window, limit: STEP_BYTES });
      take(window.subarray(0, stretch.written));
      at = stretch.at;
    } else {
      // It says what it is, in either form.
      const end = characterEnd(body, Math.min(to, at + STEP_BYTES));
      take(body.subarray(at, end));
      at = end;
    }
    yield;
  }
}

/** Writes what stands for a part to `target`. */
function* digest(
  source: readonly (string | LiftedText)[],
  target: Buffer,
  stretch: Stretches,
): Generator<void, void> {
  const slice = Buffer.alloc(HASH_BYTES + PART_SLICE_CHARS * LONGEST_UTF8);
  let waiting = '';
  let chars = 0;
  const hash = (text: string): void => {
    const length = slice.write(text, HASH_BYTES);
    stretch.hasher.digestInto(slice.subarray(0, HASH_BYTES + length), slice, 0);
  };
  const take = (text: string): void => {
    waiting += text;
    chars += text.length;
    let from = 0;
    for (; waiting.length - from >= PART_SLICE_CHARS; from += PART_SLICE_CHARS) {
      hash(waiting.slice(from, from + PART_SLICE_CHARS));
    }
    if (from > 0) waiting = waiting.slice(from);
  };
  for (const part of source) {
    if (typeof part === 'string') take(part);
    else yield* stretches(part, 'json', { ...stretch, take: (bytes) => take(bytes.toString()) });
  }
  if (waiting !== '') hash(waiting);
  target.writeUInt32LE(chars >>> 0, 0);
  slice.copy(target, PART_DIGEST_BYTES - HASH_BYTES, 0, HASH_BYTES);
}

/** `end`, or behind the character that it would divide. */
function characterEnd(body: Buffer, end: number): number {
  let at = end;
  while (((body[at] as number) & 0xc0) === 0x80) at += 1;
  return at;
}
