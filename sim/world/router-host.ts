// The shell of a regional router's core in virtual time: requests and links become its events, its effects become
// attempts and messages.
//
// Invariant, checked after every event: the core holds one lease for each attempt that this shell has open.

import type { Random } from '../../shared/lib/random.ts';
import type { LinkId, ReplicaId, RequestId, RouterId } from '../../shared/model/ids.ts';
import type { AgentMessage, RouterMessage } from '../../shared/protocol/messages.ts';
import type {
  RegionChildMessage,
  RegionParentMessage,
} from '../../shared/protocol/region-messages.ts';
import { RegionalCore, type ReplicaStatus, type TargetStatus } from '../../router/regional/core.ts';
import type {
  Attempt,
  RegionalCoreConfig,
  RouterEffect,
  RouterEvent,
} from '../../router/regional/events.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import {
  Attempts,
  requestEndOf,
  type AttemptEnd,
  type RequestEnd,
  type RequestWork,
} from './attempts.ts';
import type { WorldContext } from './context.ts';
import { DrivenCore } from './driven-core.ts';
import type { EngineHost } from './engine-host.ts';
import type { VirtualLink } from './link.ts';
import type { SiblingLinks } from './sibling-links.ts';
import { describeRouterEffect, describeRouterEvent } from './narration.ts';

export interface RequestListener {
  attempt(attempt: Attempt): void;
  firstToken(): void;
  end(end: RequestEnd): void;
}

/** A link to a global router, seen from here. */
export interface UpwardLink {
  readonly id: LinkId;
  up(message: RegionChildMessage): void;
  cut(): void;
}

export interface RouterHostOptions {
  readonly name: string;
  readonly context: WorldContext;
  readonly config: RegionalCoreConfig;
  /** ms from here to an engine. */
  readonly netMs: number;
  engineAt(url: string): EngineHost | null;
}

type SiblingEvent = Extract<RouterEvent, { readonly kind: `sibling${string}` }>;

interface OpenRequest {
  readonly request: RouteRequest;
  readonly work: RequestWork;
  readonly listener: RequestListener;
  /** Exactly one of queued, attempted or neither (then an effect is due). */
  state: 'new' | 'queued' | 'attempt';
}

export class RouterHost {
  readonly name: string;
  core: RegionalCore | null = null;
  readonly #options: RouterHostOptions;
  readonly #context: WorldContext;
  readonly #links = new Map<LinkId, VirtualLink>();
  readonly #greeted = new Set<LinkId>();
  readonly #globals = new Map<LinkId, UpwardLink>();
  readonly #requests = new Map<RequestId, OpenRequest>();
  readonly #attempts: Attempts;
  readonly #driven: DrivenCore<RouterEvent, RouterEffect>;
  #siblings: SiblingLinks | null = null;
  #starts = 0;
  /** What the core reported by name: limits reached and log codes. */
  readonly counts = new Map<string, number>();

  /** Every message sent and every one received, where a test wants to look. */
  onSend: ((link: LinkId, message: RouterMessage) => void) | null = null;
  onReceive: ((link: LinkId, message: AgentMessage) => void) | null = null;

