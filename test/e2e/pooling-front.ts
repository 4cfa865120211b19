// What stands in front of a simulated engine and answers for a pooling model beside it: embeddings after the time that their
// prompts take, everything else by the engine itself.

import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface PoolingFront {
  readonly url: string;
  /** Inputs of embeddings that came here. */
  readonly embedded: string[];
  /** While true, embeddings fail with 500. */
  failing: boolean;
  /** While set, embeddings wait for it. */
  gate: Promise<void> | null;
  close(): Promise<void>;
}

export async function startPoolingFront(engineUrl: string): Promise<PoolingFront> {
  const server = createServer((from, to) => {
    if (from.url === '/v1/embeddings') return void embed(front, from, to);
    forward(new URL(from.url ?? '/', engineUrl), from, to);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const front: PoolingFront = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    embedded: [],
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
  to.writeHead(front.failing ? 500 : 200, { 'content-type': 'application/json' });
  const data = inputs.map((_, index) => ({ object: 'embedding', index, embedding: [index] }));
  const tokens = inputs.reduce((sum, each) => sum + Math.ceil(each.length / 4), 0);
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
