// Probabilities of a model that has none: the token that was said is likely, others are less so, always alike.

import { answerToken } from '../../answers.ts';
import { tokenText } from '../../tokenizer.ts';

interface Likely {
  readonly token: string;
  readonly logprob: number;
}

const LIKELY = -0.125;
const STEP = -1.5;

/** Chat's form, one entry a token. */
export function chatLogprobs(tokenIds: readonly number[], top: number): object {
  return {
    content: tokenIds.map((id) => ({
      ...withBytes({ token: tokenText(id), logprob: LIKELY }),
      top_logprobs: likeliest(id, top).map(withBytes),
    })),
  };
}

/** Completions' form; offsets in characters from `offset` on. */
export function completionLogprobs(
  tokenIds: readonly number[],
  { top, offset }: { readonly top: number; readonly offset: number },
): object {
  const tokens = tokenIds.map((id) => tokenText(id));
  let at = offset;
  const offsets = tokens.map((token) => {
    const start = at;
    at += token.length;
    return start;
  });
  return {
    text_offset: offsets,
    token_logprobs: tokens.map(() => LIKELY),
    tokens,
    top_logprobs: tokenIds.map((id) =>
      Object.fromEntries(
        likeliest(id, Math.max(1, top)).map(({ token, logprob }) => [token, logprob]),
      ),
    ),
  };
}

function likeliest(id: number, top: number): Likely[] {
  return Array.from({ length: Math.max(0, top) }, (_, at) => ({
    token: tokenText(at === 0 ? id : answerToken(id, at)),
    logprob: LIKELY + STEP * at,
  }));
}

function withBytes({ token, logprob }: Likely): object {
  return { token, logprob, bytes: [...Buffer.from(token, 'utf8')] };
}
