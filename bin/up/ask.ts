// One question to an engine over HTTP, bounded in time.

import type { DetectOptions } from './facts.ts';

/** Model lists and expositions are far smaller. */
const ANSWER_BYTES_MAX = 8 * 1_048_576;

export interface Answer {
  readonly status: number;
  readonly text: string;
}

export async function ask(
  path: string,
  { url, apiKey, timeoutMs }: DetectOptions,
): Promise<Answer> {
  const headers: Record<string, string> =
    apiKey === null ? {} : { authorization: `Bearer ${apiKey}` };
  const response = await fetch(`${url}${path}`, {
    headers,
    redirect: 'manual',
    signal: AbortSignal.timeout(timeoutMs),
  });
  return { status: response.status, text: await boundedText(response) };
}

/** What lies beyond the bound is no answer of an engine, and is cut off. */
async function boundedText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    chunks.push(chunk);
    bytes += chunk.byteLength;
    if (bytes > ANSWER_BYTES_MAX) break;
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Null where the engine has no answer to it. */
export async function askQuietly(path: string, options: DetectOptions): Promise<string | null> {
  try {
    const { status, text } = await ask(path, options);
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
