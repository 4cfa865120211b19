// An HTTP listener with a table of routes. Every answer carries a request id, every unknown path or method
// gets an error in OpenAI's envelope, and a handler that throws costs its own request only.

import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { FleetError, type ErrorCode } from '../../shared/errors.ts';
import type { Clock } from '../../shared/runtime/clock.ts';
import { randomHex } from '../../shared/runtime/entropy.ts';
import { serveHanded, type ConnectionSource } from '../../shared/runtime/handed-connections.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import {
  createHttpServer,
  type HandshakeFailed,
  type ServerTls,
} from '../../shared/runtime/tls-server.ts';
import { apiRouteOf } from './api-routes.ts';
import { corsHeaders, isPreflight, preflightHeaders, type CorsPolicy } from './cors.ts';
import { errorFacts } from './error-envelope.ts';
import { clientRequestId } from './headers.ts';
import { requestIdOf } from './openai-request.ts';
import { Reply, type AnswerHeaders } from './reply.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import type { Door } from './client-door.ts';
import { LastBytes } from './http-last-bytes.ts';
import { UnparsedRefusals } from './http-refusals.ts';
import type { TierCall } from './tier-door.ts';
import type { Listen } from './gateway-options.ts';
import { NOBODY, type Caller, type Tenant } from './tenants.ts';

export interface Call {
  readonly id: RequestId;
  readonly clientId: string | null;
  /** Who asks, by its key or certificate; null where neither was needed. */
  readonly client: string | null;
  /** Whose it is. */
  readonly tenant: Tenant;
  /** What the tier before says of it; null: a client sent it. */
  readonly tier: TierCall | null;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly reply: Reply;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly arrivedMs: number;
  /** The client may send its body: asks for it where it waits to be asked (`Expect: 100-continue`). */
  awaitBody(): void;
}

export interface Route {
  /** HEAD is answered as GET is, without the body. */
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Exact path, or a prefix when it ends in `/`. */
  readonly path: string;
  /** Pages of other origins may reach those for clients, where the configuration has it so; never the others. */
  readonly audience: 'clients' | 'operators';
  /** Answered to whoever asks, without a key. */
  readonly open?: true;
  /** May throw `FleetError`, before anything was written. */
  readonly handle: (call: Call) => void | Promise<void>;
}

export interface ListenerLimits {
  /** A request's head, bytes. */
  readonly headerBytes: number;
  /** From a request's first byte to its last, ms. */
  readonly requestTimeoutMs: number;
  /** How long a connection is kept without a request, ms. */
  readonly keepAliveMs: number;
  /** For a client to take the last of its answer, ms. */
  readonly clientStallMs: number;
  /** Open connections, idle ones included. */
  readonly connections: number;
}

export interface ListenerOptions {
  readonly listen: Listen;
  /** Connections that another process accepts at `listen`; absent: it listens itself. */
  readonly source?: ConnectionSource | undefined;
  /** Null: plain HTTP. */
  readonly tls: ServerTls | null;
  readonly handshakeFailed: HandshakeFailed;
  /** Asked before the handler of every route that is not `open`. */
  readonly door: Door;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly limits: ListenerLimits;
  readonly routes: readonly Route[];
  /** Pages of other origins that may use the routes for clients; null = none. */
  readonly cors: () => CorsPolicy | null;
  /** Answers say only what the tier before reads: no names of the request, no date. */
  readonly bare?: boolean;
  /** True while the router leaves: connections end with their answers, so that clients go elsewhere. */
  readonly leaving: () => boolean;
  /** A request ended without reaching a replica: for log and metrics. */
  readonly onRefused: (call: Call, error: unknown) => void;
  /** Outside of any request: a connection too many, or one whose client took too little of its answer. */
  readonly onLimit: (limit: 'connections' | 'client_stall') => void;
  /** What was no request was refused: no HTTP, a head too large, a body too slow or framed wrongly. */
  readonly onUnparsed: (code: ErrorCode | null, limit: LimitName | null) => void;
}

export interface HttpListener {
  readonly port: number;
  /** Open ones, idle ones included. */
  readonly connections: number;
  /** Takes effect for connections from now on. */
  configure(limits: ListenerLimits): void;
  /** Stops accepting and closes every connection, those with an answer under way a moment later. */
  close(): Promise<void>;
}

/** ms for a request's head at most. */
const HEAD_TIMEOUT_MS = 60_000;
/** ms of silence after which TCP asks whether the other side is still there. */
const PROBE_AFTER_MS = 60_000;
/** ms for what was written last to leave, when the listener closes. */
const LAST_WRITES_MS = 500;
const NO_HEADERS: Readonly<Record<string, string>> = {};

