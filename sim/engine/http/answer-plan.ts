// Decides beforehand what an answer will be: its tokens, the text told with each, and why it ends.
//
// Answers follow from the prompt (and the seed, and which of several it is), so everything that would be found out
// while generating can be known at the start: where a stop string comes, how long a forced answer is. Lengths in tokens.
//
//   a forced text (JSON, a tool's arguments)    its tokens and an end token, or as many as the limit lets
//   a limit                                      that many, ended by `length`
//   none                                         as the model stops by itself; to the end of the context where it may not
//   a stop string                                up to the token that completes it; its text, and what follows, is not told

import { answerLength, answerToken } from '../answers.ts';
import { mixKey } from '../sequence.ts';
import { END_TOKEN, tokenBytes, tokenize } from '../tokenizer.ts';

export interface AnswerWish {
  /** Null: until the model stops by itself. */
  readonly maxTokens: number | null;
  readonly minTokens?: number;
  /** It never stops by itself. */
  readonly ignoreEos?: boolean;
  readonly stop?: readonly string[];
  /** The stop string is told, too. */
  readonly includeStop?: boolean;
  /** Another seed, another answer; null as the prompt alone has it. */
  readonly seed?: number | null;
  /** This and nothing else is said. */
  readonly forced?: string | null;
}

export interface AnswerPlan {
  readonly tokens: number;
  readonly finish: 'stop' | 'length';
  /** The stop string that ended it. */
  readonly stopReason: string | null;
  /** Null where they are the model's own. */
  readonly ids: Uint32Array | null;
  /** Text told with each token; null where it is the token's own. */
  readonly texts: readonly string[] | null;
}

export interface AnswerSource {
  /** Of the prompt. */
  readonly key: number;
  readonly meanTokens: number;
  /** That the context has room for. */
  readonly roomTokens: number;
}

export function planAnswer(wish: AnswerWish, source: AnswerSource): AnswerPlan {
  if (wish.forced !== undefined && wish.forced !== null) return forcedAnswer(wish.forced, wish);
  const seeded = wish.seed === undefined || wish.seed === null ? null : wish.seed;
  const key = seeded === null ? source.key : mixKey(source.key, seeded | 0);
  const free = freeAnswer(wish, { ...source, key });
  const stops = wish.stop ?? [];
  if (stops.length === 0) return seeded === null ? free : withIds(free, key);
  return stoppedAnswer(free, { key, stops, includeStop: wish.includeStop ?? false });
}

function freeAnswer(wish: AnswerWish, source: AnswerSource): AnswerPlan {
  const own = { stopReason: null, ids: null, texts: null };
  if (wish.maxTokens !== null || wish.ignoreEos === true) {
    return { ...own, tokens: wish.maxTokens ?? source.roomTokens, finish: 'length' };
  }
  const natural = answerLength(source.key, source.meanTokens);
  return { ...own, tokens: Math.max(natural, (wish.minTokens ?? 0) + 1), finish: 'stop' };
}

function withIds(plan: AnswerPlan, key: number): AnswerPlan {
  return {
    ...plan,
    ids: Uint32Array.from({ length: plan.tokens }, (_, at) => idAt(plan, key, at)),
  };
}

function idAt(plan: AnswerPlan, key: number, at: number): number {
  return plan.finish === 'stop' && at === plan.tokens - 1 ? END_TOKEN : answerToken(key, at);
}

function forcedAnswer(text: string, { maxTokens }: AnswerWish): AnswerPlan {
  const ids = [...tokenize(text), END_TOKEN];
  const cut = maxTokens !== null && maxTokens < ids.length;
  const said = Uint32Array.from(cut ? ids.slice(0, maxTokens) : ids);
  return {
    tokens: said.length,
    finish: cut ? 'length' : 'stop',
    stopReason: null,
    ids: said,
    texts: textsOf(said),
  };
}

/** Each token's text, a character that spans two told with the one that completes it. */
function textsOf(ids: Uint32Array): string[] {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  return Array.from(ids, (id) => decoder.decode(Uint8Array.from(tokenBytes(id)), { stream: true }));
}

interface StopWish {
  readonly key: number;
  readonly stops: readonly string[];
  readonly includeStop: boolean;
}

/** Text that might become a stop string is held back until it cannot, as vLLM does. */
function stoppedAnswer(free: AnswerPlan, { key, stops, includeStop }: StopWish): AnswerPlan {
  const longest = Math.max(...stops.map((stop) => stop.length));
  const heldChars = includeStop ? 0 : longest - 1;
  const ids: number[] = [];
  const texts: string[] = [];
  let text = '';
  let told = 0;
  while (ids.length < free.tokens) {
    const id = idAt(free, key, ids.length);
    ids.push(id);
    const from = Math.max(0, text.length - longest);
    text += textsOf(Uint32Array.of(id))[0] ?? '';
    const hit = firstStop(text, from, stops);
    if (hit !== null) {
      const end = includeStop ? hit.at + hit.stop.length : hit.at;
      texts.push(text.slice(told, Math.max(told, end)));
      const stopped = { tokens: ids.length, finish: 'stop', stopReason: hit.stop } as const;
      return { ...stopped, ids: Uint32Array.from(ids), texts };
    }
    const last = ids.length === free.tokens;
    const until = last ? text.length : Math.max(told, text.length - heldChars);
    texts.push(text.slice(told, until));
    told = until;
  }
  return { ...free, ids: Uint32Array.from(ids), texts };
}

function firstStop(
  text: string,
  from: number,
  stops: readonly string[],
): { readonly stop: string; readonly at: number } | null {
  for (const stop of stops) {
    const at = text.indexOf(stop, from);
    if (at >= 0) return { stop, at };
  }
  return null;
}
