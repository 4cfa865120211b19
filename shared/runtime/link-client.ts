// A child's side of the link (an agent's to regional routers, a regional router's to global ones): one live link to every
// router process that its URLs and the routers' own welcomes name.
//
//   endpoints   a host name stands for all its addresses, resolved again every `resolveIntervalMs`; an address that
//               vanishes is closed. Siblings named in welcomes are dialled like configured URLs
//   retry       each address by itself (link-address.ts). Only a link that lived ends the doubling: one that breaks each
//               time at once is not dialled ten times a second
//   one link    per router process: where two addresses lead to the same one, the newer link stays, as it does
//               at the router, and the other address rests while it lives
//   itself      an address that leads back to this very process is left alone (`self`)
//
// The owner sends the hello at `onUp`. Exactly one `onDown` for each `onUp`, never from inside a call of the owner's.

import type { Writable } from 'node:stream';
import type { WebSocket } from 'ws';
import type { LinkId, RouterId } from '../model/ids.ts';
import type { AnyWelcome } from '../protocol/greeting.ts';
import { MAX_SIBLINGS } from '../protocol/limits.ts';
import type { AgentMessage, CloseReason, RouterMessage, Welcome } from '../protocol/messages.ts';
import type { PeerTrust } from './http-pool.ts';
import { LinkAddress, type AddressOwner, type LinkSecret } from './link-address.ts';
import {
  LinkNames,
  parseLinkUrl,
  systemResolve,
  type LinkEndpoint,
  type Resolve,
} from './link-names.ts';
import {
  LINK_LIMITS,
  LinkSocket,
  type LinkEnd,
  type LinkFault,
  type LinkLimits,
} from './link-socket.ts';
import { isWelcome, type AnyMessage, type ChildWords } from './link-words.ts';
import type { RoleRuntime } from './role.ts';

export interface LinkClientOptions<
  Child extends AnyMessage = AgentMessage,
  W extends AnyWelcome = Welcome,
  Parent extends AnyMessage = Exclude<RouterMessage, Welcome>,
> {
  readonly words: ChildWords<Child, W, Parent>;
  /** `ws://host:port` or `wss://host:port`. */
  readonly urls: readonly string[];
  /** Further ones, asked for whenever names are resolved again. */
  readonly more?: () => readonly string[];
  /** A function is asked at each dial, with how often that address has failed, so that a reload counts at once. */
  readonly secret: LinkSecret;
  /** The process that dials, where it may find itself among the addresses. */
  readonly self?: RouterId;
  /** For `wss` routers; absent or null: the system's CAs. */
  readonly trust?: PeerTrust | null;
  readonly runtime: RoleRuntime;
  readonly resolve?: Resolve;
  readonly resolveIntervalMs?: number;
  readonly limits?: Partial<LinkLimits>;
  readonly onUp: (link: LinkId) => void;
  readonly onMessage: (link: LinkId, message: W | Parent) => void;
  readonly onDown: (link: LinkId, reason: LinkEnd) => void;
}

/** One live link and what its welcome said. */
export interface LinkView {
  readonly link: LinkId;
  readonly url: string;
  readonly address: string;
  /** Null before the welcome. */
  readonly routerId: RouterId | null;
}

/** Totals since the start. */
export interface LinkClientStats {
  readonly attempts: number;
  readonly malformed: number;
  readonly unknownKinds: number;
  readonly unknownFields: number;
}

export interface LinkClient<Child extends AnyMessage = AgentMessage> {
  /** False where the link is gone, or goes because the router is too slow. */
  send(link: LinkId, message: Child): boolean;
  /** To every link that has had its welcome. */
  sendAll(message: Child): void;
  closeLink(link: LinkId, reason: CloseReason): void;
  /** Resolves all names again now. */
  refresh(): void;
  links(): readonly LinkView[];
  stats(): LinkClientStats;
  /** Closes all links, after what was sent before has left. */
  close(): Promise<void>;
}

const RESOLVE_INTERVAL_MS = 10_000;
const WELCOME_TIMEOUT_MS = 15_000;
/** ms that a link must have lived for its end to be the first failure. */
const SETTLED_MS = 5_000;
/** Endpoints that are dialled at the same time at most, siblings included. */
const MAX_ENDPOINTS = 512;

export function startLinkClient<
  Child extends AnyMessage,
  W extends AnyWelcome,
  Parent extends AnyMessage,
>(options: LinkClientOptions<Child, W, Parent>): LinkClient<Child> {
  const client = new Dialler(options);
  client.start();
  return client;
}

interface LiveLink {
  readonly link: LinkId;
  readonly socket: LinkSocket;
  readonly address: LinkAddress;
  readonly cancelWelcome: () => void;
  readonly openedMs: number;
  welcomed: boolean;
  siblings: readonly URL[];
}