export async function startHttpListener(options: ListenerOptions): Promise<HttpListener> {
  const refusals = new UnparsedRefusals(options.onUnparsed, options.timers);
  let { clientStallMs } = options.limits;
  const lastBytes = new LastBytes(options, {
    stallMs: () => clientStallMs,
    cut: () => options.onLimit('client_stall'),
  });
  const routes = new RouteTable(options.routes);
  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    refusals.parsed(request, response);
    lastBytes.watch(response);
    void serve(options, refusals, { request, response, lastBytes, routes });
  };
  const http = {
    connectionsCheckingInterval: 1_000,
    noDelay: true,
    // Refused below, with the headers that every answer has.
    requireHostHeader: false,
  };
  const { tls, handshakeFailed } = options;
  const server = createHttpServer({ http, tls, handshakeFailed }, handle);
  // A body is asked for when its request is known to be for somebody.
  server.on('checkContinue', handle);
  // An expectation that nobody knows is no reason to refuse.
  server.on('checkExpectation', handle);
  server.on('clientError', (error, socket) => refusals.refuse(error, socket));
  server.on('connect', (_request, socket) => refusals.refuseTunnel(socket));
  server.on('drop', () => options.onLimit('connections'));
  let connections = 0;
  server.on('connection', (socket) => {
    connections += 1;
    // A client whose machine is gone is found out about, whatever it waits for.
    socket.setKeepAlive(true, PROBE_AFTER_MS);
    socket.once('close', () => (connections -= 1));
  });
  applyLimits(server, options.limits);
  const configure = (limits: ListenerLimits): void => {
    ({ clientStallMs } = limits);
    applyLimits(server, limits);
  };
  if (options.source !== undefined) return handed(server, options.source, { options, configure });
  await listening(server, options.listen);
  return {
    port: (server.address() as AddressInfo).port,
    get connections() {
      return connections;
    },
    configure,
    close: () =>
      new Promise((resolve) => {
        const cancel = options.timers.after(LAST_WRITES_MS, () => server.closeAllConnections());
        server.close(() => {
          cancel();
          resolve();
        });
        server.closeIdleConnections();
      }),
  };
}

/** The listener of a process that is handed its connections. */
function handed(
  server: Server,
  source: ConnectionSource,
  { options, configure }: { options: ListenerOptions; configure: HttpListener['configure'] },
): HttpListener {
  const served = serveHanded(server, source, {
    timers: options.timers,
    lastWritesMs: LAST_WRITES_MS,
    onDrop: () => options.onLimit('connections'),
  });
  return {
    port: source.port,
    get connections() {
      return served.connections;
    },
    configure,
    close: () => served.close(),
  };
}

/** A path as a metric label: closed, whatever clients ask for. */
export function routeLabel(path: string): string {
  const route = apiRouteOf(path);
  if (route !== null) return route;
  return path === '/v1/models' || path.startsWith('/v1/models/') ? 'models' : 'other';
}

function applyLimits(server: Server, limits: ListenerLimits): void {
  server.requestTimeout = limits.requestTimeoutMs;
  server.headersTimeout = Math.min(limits.requestTimeoutMs, HEAD_TIMEOUT_MS);
  server.keepAliveTimeout = limits.keepAliveMs;
  server.maxConnections = limits.connections;
  // Read by Node for each new connection; its types only know it as an option.
  Object.assign(server, { maxHeaderSize: limits.headerBytes });
}

async function serve(
  options: ListenerOptions,
  refusals: UnparsedRefusals,
  exchange: HttpExchange,
): Promise<void> {
  const { request, response } = exchange;
  const call = new HttpCall(options, exchange);
  if (options.leaving()) response.shouldKeepAlive = false;
  // A client that resets its connection is seen as a closed response; the error itself says nothing more.
  response.on('error', () => undefined);
  try {
    if (call.answerPreflight()) return;
    const route = findRoute(call.onPath, call);
    if (route.open !== true) call.caller = options.door(call, route);
    await route.handle(call);
  } catch (cause) {
    const error = refusals.saidOf(request, cause) ?? cause;
    if (!call.reply.ended) call.reply.fail(errorFacts(error), call.ownMark());
    options.onRefused(call, error);
  }
}

interface HttpExchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly lastBytes: LastBytes;
  readonly routes: RouteTable;
}

/** Found by its path; whoever reads it changes nothing of it. */
class RouteTable {
  private readonly exact: ReadonlyMap<string, readonly Route[]>;
  private readonly prefixes: readonly Route[];

  constructor(routes: readonly Route[]) {
    this.prefixes = routes.filter(isPrefix);
    this.exact = Map.groupBy(
      routes.filter((route) => !isPrefix(route)),
      ({ path }) => path,
    );
  }

