// A small real HTTP engine whose every answer a test scripts: what it received is kept, what it sends is
// whatever the script writes, cuts included.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

export interface Received {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
  /** Resolves when the connection of this request closes before its answer was complete. */
  readonly cut: Promise<void>;
}

export type Script = (received: Received, response: ServerResponse) => void | Promise<void>;

export interface ScriptedEngine {
  readonly url: string;
  readonly host: string;
  readonly received: Received[];
  script: Script;
  close(): Promise<void>;
}

export async function startScriptedEngine(script: Script): Promise<ScriptedEngine> {
  const sockets = new Set<Socket>();
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const cut = new Promise<void>((resolve) => {
        response.on('close', () => {
          if (!response.writableFinished) resolve();
        });
      });
      const one: Received = {
        method: request.method ?? 'GET',
        path: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(pieces),
        cut,
      };
      received.push(one);
      void engine.script(one, response);
    });
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const engine: ScriptedEngine = {
    url: `http://${host}`,
    host,
    received,
    script,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
  return engine;
}

export function chunk(text: string, finish: string | null = null): string {
  const choice = { index: 0, delta: { content: text }, finish_reason: finish };
  return `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [choice] })}\n\n`;
}

export function usageChunk(promptTokens: number, cachedTokens: number, completion: number): string {
  const usage = {
    prompt_tokens: promptTokens,
    completion_tokens: completion,
    total_tokens: promptTokens + completion,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
  return `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [], usage })}\n\n`;
}

export const DONE = 'data: [DONE]\n\n';

export function streamHead(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  response.flushHeaders();
}

/** A whole stream of the given texts. */
export function streamOf(...texts: string[]): Script {
  return (_received, response) => {
    streamHead(response);
    for (const text of texts) response.write(chunk(text));
    response.write(chunk('', 'stop'));
    response.write(usageChunk(100, 64, texts.length));
    response.end(DONE);
  };
}

export function answerOf(content: string): Script {
  return (_received, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(
      JSON.stringify({
        id: 'c',
        object: 'chat.completion',
        created: 1,
        model: 'm',
        choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 },
      }),
    );
  };
}

export function statusOf(
  status: number,
  body: string,
  headers: Record<string, string> = {},
): Script {
  return (_received, response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(body);
  };
}