class Dialler<Child extends AnyMessage, W extends AnyWelcome, Parent extends AnyMessage>
  implements LinkClient<Child>, AddressOwner
{
  readonly #options: LinkClientOptions<Child, W, Parent>;
  readonly #limits: LinkLimits;
  readonly #names: LinkNames;
  readonly #configured: readonly URL[];
  readonly #addresses = new Map<string, LinkAddress>();
  readonly #live = new Map<LinkId, LiveLink>();
  readonly #stops: (() => void)[] = [];
  #opened = 0;
  #refreshing = false;
  #refreshAgain = false;
  #closing = false;
  #counts = { attempts: 0, malformed: 0, unknownKinds: 0, unknownFields: 0 };

  constructor(options: LinkClientOptions<Child, W, Parent>) {
    this.#options = options;
    this.#limits = { ...LINK_LIMITS, ...options.limits };
    this.#names = new LinkNames(options.resolve ?? systemResolve, options.runtime.log);
    this.#configured = options.urls.map((text) => {
      const url = parseLinkUrl(text);
      if (url === null) throw new TypeError(`not a ws:// or wss:// URL: ${text}`);
      return url;
    });
  }

  start(): void {
    const { timers } = this.#options.runtime;
    const intervalMs = this.#options.resolveIntervalMs ?? RESOLVE_INTERVAL_MS;
    this.#stops.push(
      timers.every(this.#limits.pingIntervalMs, () => {
        for (const live of this.#live.values()) live.socket.beat();
      }),
      timers.every(intervalMs, () => void this.#refresh()),
    );
    void this.#refresh();
  }

  send(link: LinkId, message: Child): boolean {
    const live = this.#live.get(link);
    return live !== undefined && live.socket.send(this.#options.words.encode(message));
  }

  sendAll(message: Child): void {
    let frame: Uint8Array | null = null;
    for (const { welcomed, socket } of this.#live.values()) {
      if (welcomed) socket.send((frame ??= this.#options.words.encode(message)));
    }
  }

  closeLink(link: LinkId, reason: CloseReason): void {
    this.#live.get(link)?.socket.close(reason);
  }

  refresh(): void {
    void this.#refresh();
  }

  links(): readonly LinkView[] {
    return [...this.#live.values()].map(({ link, address, welcomed }) => ({
      link,
      url: address.endpoint.url.href,
      address: address.endpoint.address,
      routerId: welcomed ? address.routerId : null,
    }));
  }

  stats(): LinkClientStats {
    return { ...this.#counts };
  }

  async close(): Promise<void> {
    this.#closing = true;
    for (const stop of this.#stops) stop();
    const addresses = [...this.#addresses.values()];
    for (const live of this.#live.values()) live.socket.close('shutting_down');
    await Promise.all(addresses.map((address) => address.gone()));
  }

  /** Resolves all names again and brings the endpoints in line. One at a time; a call meanwhile runs it once more. */
  async #refresh(): Promise<void> {
    this.#refreshAgain = true;
    if (this.#refreshing) return;
    this.#refreshing = true;
    while (this.#refreshAgain && !this.#closing) {
      this.#refreshAgain = false;
      const siblings = [
        ...[...this.#live.values()].flatMap((live) => live.siblings),
        ...[...this.#addresses.values()].flatMap(({ selfSiblings }) => selfSiblings ?? []),
        ...(this.#options.more?.() ?? []).flatMap((url) => parseLinkUrl(url) ?? []),
      ];
      const wanted = await this.#names.endpoints([...this.#configured, ...siblings]);
      if (!this.#closing) this.#align(wanted);
    }
    this.#refreshing = false;
  }

  #align(wanted: Map<string, LinkEndpoint>): void {
    for (const [key, address] of this.#addresses) {
      const sibling = !this.#configured.includes(address.endpoint.url);
      if (wanted.has(key) || (sibling && address.link !== null)) continue;
      this.#addresses.delete(key);
      address.vanish();
    }
    for (const [key, endpoint] of wanted) {
      const known = this.#addresses.get(key);
      if (known !== undefined) known.endpoint = endpoint;
      else if (this.#addresses.size < MAX_ENDPOINTS) this.#add(endpoint);
    }
  }

  #add(endpoint: LinkEndpoint): void {
    const { runtime, secret, trust = null } = this.#options;
    const { maxFrameBytes } = this.#limits;
    const address = new LinkAddress(endpoint, { runtime, secret, trust, maxFrameBytes }, this);
    this.#addresses.set(endpoint.key, address);
    address.dial();
  }

  // ── of an address ────────────────────────────────────────────────────────────────────────────────────

  attempt(address: LinkAddress): boolean {
    const { routerId } = address;
    const elsewhere = routerId !== null && this.#linkTo(routerId, null) !== null;
    if (this.#closing || elsewhere) return false;
    this.#counts.attempts += 1;
    return true;
  }

  keeps(address: LinkAddress): boolean {
    return !this.#closing && this.#addresses.get(address.endpoint.key) === address;
  }

  isLinked(url: string): boolean {
    return this.links().some((view) => view.url === url && view.routerId !== null);
  }

  opened(address: LinkAddress, connection: { socket: WebSocket; stream: Writable }): void {
    const { runtime } = this.#options;
    this.#opened += 1;
    const link = `out-${this.#opened}` as LinkId;
    const linkSocket = new LinkSocket({
      ...connection,
      clock: runtime.clock,
      timers: runtime.timers,
      limits: this.#limits,
      onFrame: (frame) => this.#receive(live, frame),
      onFault: (fault) => this.#fault(live, fault),
      onEnd: (reason) => this.#end(live, reason),
    });
    const live: LiveLink = {
      link,
      socket: linkSocket,
      address,
      cancelWelcome: runtime.timers.after(WELCOME_TIMEOUT_MS, () => {
        if (!live.welcomed) linkSocket.close('hello_timeout');
      }),
      openedMs: runtime.clock.nowMs(),
      welcomed: false,
      siblings: [],
    };
    address.link = linkSocket;
    this.#live.set(link, live);
    this.#options.onUp(link);
  }

  // ── of a link ────────────────────────────────────────────────────────────────────────────────────────

  #receive(live: LiveLink, frame: Uint8Array): void {
    const decoded = this.#options.words.decode(frame);
    if (!decoded.ok) {
      if (decoded.reason === 'unknown_kind') this.#counts.unknownKinds += 1;
      else this.#malformed(live, decoded.detail);
      return;
    }
    this.#counts.unknownFields += decoded.unknownFields;
    const message = decoded.message;
    if (isWelcome(message)) return this.#welcome(live, message);
    if (!live.welcomed) return this.#malformed(live, `${message.kind} before the welcome`);
    this.#options.onMessage(live.link, message);
  }

  #malformed(live: LiveLink, detail: string): void {
    this.#fault(live, { reason: 'bad_frame', detail });
    live.socket.close('bad_frame');
  }

  /** Whatever else is wrong is said when the link is down. */
  #fault(live: LiveLink, { reason, detail }: LinkFault): void {
    if (reason !== 'bad_frame') return;
    this.#counts.malformed += 1;
    live.address.log('warn', 'link closed: bad frame', { detail });
  }

  #welcome(live: LiveLink, welcome: W): void {
    const { address } = live;
    const { words } = this.#options;
    const { routerId, software } = welcome;
    if (welcome.protocol !== words.version) return live.socket.close('protocol_too_old');
    if (live.welcomed && address.routerId !== routerId) {
      return this.#malformed(live, 'a welcome of another router');
    }
    live.cancelWelcome();
    live.siblings = siblingUrls(words.siblings(welcome), address.endpoint.url);
    if (routerId === this.#options.self) return this.#meetSelf(live);
    const older = this.#linkTo(routerId, live);
    live.welcomed = true;
    address.leadsTo(routerId, software);
    this.#options.onMessage(live.link, welcome);
    older?.socket.close('duplicate');
    void this.#refresh();
  }

  #meetSelf({ socket, address, siblings }: LiveLink): void {
    address.selfSiblings = siblings;
    socket.close('duplicate');
    void this.#refresh();
  }

  /** The welcomed link to this router process other than `except`. */
  #linkTo(routerId: RouterId, except: LiveLink | null): LiveLink | null {
    for (const live of this.#live.values()) {
      if (live !== except && live.welcomed && live.address.routerId === routerId) return live;
    }
    return null;
  }

  #end(live: LiveLink, reason: LinkEnd): void {
    const { address } = live;
    live.cancelWelcome();
    this.#live.delete(live.link);
    address.link = null;
    const livedMs = this.#options.runtime.clock.nowMs() - live.openedMs;
    if (live.welcomed && livedMs >= SETTLED_MS) address.settled();
    this.#options.onDown(live.link, reason);
    address.retry(reason);
    if (live.welcomed) this.#wake(address);
  }

  /** Other addresses of a router process whose link has ended need rest no longer. */
  #wake(ended: LinkAddress): void {
    for (const address of this.#addresses.values()) {
      const same = address !== ended && address.routerId === ended.routerId;
      if (same && address.rests) address.dial();
    }
  }
}

/** What is linked over TLS is not led to addresses without it: the secret goes to each. */
function siblingUrls(siblings: readonly string[], from: URL): URL[] {
  const urls = siblings.slice(0, MAX_SIBLINGS).map((text) => parseLinkUrl(text));
  const safe = from.protocol === 'wss:' ? ['wss:'] : ['ws:', 'wss:'];
  return urls.filter((url) => url !== null && safe.includes(url.protocol)) as URL[];
}