  on(path: string): readonly Route[] {
    return this.exact.get(path) ?? this.prefixes.filter((route) => path.startsWith(route.path));
  }
}

function isPrefix({ path }: Route): boolean {
  return path.endsWith('/') && path !== '/';
}

class HttpCall implements Call {
  readonly id: RequestId;
  readonly clientId: string | null;
  caller: Caller = NOBODY;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly reply: Reply;
  readonly path: string;
  readonly onPath: readonly Route[];
  readonly arrivedMs: number;
  private readonly search: string;
  /** The client waits to be asked for its body. Where it never is, Node closes the connection behind the answer. */
  private bodyUnasked: boolean;
  private readonly cors: CorsPolicy | null;
  private readonly isBare: boolean;

  constructor(options: ListenerOptions, { request, response, lastBytes, routes }: HttpExchange) {
    this.arrivedMs = options.clock.nowMs();
    this.id = requestIdOf(randomHex(12));
    this.clientId = clientRequestId(request.headers['x-request-id']);
    this.request = request;
    this.response = response;
    const [path = '/', search = ''] = targetOf(request.url ?? '/').split('?', 2);
    this.path = path;
    this.search = search;
    this.onPath = routes.on(path);
    const { expect } = request.headers;
    this.bodyUnasked = expect !== undefined && /^100-continue$/i.test(expect);
    const inside = this.onPath.some(({ audience }) => audience === 'operators');
    this.cors = inside ? null : options.cors();
    const how = { nowMs: this.arrivedMs, breakOff: lastBytes.breakOff };
    this.isBare = options.bare === true;
    this.reply = new Reply(response, this.ownHeaders(), how);
  }

  private ownHeaders(): Readonly<Record<string, string>> {
    const { id, clientId, cors, request, response } = this;
    if (this.isBare) {
      response.sendDate = false;
      return NO_HEADERS;
    }
    const own = { 'x-request-id': clientId ?? id, 'x-spillway-request-id': id };
    return cors === null ? own : { ...own, ...corsHeaders(cors, request.headers) };
  }

  /** Where an answer bears no names of the request, an error says all the same that a router of ours has made it. */
  ownMark(): AnswerHeaders {
    return this.isBare ? { 'x-spillway-request-id': this.id } : {};
  }

  get client(): string | null {
    return this.caller.client;
  }

  get tenant(): Tenant {
    return this.caller.tenant;
  }

  get tier(): TierCall | null {
    return this.caller.tier;
  }

  get query(): URLSearchParams {
    return new URLSearchParams(this.search);
  }

  awaitBody(): void {
    if (!this.bodyUnasked) return;
    this.bodyUnasked = false;
    this.response.writeContinue();
  }

  /** True where it was one: whether the page may send the request is said, and nothing else happens. */
  answerPreflight(): boolean {
    const { request, cors, onPath } = this;
    if (cors === null || onPath.length === 0) return false;
    if (!isPreflight(request.method, request.headers)) return false;
    const methods = onPath.map(({ method }) => method);
    this.reply.endEmpty(preflightHeaders(cors, request.headers, methods));
    return true;
  }
}

/** Clients behind a proxy setting name the whole URL; whose host it names is not asked. */
function targetOf(url: string): string {
  if (url.startsWith('/')) return url;
  const absolute = /^https?:\/\/[^/?]*/i.exec(url);
  if (absolute === null) return url;
  const rest = url.slice(absolute[0].length);
  return rest.startsWith('/') ? rest : `/${rest}`;
}

function findRoute(onPath: readonly Route[], call: Call): Route {
  const { method, headers, httpVersion } = call.request;
  if (httpVersion === '0.9') {
    throw new FleetError('invalid_request', 'HTTP/0.9 is not spoken here.');
  }
  if (headers.host === undefined && httpVersion === '1.1') {
    throw new FleetError('invalid_request', 'The Host header is missing.');
  }
  const asked = method === 'HEAD' ? 'GET' : method;
  const found = onPath.find((route) => route.method === asked);
  if (found !== undefined) return found;
  if (onPath.length === 0) {
    throw new FleetError('not_found', `There is no ${printable(call.path)} here.`);
  }
  call.response.setHeader('allow', allowed(onPath));
  throw new FleetError('method_not_allowed', `${printable(call.path)} does not take ${method}.`);
}

function allowed(routes: readonly Route[]): string {
  return routes.map(({ method }) => (method === 'GET' ? 'GET, HEAD' : method)).join(', ');
}

function printable(path: string): string {
  return path.length > 80 ? `${path.slice(0, 80)}…` : path;
}

function listening(server: Server, listen: Listen): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(listen.port, listen.host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