  constructor(options: RouterHostOptions) {
    this.name = options.name;
    this.#options = options;
    this.#context = options.context;
    this.#driven = new DrivenCore(options.context, {
      core: () => this.core,
      tick: { kind: 'tick' },
      carryOut: (effect) => this.#carryOut(effect),
      describe: (event, effects) =>
        `${this.name} ${describeRouterEvent(event)} → ${effects.map(describeRouterEffect).join(' ')}`,
    });
    this.#attempts = new Attempts({
      context: options.context,
      netMs: options.netMs,
      engineAt: (url) => options.engineAt(url),
      firstToken: (attempt) => this.#firstToken(attempt),
      firstTokenLate: (lease) => this.#driven.handle({ kind: 'firstTokenLate', lease }),
      ended: (end) => this.#attemptEnded(end),
    });
  }

  get up(): boolean {
    return this.core !== null;
  }

  get openRequests(): number {
    return this.#requests.size;
  }

  /** Its region's other routers, from its next start on. */
  joins(siblings: SiblingLinks): void {
    this.#siblings = siblings;
  }

  /** As others know its process. */
  get id(): RouterId {
    return `${this.name}-${this.#starts}` as RouterId;
  }

  start(): void {
    this.#starts++;
    const random: Random = this.#context.stream(`${this.name}/core/${this.#starts}`);
    this.core = new RegionalCore({
      routerId: this.id,
      software: 'sim',
      config: this.#options.config,
      random,
      wallMs: () => this.#context.timeline.nowMs,
    });
    this.#driven.arm();
    this.#siblings?.started(this);
  }

  /**
   * The process dies: its clients and engines see closed sockets, its agents a closed link, where its host is still there
   * to close it.
   */
  stop(unheard = false): void {
    this.core = null;
    this.#driven.arm();
    this.#attempts.drop();
    this.#siblings?.stopped(this);
    if (!unheard) for (const link of this.#links.values()) link.cut();
    this.#links.clear();
    this.#greeted.clear();
    const lost = [...this.#requests.values()];
    this.#requests.clear();
    for (const open of lost) open.listener.end({ kind: 'lost' });
  }

  arrive(request: RouteRequest, work: RequestWork, listener: RequestListener): void {
    if (this.core === null) {
      listener.end({ kind: 'lost' });
      return;
    }
    this.#requests.set(request.id, { request, work, listener, state: 'new' });
    this.#driven.handle({ kind: 'arrived', request });
    this.#assertPlaced(request.id);
  }

  clientGone(request: RequestId): void {
    const open = this.#requests.get(request);
    if (open === undefined) return;
    const queued = open.state === 'queued';
    if (queued) this.#requests.delete(request);
    this.#driven.handle({ kind: 'clientGone', request });
    if (queued) open.listener.end({ kind: 'clientGone' });
  }

  /** A new connection: the router hears of it by the agent's hello. */
  linked(link: VirtualLink): void {
    this.#links.set(link.id, link);
  }

  fromAgent(link: LinkId, message: AgentMessage): void {
    if (!this.#links.has(link)) return;
    this.onReceive?.(link, message);
    if (message.kind === 'hello') {
      this.#greeted.add(link);
      this.#driven.handle({ kind: 'linkUp', link, hello: message });
    } else if (this.#greeted.has(link)) {
      this.#driven.handle({ kind: 'message', link, message });
    }
  }

  linkDown(link: LinkId): void {
    if (!this.#links.delete(link) || !this.#greeted.delete(link)) return;
    this.#driven.handle({ kind: 'linkDown', link });
  }

  globalLinked(link: UpwardLink): void {
    this.#globals.set(link.id, link);
    this.#driven.handle({ kind: 'globalUp', link: link.id });
  }

  fromGlobal(link: LinkId, message: RegionParentMessage): void {
    if (this.#globals.has(link)) this.#driven.handle({ kind: 'globalMessage', link, message });
  }

  globalDown(link: LinkId): void {
    if (this.#globals.delete(link)) this.#driven.handle({ kind: 'globalDown', link });
  }

  /** What becomes of a link to or from another router of its region. */
  sibling(event: SiblingEvent): void {
    this.#driven.handle(event);
  }

  /** How the core sees a replica's only rank now; null where it does not know it. */
  target(replica: ReplicaId): TargetStatus | null {
    return this.#replica(replica)?.targets[0] ?? null;
  }

  /** A link to the replica's agent stands, as far as the core knows. */
  connected(replica: ReplicaId): boolean {
    return this.#replica(replica)?.connected ?? false;
  }

  get readyReplicas(): number {
    const status = this.core?.status(this.#context.timeline.nowMs);
    return (status?.pools ?? []).reduce((total, pool) => total + pool.ready, 0);
  }

  get queued(): number {
    const status = this.core?.status(this.#context.timeline.nowMs);
    return (status?.pools ?? []).reduce((total, pool) => total + pool.queue.requests, 0);
  }

  /** Throws where the core's leases and this shell's attempts disagree. */
  check(): void {
    const leases = this.core?.leaseCount() ?? 0;
    if (leases !== this.#attempts.size) {
      throw new Error(`${this.name}: ${leases} leases for ${this.#attempts.size} open attempts`);
    }
  }

  #replica(replica: ReplicaId): ReplicaStatus | null {
    const status = this.core?.status(this.#context.timeline.nowMs);
    for (const pool of status?.pools ?? []) {
      const found = pool.replicas.find((candidate) => candidate.id === replica);
      if (found !== undefined) return found;
    }
    return null;
  }

  #carryOut(effect: RouterEffect): void {
    switch (effect.kind) {
      case 'attempt':
        return this.#begin(effect.attempt);
      case 'queued':
        return this.#queued(effect.request);
      case 'refuse':
        return this.#finish(effect.request, {
          kind: 'refused',
          code: effect.code,
          retryAfterMs: effect.retryAfterMs,
        });
      case 'abort':
        return this.#attempts.abort(effect.lease, effect.reason);
      case 'extend':
        return this.#attempts.extend(effect.lease, effect.timeoutMs);
      case 'send':
        this.onSend?.(effect.link, effect.message);
        return this.#links.get(effect.link)?.fromRouter(effect.message);
      case 'close':
        return this.#links.get(effect.link)?.cut(false);
      case 'sendGlobal':
        return this.#globals.get(effect.link)?.up(effect.message);
      case 'closeGlobal':
        return this.#globals.get(effect.link)?.cut();
      case 'sendSibling':
        return this.#siblings?.send(this, effect.link, effect.message);
      case 'tellSiblings':
        return this.#siblings?.tell(this, effect.message);
      case 'closeSibling':
        return this.#siblings?.close(effect.link);
      case 'probe':
        return this.#probe(effect.replica, effect.url);
      case 'limit':
        return this.#count(`limit:${effect.limit}`);
      case 'log':
        return this.#count(`log:${effect.code}`);
    }
  }

  #count(name: string): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }

  #begin(attempt: Attempt): void {
    const open = this.#requests.get(attempt.request);
    if (open === undefined) throw new Error(`${attempt.lease}: an attempt for no request`);
    if (open.state === 'attempt') throw new Error(`${attempt.lease}: a second attempt at once`);
    open.state = 'attempt';
    open.listener.attempt(attempt);
    this.#attempts.begin(attempt, { work: open.work, streamed: open.request.stream });
  }

  #firstToken(attempt: Attempt): void {
    this.#requests.get(attempt.request)?.listener.firstToken();
    this.#driven.handle({ kind: 'firstToken', lease: attempt.lease });
  }

  #attemptEnded(ended: AttemptEnd): void {
    const { lease, request } = ended.attempt;
    const open = this.#requests.get(request);
    if (open !== undefined) open.state = 'new';
    const { result, committed } = ended;
    this.#driven.handle({ kind: 'attemptEnded', lease, result, committed });
    const end = requestEndOf(ended);
    if (end === null) this.#assertPlaced(request);
    else this.#finish(request, end);
  }

  #queued(request: RequestId): void {
    const open = this.#requests.get(request);
    if (open === undefined) throw new Error(`${request}: queued, and not open`);
    open.state = 'queued';
  }

  #finish(request: RequestId, end: RequestEnd): void {
    const open = this.#requests.get(request);
    if (open === undefined) throw new Error(`${request}: ended twice`);
    this.#requests.delete(request);
    open.listener.end(end);
  }

  #assertPlaced(request: RequestId): void {
    if (this.#requests.get(request)?.state === 'new') {
      throw new Error(`${request}: neither sent nor queued nor refused`);
    }
  }

  #probe(replica: ReplicaId, url: string): void {
    const engine = this.#options.engineAt(url);
    this.#later(() => {
      const answer = (ok: boolean): void =>
        this.#later(() => this.#driven.handle({ kind: 'probed', replica, ok }));
      if (engine === null || engine.unreachable) answer(false);
      else engine.probe(answer);
    });
  }

  /** After the network's delay, unless the process has died meanwhile. */
  #later(task: () => void): void {
    const life = this.#starts;
    this.#context.timeline.after(this.#options.netMs, () => {
      if (this.#starts === life) task();
    });
  }
}
