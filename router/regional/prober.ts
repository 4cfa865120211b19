// Asks a replica whose agent is gone for one token: the only proof that it still generates.

import type { Dispatcher } from 'undici';
import { judgeAnswer } from '../gateway/engine-answer.ts';

const PROBE_TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 64 * 1024;

export interface ProbeOrder {
  /** Connections to the replica. */
  readonly pool: Dispatcher;
  readonly model: string;
  readonly apiKey: string | null;
}

/** True when the replica answered with a token. Never rejects. */
export async function probeReplica(order: ProbeOrder): Promise<boolean> {
  try {
    const answer = await order.pool.request({
      path: '/v1/completions',
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        ...(order.apiKey === null ? {} : { authorization: `Bearer ${order.apiKey}` }),
      },
      body: JSON.stringify({ model: order.model, prompt: 'ping', max_tokens: 1, temperature: 0 }),
      reset: true,
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
    });
    const pieces: Buffer[] = [];
    let bytes = 0;
    for await (const piece of answer.body as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > MAX_ANSWER_BYTES) return false;
      pieces.push(piece);
    }
    return answer.statusCode === 200 && judgeAnswer(Buffer.concat(pieces)).kind === 'complete';
  } catch {
    // Whatever went wrong, no token came.
    return false;
  }
}
