// A parent's side of the link: children (agents of a regional router, regions of a global one) dial `/link` with a bearer
// secret, say hello, and are let in or closed by name. What a message means is the owner's business.
//
//   upgrade   links' number, secret or certificate   else 503, 401 (link-listener.ts has what comes before)
//   hello     within `helloTimeoutMs`, small, a version we speak, a pool or region that the secret may speak for
//   onHello   the owner's verdict (address proof, pool known): meanwhile nothing is read from the link
//   beside    children of another kind, on a path of their own, by rules of their own
//   review    after a reload: whose secret or certificate name would let it in no longer is closed as `unauthorized`
//   onUp … onMessage … onDown: exactly one `onDown` for each `onUp`, never from inside a call of the owner's. Messages of
//               all links together hold a turn of the event loop for some ms: the rest come in the turns after

import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type WebSocket } from 'ws';
import type { LinkId } from '../model/ids.ts';
import type { AnyHello } from '../protocol/greeting.ts';
import { MAX_HELLO_BYTES } from '../protocol/limits.ts';
import type { CloseReason, Hello, RouterMessage } from '../protocol/messages.ts';
import type { ToldByAgent } from './agent-link.ts';
import type { Clock } from './clock.ts';
import { grants, type LinkGrant, type LinkRules } from './link-credentials.ts';
import { LinkGate, type Entrant } from './link-gate.ts';
import { LinkListener, type LinkEntrance } from './link-listener.ts';
import { LinkRefusals, type RefusalCounts } from './link-refusals.ts';
import { LinkSlices } from './link-slices.ts';
import {
  LINK_LIMITS,
  LINK_WEBSOCKET,
  LinkSocket,
  type LinkEnd,
  type LinkLimits,
} from './link-socket.ts';
import { isHello, type AnyMessage, type ParentWords } from './link-words.ts';
import type { Logger } from './log.ts';
import type { Timers } from './timers.ts';
import type { HandshakeFailed, ServerTls } from './tls-server.ts';

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

