// The engine of the proxy benchmark, as a process of its own: it answers at once, then paces its chunks, and costs as
// little as it can. Each port stands for one replica with figures of its own. Its chunks are as long as vLLM's.
//
//   node bench/proxy/backend.ts PORT PORT
//
// A request's `metadata` says how it is answered: {"chunks", "gapMs"} a stream, {"holdMs"} how long it stays open behind
// its chunks. An HTTP/2 preface is answered 400 by Node's parser.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import {
  EngineCounts,
  MODEL,
  plainAnswer,
  renderAnswer,
  tokensOf,
  type PlainAnswer,
} from './engine-answers.ts';

interface Wanted {
  readonly stream: boolean;
  readonly usage: boolean;
  readonly promptTokens: number;
  readonly chunks: number;
  readonly gapMs: number;
  readonly holdMs: number;
}

const ID = 'chatcmpl-0123456789abcdef0123456789abcdef';
const HEAD = `{"id":"${ID}","object":"chat.completion.chunk","created":1700000000,"model":"${MODEL}","choices":`;
const CHUNK = Buffer.from(
  `data: ${HEAD}[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}\n\n`,
);
const LAST = Buffer.from(
  `data: ${HEAD}[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop"}]}\n\n`,
);
const DONE = Buffer.from('data: [DONE]\n\n');
/** Tokens of a JSON answer. */
const ANSWER_TOKENS = 2;

function usageOf({ promptTokens }: Wanted, tokens: number): string {
  const total = promptTokens + tokens;
  return `{"prompt_tokens":${promptTokens},"total_tokens":${total},"completion_tokens":${tokens}}`;
}

function answer(response: ServerResponse, wanted: Wanted, counts: EngineCounts): void {
  const choice = `{"index":0,"message":{"role":"assistant","content":" token token"},"logprobs":null,"finish_reason":"stop"}`;
  const usage = usageOf(wanted, ANSWER_TOKENS);
  const body = Buffer.from(
    `{"id":"${ID}","object":"chat.completion","created":1700000000,"model":"${MODEL}","choices":[${choice}],"usage":${usage}}`,
  );
  counts.generatedTokens += ANSWER_TOKENS;
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length });
  response.end(body);
}

function stream(response: ServerResponse, wanted: Wanted, counts: EngineCounts): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  const usage = wanted.usage
    ? `data: ${HEAD}[],"usage":${usageOf(wanted, wanted.chunks)}}\n\n`
    : '';
  const end = Buffer.concat([LAST, Buffer.from(usage), DONE]);
  let sent = 0;
  const next = (): void => {
    if (response.destroyed) return;
    sent += 1;
    counts.generatedTokens += 1;
    response.write(CHUNK);
    if (sent < wanted.chunks) setTimeout(next, wanted.gapMs);
    else if (wanted.holdMs > 0) setTimeout(() => response.end(end), wanted.holdMs);
    else response.end(end);
  };
  next();
}

function wantedOf(body: Buffer): Wanted {
  // A prompt of 100 KB lies between both ends; only what stands there is looked at.
  const ends = body.toString('latin1', 0, 400) + body.toString('latin1', body.length - 400);
  const number = (name: string, otherwise: number): number =>
    Number(new RegExp(`"${name}":"(\\d+)"`).exec(ends)?.[1] ?? otherwise);
  return {
    stream: /"stream":\s*true/.test(ends),
    usage: /"include_usage":\s*true/.test(ends),
    promptTokens: tokensOf(body.length),
    chunks: number('chunks', 4),
    gapMs: number('gapMs', 0),
    holdMs: number('holdMs', 0),
  };
}

function generate(body: Buffer, response: ServerResponse, counts: EngineCounts): void {
  const wanted = wantedOf(body);
  counts.running += 1;
  counts.heldTokens += wanted.promptTokens;
  counts.promptTokens += wanted.promptTokens;
  counts.firstTokens += 1;
  response.on('close', () => {
    counts.running -= 1;
    counts.heldTokens -= wanted.promptTokens;
  });
  if (wanted.stream) stream(response, wanted, counts);
  else answer(response, wanted, counts);
}

function give(response: ServerResponse, said: PlainAnswer | null): void {
  if (said === null) return void response.writeHead(404).end();
  response.writeHead(200, { 'content-type': said.type });
  response.end(said.text);
}

function serve(request: IncomingMessage, response: ServerResponse, counts: EngineCounts): void {
  const [path = '/'] = (request.url ?? '/').split('?');
  if (request.method !== 'POST') return give(response, plainAnswer(path, counts));
  const pieces: Buffer[] = [];
  request.on('data', (piece: Buffer) => pieces.push(piece));
  request.on('end', () => {
    const body = Buffer.concat(pieces);
    if (path.endsWith('/render')) give(response, renderAnswer(body));
    else generate(body, response, counts);
  });
}

for (const port of process.argv.slice(2)) {
  const counts = new EngineCounts();
  const kept = { keepAlive: true, noDelay: true, keepAliveTimeout: 600_000 };
  const server = createServer(kept, (request, response) => serve(request, response, counts));
  server.listen(Number(port), '127.0.0.1');
}
console.log('backend ready');
