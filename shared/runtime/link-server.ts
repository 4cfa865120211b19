// A parent's side of the link: children (agents of a regional router, regions of a global one) dial `/link` with a bearer
// secret, say hello, and are let in or closed by name. What a message means is the owner's business.
//
//   connect   few from one address that have not linked yet, and not more than there may be links: else dropped
//   upgrade   path, links' number, secret or certificate   else 404, 503, 401
//   hello     within `helloTimeoutMs`, small, a version we speak, a pool or region that the secret may speak for
//   onHello   the owner's verdict (address proof, pool known): meanwhile nothing is read from the link
//   beside    children of another kind, on a path of their own, by rules of their own
//   review    after a reload: whose secret or certificate name would let it in no longer is closed as `unauthorized`
//   onUp … onMessage … onDown: exactly one `onDown` for each `onUp`, never from inside a call of the owner's. Messages of
//               all links together hold a turn of the event loop for some ms: the rest come in the turns after

import type { IncomingMessage, Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type WebSocket } from 'ws';
import { SaidLately } from '../lib/said-lately.ts';
import type { LinkId } from '../model/ids.ts';
import type { AnyHello } from '../protocol/greeting.ts';
import { MAX_HELLO_BYTES } from '../protocol/limits.ts';
import type { CloseReason, Hello, RouterMessage } from '../protocol/messages.ts';
import type { ToldByAgent } from './agent-link.ts';
import type { Clock } from './clock.ts';
import {
  grantFor,
  grants,
  type LinkGrant,
  type LinkRules,
  type Presented,
} from './link-credentials.ts';
import {
  LINK_LIMITS,
  LINK_WEBSOCKET,
  LinkSocket,
  type LinkEnd,
  type LinkFault,
  type LinkLimits,
} from './link-socket.ts';
import { Pending } from './link-pending.ts';
import { LinkSlices } from './link-slices.ts';
import { isHello, type AnyMessage, type ParentWords } from './link-words.ts';
import type { Logger } from './log.ts';
import type { Timers } from './timers.ts';
import { peerCertificate } from './tls-peer.ts';
import {
  createHttpServer,
  type ClientAuth,
  type HandshakeFailed,
  type ServerTls,
} from './tls-server.ts';

export type LinkVerdict = 'accept' | CloseReason;

export interface LinkServerOptions<
  H extends AnyHello = Hello,
  Child extends AnyMessage = ToldByAgent,
  Parent extends AnyMessage = RouterMessage,
> {
  readonly words: ParentWords<H, Child, Parent>;
  readonly host: string;
  readonly port: number;
  /** Null or absent: links come without TLS. */
  readonly tls?: ServerTls | null;
  readonly handshakeFailed?: HandshakeFailed;
  /** Read at each upgrade, so that a reload counts at once. */
  readonly rules: () => Omit<LinkRules, 'clientAuth'>;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly log: Logger;
  readonly limits?: Partial<LinkLimits>;
  /** Shared with other bulk work of the process; absent: links have slices of their own. */
  readonly slices?: LinkSlices;
  readonly maxLinks?: number;
  /** Connections of one address that have not linked yet, at most. */
  readonly maxPending?: number;
  readonly helloTimeoutMs?: number;
  /** Messages that a child may send in a second, sustained, where that is less than any link may carry. */
  readonly messagesPerS?: (hello: H) => number;
  /** `certified`: the child showed a certificate that the listener accepts. */
  readonly onHello: (hello: H, certified: boolean) => LinkVerdict | Promise<LinkVerdict>;
  /** `reachedAt`: the URL that the child dialled, without a path; null where it did not say. */
  readonly onUp: (link: LinkId, hello: H, reachedAt: string | null) => void;
  readonly onMessage: (link: LinkId, message: Child) => void;
  /** The child has answered a ping. */
  readonly onRtt?: (link: LinkId, rttMs: number) => void;
  readonly onDown: (link: LinkId, reason: LinkEnd) => void;
  /** A link has ended that was never up. */
  readonly onTurnedAway?: (reason: LinkEnd) => void;
}

/** Totals since the start. */
export interface LinkServerStats {
  readonly links: number;
  /** Connections that did not become links: no upgrade, no secret, too many. */
  readonly refusedUpgrades: number;
  readonly malformed: number;
  readonly unknownKinds: number;
  readonly unknownFields: number;
}

