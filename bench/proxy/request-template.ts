// The bytes of the load's requests, made once for a shape: only a number near the beginning of the prompt changes, so that no two
// prompts of a run are alike, in whatever block they are sent. What a router remembers of prompts grows with each.

import type { LoadShape } from './load.ts';

const DIGITS = 12;
const NUMBER = '#'.repeat(DIGITS);
const WORDS = 'the quick brown fox jumps over the lazy dog ';

let sent = 0;

/** What makes the next request of this shape, head and body. */
export function requestTemplate(url: URL, shape: LoadShape): () => Buffer {
  const body = bodyOf(shape);
  const template = Buffer.from(
    `POST ${url.pathname} HTTP/1.1\r\nhost: ${url.host}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: keep-alive\r\n\r\n${body}`,
  );
  const at = template.indexOf(NUMBER);
  return () => {
    const request = Buffer.allocUnsafe(template.length);
    template.copy(request);
    request.write(String(sent++).padStart(DIGITS, '0'), at, 'latin1');
    return request;
  };
}

function bodyOf({ chunks, gapMs, holdMs, promptBytes }: LoadShape): string {
  const metadata =
    chunks === null ? {} : { chunks: String(chunks), gapMs: String(gapMs), holdMs: String(holdMs) };
  const prompt = WORDS.repeat(Math.ceil(promptBytes / WORDS.length)).slice(0, promptBytes);
  return JSON.stringify({
    model: 'bench-model',
    stream: chunks !== null,
    max_tokens: chunks ?? 2,
    metadata,
    messages: [{ role: 'user', content: `${process.pid}-${NUMBER} ${prompt}` }],
  });
}
