// Asks a replica whose agent is gone for one token: the only proof that it still generates. One that generates nothing is
// asked for what it serves instead: an embedding, or the rank of a document.
//
// The next is asked only where the one before is not offered: 404, 405 or 501, or 400 whose text says that the model does
// not support it.

import type { Dispatcher } from 'undici';
import { judgeAnswer } from '../gateway/engine-answer.ts';

const PROBE_TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 256 * 1024;
const PROMPT = 'ping';
const ONE_TOKEN = { max_tokens: 1, temperature: 0 } as const;
const NOT_OFFERED: readonly number[] = [404, 405, 501];

/** Path and body but for the model, in the order of asking. */
const WAYS: readonly (readonly [string, object])[] = [
  ['/v1/completions', { prompt: PROMPT, ...ONE_TOKEN }],
  ['/v1/chat/completions', { messages: [{ role: 'user', content: PROMPT }], ...ONE_TOKEN }],
  ['/v1/embeddings', { input: PROMPT }],
  ['/v1/rerank', { query: PROMPT, documents: [PROMPT] }],
];

export interface ProbeOrder {
  /** Connections to the replica. */
  readonly pool: Dispatcher;
  readonly model: string;
  readonly apiKey: string | null;
}

interface ProbeAnswer {
  readonly status: number;
  readonly body: Buffer;
}

/** True when the replica answered with a token, or with what it serves instead. Never rejects. */
export async function probeReplica(order: ProbeOrder): Promise<boolean> {
  const signal = AbortSignal.timeout(PROBE_TIMEOUT_MS);
  try {
    for (const [path, body] of WAYS) {
      const answer = await ask(order, { path, body, signal });
      if (answer === null) return false;
      if (answer.status === 200) return judgeAnswer(answer.body).kind === 'complete';
      if (!isNotOffered(answer)) return false;
    }
  } catch {
    // Whatever went wrong, no token came.
  }
  return false;
}

/** Null where the answer is too long. */
async function ask(
  { pool, model, apiKey }: ProbeOrder,
  what: { readonly path: string; readonly body: object; readonly signal: AbortSignal },
): Promise<ProbeAnswer | null> {
  const answer = await pool.request({
    path: what.path,
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }),
    },
    body: JSON.stringify({ model, ...what.body }),
    reset: true,
    signal: what.signal,
  });
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of answer.body as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > MAX_ANSWER_BYTES) return null;
    pieces.push(piece);
  }
  return { status: answer.statusCode, body: Buffer.concat(pieces) };
}

function isNotOffered({ status, body }: ProbeAnswer): boolean {
  if (NOT_OFFERED.includes(status)) return true;
  return status === 400 && /does(?:n't| not) support/i.test(body.toString('utf8'));
}
