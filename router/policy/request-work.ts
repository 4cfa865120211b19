// What a request asks of an engine, as far as placing it goes.
//
//   generation  prefill and decode                               chat, completions
//   prefill     the answer is due when a first token would be    embeddings, rerank, scores
//   light       the front end alone: no GPU, no KV, no ledger    tokenize, detokenize

export const REQUEST_WORKS = ['generation', 'prefill', 'light'] as const;
export type RequestWork = (typeof REQUEST_WORKS)[number];
