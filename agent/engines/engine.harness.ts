// A scripted engine over real HTTP, and a reader before it whose clock the test sets and whose log it reads.

import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { EngineKind } from '../../shared/model/engine-kind.ts';
import { createHttpPools } from '../../shared/runtime/http-pool.ts';
import { createLog } from '../../shared/runtime/log.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { EngineReader } from '../scrape.ts';
import { EngineClient } from './client.ts';

export type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** What a path answers: JSON, text, a status, or whatever a function does. A path that is not there is 404. */
export type Script = Readonly<Record<string, Answer | object | string | number | undefined>>;

export interface ScriptedEngine {
  readonly url: string;
  readonly client: EngineClient;
  readonly reader: EngineReader;
  /** Paths asked for, in order. */
  readonly asked: string[];
  /** Logged so far: message and fields. */
  readonly logged: Readonly<Record<string, unknown>>[];
  /** Of the reader: monotonic and wall ms. */
  readonly time: { nowMs: number; wallMs: number };
  script: Script;
  close(): Promise<void>;
}

const running = new Set<() => Promise<void>>();

/** For `afterEach`. */
export async function closeScriptedEngines(): Promise<void> {
  for (const close of [...running]) await close();
}

export async function scriptedEngine(
  script: Script,
  kind: EngineKind | null = null,
): Promise<ScriptedEngine> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    request.resume();
    request.once('end', () => {
      const path = request.url ?? '';
      asked.push(path);
      answer(engine.script[path] ?? engine.script[path.split('?')[0] ?? ''], request, response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const pools = createHttpPools(1_000);
  const client = new EngineClient({ url, apiKey: null, pools, timers: systemTimers });
  const time = { nowMs: 0, wallMs: 1_000_000_000 };
  const clock = { nowMs: () => time.nowMs, wallMs: () => time.wallMs };
  const logged: Record<string, unknown>[] = [];
  const destination = {
    write: (line: string) => logged.push(JSON.parse(line) as Record<string, unknown>),
  };
  const log = createLog({ level: 'info', readable: false, destination });
  const close = async (): Promise<void> => {
    running.delete(close);
    await pools.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  running.add(close);
  const reader = new EngineReader({ client, clock, log, kind });
  const engine = { url, client, reader, asked, logged, time, script, close };
  return engine;
}

function answer(what: Script[string], request: IncomingMessage, response: ServerResponse): void {
  if (typeof what === 'function') (what as Answer)(request, response);
  else if (what === undefined) response.writeHead(404).end();
  else if (typeof what === 'number') response.writeHead(what).end();
  else response.writeHead(200).end(typeof what === 'string' ? what : JSON.stringify(what));
}