export interface LinkServer<Parent extends AnyMessage = RouterMessage> {
  readonly port: number;
  /** False where the link is gone, or goes because it is too slow. */
  send(link: LinkId, message: Parent): boolean;
  closeLink(link: LinkId, reason: CloseReason): void;
  /** Links of another kind on the same listener. They end with it; its host, port and TLS are theirs. */
  beside<H extends AnyHello, Child extends AnyMessage, Other extends AnyMessage>(
    path: string,
    options: LinkServerOptions<H, Child, Other>,
  ): LinkServer<Other>;
  /** The rules may have changed: ends the links of those whom they would let in no longer, and says so. */
  review(): void;
  stats(): LinkServerStats;
  /** Closes all links as `shutting_down` and the listener. */
  close(): Promise<void>;
}

/** Of the ids of links. */
const LINK_PREFIX = { agent: 'in', region: 'in', router: 'sibling' } as const;
const MAX_LINKS = 4_096;
const MAX_PENDING = 256;
/** Connections beyond the links that may be there: those on their way in, those refused. */
const SPARE_CONNECTIONS = 64;
const HELLO_TIMEOUT_MS = 5_000;
/** Milliseconds for the owner's verdict, address proof included. */
const VERDICT_TIMEOUT_MS = 10_000;
/** Ended links of one review that are named in the log. */
const NAMED_MAX = 8;
/** Milliseconds for the head of an upgrade request. */
const HEAD_TIMEOUT_MS = 5_000;
const CLOSE_WAIT_MS = 1_500;

export async function startLinkServer<
  H extends AnyHello,
  Child extends AnyMessage,
  Parent extends AnyMessage,
>(options: LinkServerOptions<H, Child, Parent>): Promise<LinkServer<Parent>> {
  const server = new Links(options, true);
  await server.listen();
  return server;
}

/** What a listener leads to by its path. */
interface Beside extends Pick<LinkServer, 'close'> {
  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void;
}

interface Peer {
  readonly link: LinkId;
  readonly socket: LinkSocket;
  /** What it may speak for, by what it has shown. */
  grant: LinkGrant;
  readonly shown: Presented;
  readonly remoteAddress: string;
  readonly certified: boolean;
  readonly reachedAt: string | null;
  /** What it does speak for; null before its hello. */
  speaksFor: string | null;
  phase: 'greeting' | 'judging' | 'up';
  /** Messages that wait for a later turn. */
  waiting: number;
  cancelDeadline: () => void;
}

