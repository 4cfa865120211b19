// The engine of the proxy benchmark, as a process of its own: answers at once, then paces its chunks, and costs as
// little as it can. Two ports stand for two replicas. Its chunks are as long as vLLM's.
//
//   node bench/proxy/backend.ts PORT PORT
//
// A request's `metadata` says how it is answered: {"chunks", "gapMs"} a stream, {"holdMs"} a stream that stays open.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';

const MODEL = 'bench-model';
const CREATED = 1_700_000_000;

interface Wanted {
  readonly stream: boolean;
  readonly usage: boolean;
  readonly chunks: number;
  readonly gapMs: number;
  readonly holdMs: number;
}

const ID = 'chatcmpl-0123456789abcdef0123456789abcdef';
const HEAD = `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"${MODEL}","choices":`;
const CHUNK = Buffer.from(
  `data: ${HEAD}[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}\n\n`,
);
const LAST = Buffer.from(
  `data: ${HEAD}[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop"}]}\n\n`,
);
const DONE = Buffer.from('data: [DONE]\n\n');

function usageOf(tokens: number): string {
  return `{"prompt_tokens":64,"total_tokens":${64 + tokens},"completion_tokens":${tokens}}`;
}

function answer(response: ServerResponse): void {
  const choice = `{"index":0,"message":{"role":"assistant","content":" token token"},"logprobs":null,"finish_reason":"stop"}`;
  const body = Buffer.from(
    `{"id":"${ID}","object":"chat.completion","created":${CREATED},"model":"${MODEL}","choices":[${choice}],"usage":${usageOf(2)}}`,
  );
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length });
  response.end(body);
}

function stream(response: ServerResponse, wanted: Wanted): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  const ends = Buffer.from(
    wanted.usage ? `data: ${HEAD}[],"usage":${usageOf(wanted.chunks)}}\n\n` : '',
  );
  let sent = 0;
  const finish = (): void => {
    response.end(Buffer.concat([LAST, ends, DONE]));
  };
  const next = (): void => {
    if (response.destroyed) return;
    sent += 1;
    response.write(CHUNK);
    if (sent < wanted.chunks) setTimeout(next, wanted.gapMs);
    else if (wanted.holdMs > 0) setTimeout(finish, wanted.holdMs);
    else finish();
  };
  next();
}

function wantedOf(text: string): Wanted {
  // A prompt of 100 KB lies between both ends; only what the generator writes there is looked at.
  const near = text.slice(0, 400);
  const number = (name: string, otherwise: number): number =>
    Number(new RegExp(`"${name}":"(\\d+)"`).exec(near)?.[1] ?? otherwise);
  return {
    stream: /"stream":\s*true/.test(near),
    usage: /"include_usage":\s*true/.test(near) || /"include_usage":\s*true/.test(text.slice(-400)),
    chunks: number('chunks', 4),
    gapMs: number('gapMs', 0),
    holdMs: number('holdMs', 0),
  };
}

function complete(request: IncomingMessage, response: ServerResponse): void {
  const pieces: Buffer[] = [];
  request.on('data', (piece: Buffer) => pieces.push(piece));
  request.on('end', () => {
    const wanted = wantedOf(Buffer.concat(pieces).toString('latin1'));
    if (wanted.stream) stream(response, wanted);
    else answer(response);
  });
}

function json(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

function serve(request: IncomingMessage, response: ServerResponse): void {
  if (request.method === 'POST') return complete(request, response);
  if (request.url === '/v1/models') {
    const model = { id: MODEL, object: 'model', created: CREATED, owned_by: 'bench' };
    return json(response, { object: 'list', data: [{ ...model, max_model_len: 1_000_000 }] });
  }
  if (request.url === '/health') return json(response, {});
  response.writeHead(404).end();
}

for (const port of process.argv.slice(2)) {
  const server = createServer({ keepAlive: true, noDelay: true, keepAliveTimeout: 600_000 }, serve);
  server.listen(Number(port), '127.0.0.1');
}
console.log('backend ready');
