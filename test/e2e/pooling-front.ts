// What stands in front of a simulated engine and answers for a pooling model beside it: embeddings after the time that their
// prompts take, everything else by the engine itself. One that serves only a pooling model has no other route that
// computes, as vLLM 0.32.0 has none (404).

import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';

export interface PoolingFront {
  readonly url: string;
  /** Inputs of embeddings that came here. */
  readonly embedded: string[];
  readonly msPerToken: number;
  /** While true, embeddings fail with 500. */
  failing: boolean;
  /** While set, embeddings wait for it. */
  gate: Promise<void> | null;
  close(): Promise<void>;
}

/** ms that a token of an input takes where only a pooling model is served. */
const ONLY_MS_PER_TOKEN = 0.05;

export async function startPoolingFront(
  engineUrl: string,
  { only = false }: { readonly only?: boolean } = {},
): Promise<PoolingFront> {
  const server = createServer((from, to) => {
    if (from.url === '/v1/embeddings') return void embed(front, from, to);
    if (only && /completions|responses|messages|generate/.test(from.url ?? '')) {
      from.resume();
      to.writeHead(404, { 'content-type': 'application/json' });
      return void to.end('{"detail":"Not Found"}');
    }
    forward(new URL(from.url ?? '/', engineUrl), from, to);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const front: PoolingFront = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    embedded: [],
    msPerToken: only ? ONLY_MS_PER_TOKEN : 0,
    failing: false,
    gate: null,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return front;
}

async function embed(
  front: PoolingFront,
  from: IncomingMessage,
  to: ServerResponse,
): Promise<void> {
  let text = '';
  for await (const piece of from.setEncoding('utf8')) text += piece as string;
  const { input, model } = JSON.parse(text) as { input: string | string[]; model: string };
  const inputs = [input].flat();
  front.embedded.push(...inputs);
  await front.gate;
  const tokens = inputs.reduce((sum, each) => sum + Math.ceil(each.length / 4), 0);
  if (front.msPerToken > 0) await setTimeout(tokens * front.msPerToken);
  to.writeHead(front.failing ? 500 : 200, { 'content-type': 'application/json' });
  const data = inputs.map((_, index) => ({ object: 'embedding', index, embedding: [index] }));
  const usage = { prompt_tokens: tokens, total_tokens: tokens, completion_tokens: 0 };
  to.end(JSON.stringify({ id: 'e', object: 'list', created: 1, model, data, usage }));
}

function forward(url: URL, from: IncomingMessage, to: ServerResponse): void {
  const { method, headers } = from;
  const call = request(url, { method, headers: { ...headers, host: url.host } }, (answer) => {
    to.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(to);
    answer.on('error', () => to.destroy());
  });
  call.on('error', () => to.destroy());
  to.on('close', () => call.destroy());
  from.pipe(call);
}
