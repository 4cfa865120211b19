// Owners of links for tests: a router that accepts and welcomes, an agent that says hello, and a socket that speaks
// WebSocket badly on purpose.

import { connect, type Socket } from 'node:net';
import { seededRandom } from '../lib/random.ts';
import type { AgentId, LinkId, PoolId, ReplicaId, RouterId } from '../model/ids.ts';
import type { AgentMessage, Hello, RouterMessage } from '../protocol/messages.ts';
import { AGENT_LINK_LIMITS, AGENT_OF_ROUTERS, ROUTER_OF_AGENTS } from './agent-link.ts';
import { systemClock } from './clock.ts';
import { startLinkClient, type LinkClient, type LinkClientOptions } from './link-client.ts';
import { startLinkServer, type LinkServer, type LinkServerOptions } from './link-server.ts';
import type { LinkEnd } from './link-socket.ts';
import { createLog } from './log.ts';
import type { RoleRuntime } from './role.ts';
import { systemTimers } from './timers.ts';

export interface LogLine {
  readonly msg: string;
  readonly [field: string]: unknown;
}

/** A runtime on real time whose log lines are kept. */
export function testRuntime(
  overrides: Partial<RoleRuntime> = {},
): RoleRuntime & { readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const log = createLog({
    level: 'debug',
    readable: false,
    destination: { write: (line: string) => void lines.push(JSON.parse(line) as LogLine) },
  });
  const random = seededRandom(7);
  return { clock: systemClock, timers: systemTimers, random, log, lines, ...overrides };
}

export interface FakeRouter {
  readonly server: LinkServer;
  readonly port: number;
  readonly hellos: Hello[];
  readonly up: Set<LinkId>;
  readonly messages: AgentMessage[];
  readonly ends: LinkEnd[];
}

export interface FakeRouterOptions extends Partial<LinkServerOptions> {
  readonly routerId?: string;
  readonly siblings?: () => readonly string[];
}

/** Accepts every hello and answers it with a welcome. */
export async function fakeRouter(options: FakeRouterOptions = {}): Promise<FakeRouter> {
  const { routerId = 'router-a', siblings = () => [], ...overrides } = options;
  const hellos: Hello[] = [];
  const up = new Set<LinkId>();
  const messages: AgentMessage[] = [];
  const ends: LinkEnd[] = [];
  const server = await startLinkServer({
    words: ROUTER_OF_AGENTS,
    host: '127.0.0.1',
    port: 0,
    rules: () => ({ credentials: [], certificates: [] }),
    ...testRuntime(),
    onHello: () => 'accept',
    onUp: (link, hello) => {
      hellos.push(hello);
      up.add(link);
      server.send(link, welcome(routerId, siblings()));
    },
    onMessage: (_link, message) => void messages.push(message),
    onDown: (link, reason) => {
      if (!up.delete(link)) throw new Error('down without up');
      ends.push(reason);
    },
    ...overrides,
  });
  return { server, port: server.port, hellos, up, messages, ends };
}

export interface FakeAgent {
  readonly client: LinkClient;
  readonly up: Set<LinkId>;
  readonly messages: RouterMessage[];
  readonly ends: LinkEnd[];
  readonly lines: LogLine[];
}

/** Says hello on every link. */
export function fakeAgent(
  urls: readonly string[],
  overrides: Partial<LinkClientOptions> & { readonly hello?: Partial<Hello> } = {},
): FakeAgent {
  const up = new Set<LinkId>();
  const messages: RouterMessage[] = [];
  const ends: LinkEnd[] = [];
  const runtime = testRuntime();
  const client = startLinkClient({
    words: AGENT_OF_ROUTERS,
    limits: AGENT_LINK_LIMITS,
    urls,
    secret: null,
    runtime,
    onUp: (link) => {
      up.add(link);
      client.send(link, { ...hello(), ...overrides.hello });
    },
    onMessage: (_link, message) => void messages.push(message),
    onDown: (link, reason) => {
      if (!up.delete(link)) throw new Error('down without up');
      ends.push(reason);
    },
    ...overrides,
  });
  return { client, up, messages, ends, lines: runtime.lines };
}

export function hello(pool = 'llama'): Hello {
  const replica = '127.0.0.1:8000' as ReplicaId;
  return {
    kind: 'hello',
    protocol: [1, 1],
    features: [],
    agentId: 'agent-a' as AgentId,
    software: 'test',
    pool: pool as PoolId,
    engines: [{ replica, advertiseUrl: 'http://127.0.0.1:8000', ranks: 1 }],
    proofPort: null,
    wallMs: 0,
  };
}

export function welcome(routerId: string, siblings: readonly string[] = []): RouterMessage {
  return {
    kind: 'welcome',
    protocol: 1,
    features: [],
    routerId: routerId as RouterId,
    software: 'test',
    siblings,
    minReportIntervalMs: 50,
    resume: [],
    wallMs: 0,
  };
}

/** A connection that has shaken hands and from then on does what the test does: no pongs, no reading. */
export async function rawLink(port: number, host = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port, host });
  const key = Buffer.alloc(16, 7).toString('base64');
  socket.write(
    `GET /link HTTP/1.1\r\nhost: ${host}:${port}\r\nconnection: upgrade\r\nupgrade: websocket\r\n` +
      `sec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\n`,
  );
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject);
    socket.once('data', () => resolve());
  });
  socket.pause();
  socket.on('error', () => undefined);
  return socket;
}

/** One masked binary WebSocket frame (the mask is 0). */
export function rawFrame(payload: Uint8Array): Buffer {
  const head = Buffer.alloc(14);
  head[0] = 0x82;
  head[1] = 0x80 | 127;
  head.writeBigUInt64BE(BigInt(payload.length), 2);
  return Buffer.concat([head, payload]);
}
