// One question to an engine over HTTP, bounded in time.

import { createHttpPools } from '../../shared/runtime/http-pool.ts';
import type { DetectOptions } from './facts.ts';

/** Model lists and expositions are far smaller. */
const ANSWER_BYTES_MAX = 8 * 1_048_576;

export interface Answer {
  readonly status: number;
  readonly text: string;
}

/** What is asked; GET without a body. */
export interface Question {
  readonly path: string;
  readonly body?: string;
}

/** A pool of its own, not `fetch`, which refuses some ports (6000, 6667, …) on which engines may listen. */
export async function ask(
  { path, body }: Question,
  { url, apiKey, trust, timeoutMs }: DetectOptions,
): Promise<Answer> {
  const pools = createHttpPools(timeoutMs);
  try {
    const response = await pools.get(new URL(url).origin, trust ?? null).request({
      path,
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      body: body ?? null,
      signal: AbortSignal.timeout(timeoutMs),
      reset: true,
    });
    return { status: response.statusCode, text: await boundedText(response.body) };
  } finally {
    await pools.close();
  }
}

/** What lies beyond the bound is no answer of an engine, and is cut off. */
async function boundedText(body: AsyncIterable<unknown>): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    const piece = chunk as Buffer;
    chunks.push(piece);
    bytes += piece.byteLength;
    if (bytes > ANSWER_BYTES_MAX) break;
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Null where the engine has no answer to it. */
export async function askQuietly(path: string, options: DetectOptions): Promise<string | null> {
  try {
    const { status, text } = await ask({ path }, options);
    return status === 200 ? text : null;
  } catch {
    return null;
  }
}

export function parsed(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
