// The clients of a game day: plain HTTP as an SDK sends it, each answer as what a scene goes by.

import { MODEL } from '../demo/fleet.ts';

export interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

export interface Asked {
  readonly base: string;
  readonly key: string;
  readonly messages: readonly Message[];
  readonly maxTokens?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Answer {
  /** Null: the connection failed before an answer. */
  readonly status: number | null;
  /** Of the error, whether it is the answer or the end of a stream; null: none. */
  readonly code: string | null;
  /** Where it was served; null: nowhere. */
  readonly region: string | null;
  readonly headers: Headers;
  /** Of a stream: some of it had come. */
  readonly begun: boolean;
  /** Its end came as the protocol has it. */
  readonly complete: boolean;
  readonly text: string;
  readonly cachedTokens: number | null;
}

const PATIENCE_MS = 60_000;

/** Streams one answer to its end. Never rejects. */
export async function ask(asked: Asked): Promise<Answer> {
  const { base, key, messages, maxTokens = 8, headers = {} } = asked;
  try {
    const response = await fetch(`${base}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${key}`,
        ...headers,
      },
      body: JSON.stringify({
        ...{ model: MODEL, messages, max_tokens: maxTokens, stream: true },
        stream_options: { include_usage: true },
      }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    return answerOf(response, await bodyOf(response));
  } catch {
    return { ...NOTHING, headers: new Headers() };
  }
}

const NOTHING = {
  status: null,
  code: null,
  region: null,
  begun: false,
  complete: false,
  text: '',
  cachedTokens: null,
} as const;

/** As far as it comes. */
async function bodyOf(response: Response): Promise<string> {
  let text = '';
  const decoder = new TextDecoder();
  try {
    for await (const piece of response.body ?? []) {
      text += decoder.decode(piece as Uint8Array, { stream: true });
    }
  } catch {
    // Cut: what came counts.
  }
  return text;
}

function answerOf(response: Response, body: string): Answer {
  const { status, headers } = response;
  const events = body.split('\n').filter((line) => line.startsWith('data: '));
  const content = events.flatMap((line) => contentOf(line));
  return {
    status,
    code: /"code":\s*"([a-z_]+)"/.exec(body)?.[1] ?? null,
    region: headers.get('x-spillway-region'),
    headers,
    begun: content.length > 0,
    complete: status === 200 && body.includes('data: [DONE]'),
    text: content.join(''),
    cachedTokens: numberOf(/"cached_tokens":\s*(\d+)/.exec(body)?.[1]),
  };
}

function contentOf(line: string): string[] {
  const literal = /"content":\s*("(?:[^"\\]|\\.)*")/.exec(line)?.[1];
  return literal === undefined || literal === '""' ? [] : [String(JSON.parse(literal))];
}

function numberOf(digits: string | undefined): number | null {
  return digits === undefined ? null : Number(digits);
}