class Links<H extends AnyHello, Child extends AnyMessage, Parent extends AnyMessage>
  implements LinkServer<Parent>, Beside
{
  readonly #options: LinkServerOptions<H, Child, Parent>;
  readonly #limits: LinkLimits;
  /** Null: the listener is another's. */
  readonly #http: Server | null;
  readonly #beside = new Map<string, Beside>();
  readonly #upgrader: WebSocketServer;
  readonly #peers = new Map<LinkId, Peer>();
  readonly #sockets = new Set<WebSocket>();
  readonly #warned = new SaidLately();
  readonly #pending = new Pending();
  readonly #slices: LinkSlices;
  #stopBeat: () => void = () => undefined;
  #opened = 0;
  #closing = false;
  /** By which all that stand were let in. */
  #rules = '';
  #counts = { refusedUpgrades: 0, malformed: 0, unknownKinds: 0, unknownFields: 0 };

  constructor(options: LinkServerOptions<H, Child, Parent>, listens: boolean) {
    this.#options = options;
    this.#limits = { ...LINK_LIMITS, ...options.limits };
    this.#slices = options.slices ?? new LinkSlices(() => options.clock.nowMs());
    this.#upgrader = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      ...LINK_WEBSOCKET,
      maxPayload: this.#limits.maxFrameBytes,
    });
    this.#upgrader.on('wsClientError', (_error, stream) => this.#refuse(stream, '400 Bad Request'));
    this.#http = listens ? this.#listener() : null;
    this.#stopBeat = options.timers.every(this.#limits.pingIntervalMs, () => {
      for (const peer of this.#peers.values()) peer.socket.beat();
    });
  }

  get port(): number {
    return (this.#http?.address() as AddressInfo | null | undefined)?.port ?? 0;
  }

  async listen(): Promise<void> {
    const { host, port } = this.#options;
    const http = this.#http;
    await new Promise<void>((resolve, reject) => {
      http?.once('error', reject);
      http?.listen({ host, port }, () => {
        http.off('error', reject);
        resolve();
      });
    });
  }

  beside<OtherHello extends AnyHello, OtherChild extends AnyMessage, Other extends AnyMessage>(
    path: string,
    options: LinkServerOptions<OtherHello, OtherChild, Other>,
  ): LinkServer<Other> {
    const links = new Links(options, false);
    this.#beside.set(path, links);
    return links;
  }

  send(link: LinkId, message: Parent): boolean {
    const peer = this.#peers.get(link);
    return peer !== undefined && peer.socket.send(this.#options.words.encode(message));
  }

  closeLink(link: LinkId, reason: CloseReason): void {
    this.#peers.get(link)?.socket.close(reason);
  }

  review(): void {
    const rules = { ...this.#options.rules(), clientAuth: this.#clientAuth() };
    const written = JSON.stringify(rules);
    if (written === this.#rules) return;
    this.#rules = written;
    const ended: string[] = [];
    for (const peer of this.#peers.values()) {
      const { speaksFor, shown } = peer;
      peer.grant = grantFor(rules, shown);
      const stays =
        speaksFor === null ? peer.grant.kind !== 'refused' : grants(peer.grant, speaksFor);
      if (stays) continue;
      ended.push(`${speaksFor ?? 'not greeted'} ${peer.remoteAddress}`);
      peer.socket.close('unauthorized');
    }
    if (ended.length === 0) return;
    const named = ended.slice(0, NAMED_MAX).join(', ');
    this.#options.log.warn({ links: ended.length, named }, 'links ended: secret taken out');
  }

  stats(): LinkServerStats {
    return { links: this.#peers.size, ...this.#counts };
  }

  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    this.#stopBeat();
    for (const peer of this.#peers.values()) peer.socket.close('shutting_down');
    const others = [...this.#beside.values()].map((other) => other.close());
    const cancel = this.#options.timers.after(CLOSE_WAIT_MS, () => {
      for (const socket of this.#sockets) socket.terminate();
      this.#http?.closeAllConnections();
    });
    await this.#closed();
    await Promise.all(others);
    cancel();
  }

  /** The listener, where it has one; its connections are the last to go. */
  async #closed(): Promise<void> {
    const http = this.#http;
    if (http !== null) return new Promise((resolve) => http.close(() => resolve()));
    const open = [...this.#sockets].map(
      (socket) => new Promise<void>((resolve) => socket.once('close', () => resolve())),
    );
    await Promise.all(open);
  }

  #listener(): Server {
    const options = this.#options;
    const http = createHttpServer(
      {
        http: {
          headersTimeout: HEAD_TIMEOUT_MS,
          requestTimeout: HEAD_TIMEOUT_MS,
          connectionsCheckingInterval: 1_000,
          noDelay: true,
        },
        tls: options.tls ?? null,
        handshakeFailed: options.handshakeFailed ?? (() => undefined),
      },
      (_request, response) => {
        this.#counts.refusedUpgrades += 1;
        response.writeHead(426, { connection: 'close' }).end();
      },
    );
    http.maxConnections = this.#maxLinks() + SPARE_CONNECTIONS;
    http.on('upgrade', (request, socket, head) => this.#lead(request, socket, head));
    http.on('clientError', (_error, stream) => this.#refuse(stream, '400 Bad Request'));
    http.on('connection', (stream) => this.#connected(stream));
    http.on('drop', () => this.#overrun('connections', this.#maxLinks() + SPARE_CONNECTIONS));
    return http;
  }

  #maxLinks(): number {
    return this.#options.maxLinks ?? MAX_LINKS;
  }

  #connected(stream: Socket): void {
    const address = stream.remoteAddress ?? '';
    if (this.#pending.enter(stream) <= (this.#options.maxPending ?? MAX_PENDING)) return;
    stream.destroy();
    this.#overrun('pending', this.#options.maxPending ?? MAX_PENDING, address);
  }

  #overrun(limit: 'connections' | 'links' | 'pending', most: number, remoteAddress = ''): void {
    this.#counts.refusedUpgrades += 1;
    this.#warnOf(`${limit} ${remoteAddress}`, () => {
      this.#options.log.warn({ limit, most, remoteAddress }, 'link refused: too many');
    });
  }

  #lead(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    this.#pending.leave(request.socket);
    stream.on('error', () => stream.destroy());
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const to = path === '/link' ? this : this.#beside.get(path);
    if (to === undefined) return this.#refuse(stream, '404 Not Found');
    return to.upgrade(request, stream, head);
  }

  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    const remoteAddress = request.socket.remoteAddress ?? '';
    if (this.#closing) return this.#refuse(stream, '503 Service Unavailable');
    if (this.#peers.size >= this.#maxLinks()) {
      this.#overrun('links', this.#maxLinks(), remoteAddress);
      return end(stream, '503 Service Unavailable');
    }
    const certificate = peerCertificate(request.socket, this.#options.clock.wallMs());
    const { authorization } = request.headers;
    const shown = { authorization, remoteAddress, certificate };
    const grant = grantFor({ ...this.#options.rules(), clientAuth: this.#clientAuth() }, shown);
    if (grant.kind === 'refused') {
      this.#sayRefused(shown);
      return this.#refuse(stream, '401 Unauthorized');
    }
    this.#upgrader.handleUpgrade(request, stream, head, (socket) => {
      const certified = this.#clientAuth() !== 'none' && certificate.kind === 'valid';
      const reachedAt = this.#reachedAt(request.headers.host);
      this.#greet({ socket, stream }, { grant, shown, remoteAddress, certified, reachedAt });
    });
  }

  #clientAuth(): ClientAuth {
    return this.#options.tls?.clientAuth ?? 'none';
  }

  #sayRefused({ authorization, remoteAddress, certificate }: Presented): void {
    const { log } = this.#options;
    const clientAuth = this.#clientAuth();
    const isCertificate =
      clientAuth !== 'none' &&
      (certificate.kind === 'invalid' ||
        (certificate.kind === 'none' && clientAuth === 'required'));
    if (isCertificate) {
      const problem = certificate.kind === 'invalid' ? certificate.problem : 'none was shown';
      this.#warnOf(problem, () =>
        log.warn({ remoteAddress, problem }, 'link refused: certificate'),
      );
      return;
    }
    const problem = authorization === undefined ? 'none was shown' : 'none that counts here';
    this.#warnOf(`secret ${remoteAddress}`, () => {
      log.warn({ remoteAddress, problem }, 'link refused: secret');
    });
  }

  /** A child dials again and again: the same words come once a minute. */
  #warnOf(problem: string, warn: () => void): void {
    if (this.#warned.due(problem, this.#options.clock.nowMs())) warn();
  }

  /** A head may be wrong in more than one way: it is refused once. */
  #refuse(stream: Duplex, status: string): void {
    if (stream.writableEnded) return;
    this.#counts.refusedUpgrades += 1;
    end(stream, status);
  }

  #reachedAt(host: string | undefined): string | null {
    const scheme = (this.#options.tls ?? null) === null ? 'ws' : 'wss';
    const url = host === undefined ? null : URL.parse(`${scheme}://${host}`);
    return url === null || url.host === '' ? null : `${url.protocol}//${url.host}`;
  }

  #greet(
    { socket, stream }: { readonly socket: WebSocket; readonly stream: Duplex },
    who: Pick<Peer, 'grant' | 'shown' | 'remoteAddress' | 'certified' | 'reachedAt'>,
  ): void {
    const { clock, timers, helloTimeoutMs } = this.#options;
    this.#opened += 1;
    const link = `${LINK_PREFIX[this.#options.words.child]}-${this.#opened}` as LinkId;
    const linkSocket = new LinkSocket({
      socket,
      stream,
      clock,
      timers,
      limits: this.#limits,
      onFrame: (frame) => this.#schedule(peer, frame),
      onFault: (fault) => this.#fault(peer, fault),
      onEnd: (reason) => this.#end(peer, reason),
      onRtt: (rttMs) => this.#rtt(peer, rttMs),
    });
    const peer: Peer = {
      link,
      socket: linkSocket,
      ...who,
      speaksFor: null,
      phase: 'greeting',
      waiting: 0,
      cancelDeadline: timers.after(helloTimeoutMs ?? HELLO_TIMEOUT_MS, () => this.#late(peer)),
    };
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    this.#peers.set(link, peer);
  }

  /** Nothing more is read from a link whose message has to wait for a later turn. */
  #schedule(peer: Peer, frame: Uint8Array): void {
    if (peer.phase !== 'up' || !this.#slices.isOver('links')) {
      return this.#slices.run(() => this.#receive(peer, frame));
    }
    peer.waiting += 1;
    peer.socket.hold();
    this.#slices.later('links', () => {
      peer.waiting -= 1;
      if (peer.socket.ended) return;
      this.#receive(peer, frame);
      if (peer.waiting === 0 && !peer.socket.ended) peer.socket.resume();
    });
  }

  #receive(peer: Peer, frame: Uint8Array): void {
    if (peer.phase === 'greeting' && frame.length > MAX_HELLO_BYTES) {
      return this.#malformed(peer, 'hello too large');
    }
    const decoded = this.#options.words.decode(frame);
    if (!decoded.ok) {
      if (decoded.reason === 'malformed') return this.#malformed(peer, decoded.detail);
      this.#counts.unknownKinds += 1;
      return undefined;
    }
    this.#counts.unknownFields += decoded.unknownFields;
    const message = decoded.message;
    const greets = isHello(message);
    if (greets !== (peer.phase === 'greeting')) {
      return this.#malformed(peer, `${message.kind} out of turn`);
    }
    if (greets) return void this.#judge(peer, message);
    return this.#options.onMessage(peer.link, message);
  }

  #malformed(peer: Peer, detail: string): void {
    this.#fault(peer, { reason: 'bad_frame', detail });
    peer.socket.close('bad_frame');
  }

  #fault({ link, remoteAddress }: Peer, { reason, detail }: LinkFault): void {
    if (reason === 'bad_frame') this.#counts.malformed += 1;
    const text = reason === 'bad_frame' ? 'link closed: bad frame' : 'link closed: flooded';
    this.#warnOf(`${text} ${remoteAddress} ${detail}`, () => {
      this.#options.log.warn({ link, remoteAddress, reason, detail }, text);
    });
  }

  /** No hello, or no verdict about it, in time. */
  #late({ link, remoteAddress, phase, socket }: Peer): void {
    this.#warnOf(`late ${remoteAddress} ${phase}`, () => {
      this.#options.log.warn({ link, remoteAddress, phase }, 'link closed: no hello in time');
    });
    socket.close('hello_timeout');
  }

  async #judge(peer: Peer, hello: H): Promise<void> {
    peer.cancelDeadline();
    peer.phase = 'judging';
    peer.speaksFor = this.#options.words.speaksFor(hello);
    peer.socket.pause();
    peer.cancelDeadline = this.#options.timers.after(VERDICT_TIMEOUT_MS, () => this.#late(peer));
    const verdict = await this.#verdict(peer, hello);
    if (peer.socket.ended) return;
    peer.cancelDeadline();
    if (verdict !== 'accept') {
      const { words, log } = this.#options;
      const fields = { ...words.named(hello), remoteAddress: peer.remoteAddress, reason: verdict };
      const { child } = words;
      log.warn(
        fields,
        child === 'agent'
          ? 'agent refused'
          : child === 'region'
            ? 'region refused'
            : 'router refused',
      );
      return peer.socket.close(verdict);
    }
    peer.phase = 'up';
    const { messagesPerS } = this.#options;
    if (messagesPerS !== undefined) peer.socket.limitMessages(messagesPerS(hello));
    this.#options.onUp(peer.link, hello, peer.reachedAt);
    peer.socket.resume();
    // Whoever goes by distance need not wait for the next beat.
    if (this.#options.onRtt !== undefined) peer.socket.beat();
  }

  async #verdict(peer: Peer, hello: H): Promise<LinkVerdict> {
    const [least, greatest] = hello.protocol;
    const { version } = this.#options.words;
    if (least > version || greatest < version) return 'protocol_too_old';
    if (peer.speaksFor === null || !grants(peer.grant, peer.speaksFor)) return 'unauthorized';
    try {
      return await this.#options.onHello(hello, peer.certified);
    } catch (error) {
      this.#options.log.error({ err: error }, 'judging a hello failed');
      return 'shutting_down';
    }
  }

  #rtt(peer: Peer, rttMs: number): void {
    if (peer.phase === 'up') this.#options.onRtt?.(peer.link, rttMs);
  }

  #end(peer: Peer, reason: LinkEnd): void {
    peer.cancelDeadline();
    this.#peers.delete(peer.link);
    if (peer.phase === 'up') this.#options.onDown(peer.link, reason);
    else this.#options.onTurnedAway?.(reason);
  }
}

/** Destroyed as soon as the answer is on its way: a peer that never closes would keep the connection for ever. */
function end(stream: Duplex, status: string): void {
  stream.once('finish', () => stream.destroy());
  stream.end(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
}