export interface LinkServerStats extends RefusalCounts {
  readonly links: number;
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

const PATH = '/link';
/** Of the ids of links. */
const LINK_PREFIX = { agent: 'in', region: 'in', router: 'sibling' } as const;
const MAX_LINKS = 4_096;
const MAX_PENDING = 256;
const HELLO_TIMEOUT_MS = 5_000;
/** Milliseconds for the owner's verdict, address proof included. */
const VERDICT_TIMEOUT_MS = 10_000;
/** Ended links of one review that are named in the log. */
const NAMED_MAX = 8;
const CLOSE_WAIT_MS = 1_500;

export async function startLinkServer<
  H extends AnyHello,
  Child extends AnyMessage,
  Parent extends AnyMessage,
>(options: LinkServerOptions<H, Child, Parent>): Promise<LinkServer<Parent>> {
  const refusals = new LinkRefusals(options.log, options.clock);
  const listener = new LinkListener(
    {
      host: options.host,
      port: options.port,
      tls: options.tls ?? null,
      handshakeFailed: options.handshakeFailed ?? (() => undefined),
      maxLinks: options.maxLinks ?? MAX_LINKS,
      maxPending: options.maxPending ?? MAX_PENDING,
    },
    refusals,
  );
  const server = new Links(options, refusals, listener);
  listener.lead(PATH, server);
  await listener.listen();
  return server;
}

interface Peer {
  readonly link: LinkId;
  readonly socket: LinkSocket;
  readonly who: Entrant;
  readonly remoteAddress: string;
  /** What it may speak for, by the rules that were looked at last. */
  grant: LinkGrant;
  /** What it does speak for; null before its hello. */
  speaksFor: string | null;
  phase: 'greeting' | 'judging' | 'up';
  /** Messages that wait for a later turn. */
  waiting: number;
  cancelDeadline: () => void;
}

class Links<H extends AnyHello, Child extends AnyMessage, Parent extends AnyMessage>
  implements LinkServer<Parent>, LinkEntrance
{
  readonly #options: LinkServerOptions<H, Child, Parent>;
  readonly #limits: LinkLimits;
  readonly #refusals: LinkRefusals;
  /** Null: it is another's. */
  readonly #listener: LinkListener | null;
  readonly #gate: LinkGate;
  readonly #beside: LinkEntrance[] = [];
  readonly #upgrader: WebSocketServer;
  readonly #peers = new Map<LinkId, Peer>();
  readonly #sockets = new Set<WebSocket>();
  readonly #slices: LinkSlices;
  readonly #stopBeat: () => void;
  #opened = 0;
  #closing = false;

  constructor(
    options: LinkServerOptions<H, Child, Parent>,
    refusals: LinkRefusals,
    listener: LinkListener | null,
  ) {
    const { clock, rules, tls = null } = options;
    this.#options = options;
    this.#limits = { ...LINK_LIMITS, ...options.limits };
    this.#refusals = refusals;
    this.#listener = listener;
    this.#gate = new LinkGate({ clock, rules, tls });
    this.#slices = options.slices ?? new LinkSlices(() => clock.nowMs());
    this.#upgrader = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      ...LINK_WEBSOCKET,
      maxPayload: this.#limits.maxFrameBytes,
    });
    this.#upgrader.on('wsClientError', (_error, stream) =>
      refusals.refuse(stream, '400 Bad Request'),
    );
    this.#stopBeat = options.timers.every(this.#limits.pingIntervalMs, () => {
      for (const peer of this.#peers.values()) peer.socket.beat();
    });
  }

  get port(): number {
    return this.#listener?.port ?? 0;
  }

  beside<OtherHello extends AnyHello, OtherChild extends AnyMessage, Other extends AnyMessage>(
    path: string,
    options: LinkServerOptions<OtherHello, OtherChild, Other>,
  ): LinkServer<Other> {
    const links = new Links(options, new LinkRefusals(options.log, options.clock), null);
    this.#listener?.lead(path, links);
    this.#beside.push(links);
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
    const grantNow = this.#gate.changed();
    if (grantNow === null) return;
    const ended: string[] = [];
    for (const peer of this.#peers.values()) {
      const { speaksFor, who, remoteAddress } = peer;
      peer.grant = grantNow(who.shown);
      const stays =
        speaksFor === null ? peer.grant.kind !== 'refused' : grants(peer.grant, speaksFor);
      if (stays) continue;
      ended.push(`${speaksFor ?? 'not greeted'} ${remoteAddress}`);
      peer.socket.close('unauthorized');
    }
    if (ended.length === 0) return;
    const named = ended.slice(0, NAMED_MAX).join(', ');
    this.#options.log.warn({ links: ended.length, named }, 'links ended: secret taken out');
  }

  stats(): LinkServerStats {
    return { links: this.#peers.size, ...this.#refusals.counts() };
  }

  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    this.#stopBeat();
    for (const peer of this.#peers.values()) peer.socket.close('shutting_down');
    const others = this.#beside.map((other) => other.close());
    const cancel = this.#options.timers.after(CLOSE_WAIT_MS, () => {
      for (const socket of this.#sockets) socket.terminate();
      this.#listener?.cut();
    });
    // Where it has a listener, its connections are the last to go.
    await (this.#listener?.close() ?? this.#socketsGone());
    await Promise.all(others);
    cancel();
  }

  async #socketsGone(): Promise<void> {
    const open = [...this.#sockets].map(
      (socket) => new Promise<void>((resolve) => socket.once('close', () => resolve())),
    );
    await Promise.all(open);
  }

  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    const most = this.#options.maxLinks ?? MAX_LINKS;
    if (this.#closing) return this.#refusals.refuse(stream, '503 Service Unavailable');
    if (this.#peers.size >= most) {
      return this.#refusals.full(stream, most, request.socket.remoteAddress ?? '');
    }
    const who = this.#gate.entrant(request);
    if (who.grant.kind === 'refused') {
      return this.#refusals.unauthorized(stream, who.shown, this.#gate.clientAuth);
    }
    this.#upgrader.handleUpgrade(request, stream, head, (socket) => {
      this.#greet({ socket, stream }, who);
    });
    return undefined;
  }

  #greet(
    { socket, stream }: { readonly socket: WebSocket; readonly stream: Duplex },
    who: Entrant,
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
      onFault: (fault) => this.#refusals.fault(peer, fault),
      onEnd: (reason) => this.#end(peer, reason),
      onRtt: (rttMs) => this.#rtt(peer, rttMs),
    });
    const peer: Peer = {
      link,
      socket: linkSocket,
      who,
      remoteAddress: who.shown.remoteAddress,
      grant: who.grant,
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
      return this.#refusals.unknownKind();
    }
    this.#refusals.unknownFields(decoded.unknownFields);
    const message = decoded.message;
    const greets = isHello(message);
    if (greets !== (peer.phase === 'greeting')) {
      return this.#malformed(peer, `${message.kind} out of turn`);
    }
    if (greets) return void this.#judge(peer, message);
    return this.#options.onMessage(peer.link, message);
  }

  #malformed(peer: Peer, detail: string): void {
    this.#refusals.fault(peer, { reason: 'bad_frame', detail });
    peer.socket.close('bad_frame');
  }

  #late(peer: Peer): void {
    this.#refusals.late(peer, peer.phase);
    peer.socket.close('hello_timeout');
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
      this.#sayRefused(peer, hello, verdict);
      return peer.socket.close(verdict);
    }
    peer.phase = 'up';
    const { messagesPerS } = this.#options;
    if (messagesPerS !== undefined) peer.socket.limitMessages(messagesPerS(hello));
    this.#options.onUp(peer.link, hello, peer.who.reachedAt);
    peer.socket.resume();
    // Whoever goes by distance need not wait for the next beat.
    if (this.#options.onRtt !== undefined) peer.socket.beat();
  }

  #sayRefused({ remoteAddress }: Peer, hello: H, reason: CloseReason): void {
    const { words, log } = this.#options;
    const { child } = words;
    log.warn(
      { ...words.named(hello), remoteAddress, reason },
      child === 'agent'
        ? 'agent refused'
        : child === 'region'
          ? 'region refused'
          : 'router refused',
    );
  }

  async #verdict(peer: Peer, hello: H): Promise<LinkVerdict> {
    const [least, greatest] = hello.protocol;
    const { version } = this.#options.words;
    if (least > version || greatest < version) return 'protocol_too_old';
    if (peer.speaksFor === null || !grants(peer.grant, peer.speaksFor)) return 'unauthorized';
    try {
      return await this.#options.onHello(hello, peer.who.certified);
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
