// What stands in front of an engine and lets through OpenAI's API alone: no metrics, no pages that only one kind of engine
// has, and a model list that names another owner.

import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

const OPEN = ['/v1/models', '/v1/chat/completions', '/v1/completions'];

export interface PlainProxy {
  readonly url: string;
  /** Paths that were asked for and not let through. */
  readonly refused: string[];
  close(): Promise<void>;
}

export async function startPlainProxy(engineUrl: string): Promise<PlainProxy> {
  const refused: string[] = [];
  const server = createServer((from, to) => {
    const { url = '/' } = from;
    if (OPEN.includes(url)) return forward(new URL(url, engineUrl), from, to);
    refused.push(url);
    to.writeHead(404, { 'content-type': 'application/json' });
    to.end('{"error":"not here"}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    refused,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function forward(url: URL, from: IncomingMessage, to: ServerResponse): void {
  const { method, headers } = from;
  const call = request(url, { method, headers: { ...headers, host: url.host } }, (answer) => {
    if (url.pathname === '/v1/models') return void sendModels(answer, to);
    to.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(to);
    answer.on('error', () => to.destroy());
  });
  call.on('error', () => to.destroy());
  to.on('close', () => call.destroy());
  from.pipe(call);
}

async function sendModels(answer: IncomingMessage, to: ServerResponse): Promise<void> {
  let text = '';
  for await (const piece of answer.setEncoding('utf8')) text += piece as string;
  to.writeHead(answer.statusCode ?? 502, { 'content-type': 'application/json' });
  to.end(text.replaceAll(/"owned_by":"[^"]*"/g, '"owned_by":"somebody"'));
}
