// The shell of an agent's core in virtual time: scrapes, identities and generations come from simulated engines, links
// are dialled to every router and dialled again when they end.

import type { AgentId, LinkId, PoolId, ReplicaId } from '../../shared/model/ids.ts';
import type { AgentSettings } from '../../shared/model/settings.ts';
import type { AgentMessage, RouterMessage } from '../../shared/protocol/messages.ts';
import { AgentCore } from '../../agent/core.ts';
import type {
  AgentEffect,
  AgentEvent,
  GenerateOrder,
  GenerationOutcome,
  ProcessEvidence,
} from '../../agent/events.ts';
import type { WorldContext } from './context.ts';
import { DrivenCore } from './driven-core.ts';
import type { EngineHost } from './engine-host.ts';
import { VirtualLink, type LinkTiming, type Wire } from './link.ts';
import { describeAgentEffect, describeAgentEvent } from './narration.ts';
import type { RouterHost } from './router-host.ts';

export interface AgentHostOptions {
  readonly name: string;
  readonly context: WorldContext;
  readonly pool: PoolId;
  readonly engines: readonly EngineHost[];
  readonly routers: readonly RouterHost[];
  readonly settings: AgentSettings;
  readonly timing: LinkTiming;
  readonly wire: Wire | null;
  /** ms that an exposition takes, there and back. */
  readonly scrapeMs: number;
  /** ms before a lost or refused link is dialled again. */
  readonly redialMs: number;
  readonly evidence: (engine: EngineHost) => ProcessEvidence;
}

/** ms that a KV event takes to its agent. */
const KV_MS = 1;

export class AgentHost {
  readonly name: string;
  core: AgentCore | null = null;
  readonly #options: AgentHostOptions;
  readonly #context: WorldContext;
  readonly #links = new Map<LinkId, VirtualLink>();
  readonly #driven: DrivenCore<AgentEvent, AgentEffect>;
  #starts = 0;
  #dials = 0;
  /** Log codes by name. */
  readonly counts = new Map<string, number>();
  /** Every message sent, where a test wants to look. */
  onSend: ((link: LinkId, message: AgentMessage) => void) | null = null;

  constructor(options: AgentHostOptions) {
    this.name = options.name;
    this.#options = options;
    this.#context = options.context;
    this.#driven = new DrivenCore(options.context, {
      core: () => this.core,
      tick: { kind: 'tick' },
      carryOut: (effect) => this.#carryOut(effect),
      describe: (event, effects) =>
        `${this.name} ${describeAgentEvent(event)} → ${effects.map(describeAgentEffect).join(' ')}`,
    });
  }

  get up(): boolean {
    return this.core !== null;
  }

  get links(): readonly VirtualLink[] {
    return [...this.#links.values()];
  }

  start(): void {
    this.#starts++;
    const { engines, pool, settings } = this.#options;
    this.core = new AgentCore({
      agentId: `${this.name}-${this.#starts}` as AgentId,
      pool,
      engines: engines.map((engine) => ({
        replica: engine.replica,
        advertiseUrl: engine.url,
        ranks: engine.models.length,
      })),
      settings,
      random: this.#context.stream(`${this.name}/core/${this.#starts}`),
      software: 'sim',
      proofPort: null,
      wallMs: () => this.#context.timeline.nowMs,
    });
    this.#driven.handle({ kind: 'start' });
    for (const engine of engines) this.#hear(engine);
    for (const router of this.#options.routers) this.#dial(router);
  }

  /** The process dies; routers see its links close. */
  stop(): void {
    this.core = null;
    this.#starts++;
    this.#driven.arm();
    for (const link of this.#links.values()) link.cut();
    this.#links.clear();
  }

  #carryOut(effect: AgentEffect): void {
    switch (effect.kind) {
      case 'scrape':
        return this.#scrape(effect.replica);
      case 'identify':
        return this.#identify(effect.replica);
      case 'generate':
        return this.#generate(effect.order);
      case 'replayKv':
        return this.#replay(effect.replica, effect.rank, effect.fromSeq);
      case 'send':
        this.onSend?.(effect.link, effect.message);
        return this.#links.get(effect.link)?.fromAgent(effect.message);
      case 'close':
        return this.#links.get(effect.link)?.cut(false);
      case 'fewerRanks':
        // A host's engine keeps the ranks that it began with, and refuses none of them.
        throw new Error(`${effect.replica} has lost ranks`);
      case 'limit':
        this.counts.set(effect.limit, (this.counts.get(effect.limit) ?? 0) + 1);
        return;
      case 'log':
        this.counts.set(effect.code, (this.counts.get(effect.code) ?? 0) + 1);
    }
  }

  #hear({ replica, kvFeeds }: EngineHost): void {
    kvFeeds.forEach((feed, rank) => {
      feed.listener = (batch) =>
        this.#alive(KV_MS, () =>
          this.#driven.handle({ kind: 'kvEvents', replica, rank, batches: [batch] }),
        );
    });
  }

  #replay(replica: ReplicaId, rank: number, fromSeq: number): void {
    const feed = this.#engine(replica).kvFeeds[rank];
    this.#alive(KV_MS, () => {
      const batches = feed?.replay(fromSeq) ?? [];
      const answer = { kind: 'kvReplay', replica, rank, fromSeq, batches, done: true } as const;
      this.#alive(KV_MS, () => this.#driven.handle(answer));
    });
  }

  /** The engine answers with what was true when the exposition reached it. */
  #scrape(replica: ReplicaId): void {
    const sentMs = this.#context.timeline.nowMs;
    const engine = this.#engine(replica);
    const halfMs = this.#options.scrapeMs / 2;
    this.#alive(halfMs, () => {
      const result = engine.scrape();
      const evidence = this.#options.evidence(engine);
      this.#alive(halfMs, () =>
        this.#driven.handle({ kind: 'scraped', replica, sentMs, result, evidence }),
      );
    });
  }

  #identify(replica: ReplicaId): void {
    const engine = this.#engine(replica);
    this.#alive(this.#options.scrapeMs, () =>
      this.#driven.handle({ kind: 'identified', replica, result: engine.identify() }),
    );
  }

  #generate(order: GenerateOrder): void {
    const engine = this.#engine(order.replica);
    const id = `${this.name}/${this.#starts}/${order.id}`;
    const sentMs = this.#context.timeline.nowMs;
    let ttftMs: number | null = null;
    let done = false;
    const answer = (outcome: GenerationOutcome): void => {
      if (done) return;
      done = true;
      this.#context.timeline.cancel(deadline);
      this.#alive(0, () =>
        this.#driven.handle({ kind: 'generated', replica: order.replica, id: order.id, outcome }),
      );
    };
    const deadline = this.#context.timeline.after(order.deadlineMs, () => {
      engine.abort(id);
      answer({ kind: 'failed', cause: 'timeout' });
    });
    engine.call({
      id,
      tokenIds: engine.tokenise(order.prompt),
      answerIds: new Uint32Array(order.maxTokens),
      salt: '',
      rank: order.rank,
      firstToken: () => {
        ttftMs = this.#context.timeline.nowMs - sentMs;
      },
      end: (end) => {
        if (end.kind === 'complete') {
          answer({
            kind: 'ok',
            ttftMs: ttftMs ?? this.#context.timeline.nowMs - sentMs,
            promptTokens: end.usage.promptTokens,
            cachedTokens: end.usage.cachedTokens,
          });
        } else if (end.kind === 'refused') answer({ kind: 'failed', cause: 'refused' });
        else answer({ kind: 'failed', cause: end.kind === 'clientError' ? 'status' : 'broken' });
      },
    });
  }

  #dial(router: RouterHost): void {
    const { timing, timeline } = { timing: this.#options.timing, timeline: this.#context.timeline };
    this.#alive(2 * timing.delayMs, () => {
      if (!router.up) {
        this.#alive(this.#options.redialMs, () => this.#dial(router));
        return;
      }
      const id = `${this.name}>${router.name}/${this.#dials++}` as LinkId;
      const link: VirtualLink = new VirtualLink({
        id,
        timeline,
        timing,
        random: this.#context.stream(id),
        wire: this.#options.wire,
        ends: {
          toAgent: (message) => this.#fromRouter(id, message),
          toRouter: (message) => router.fromAgent(id, message),
          agentDown: () => this.#linkDown(id, router),
          routerDown: () => router.linkDown(id),
        },
      });
      this.#links.set(id, link);
      router.linked(link);
      this.#driven.handle({ kind: 'linkUp', link: id });
    });
  }

  #fromRouter(link: LinkId, message: RouterMessage): void {
    if (this.#links.has(link)) this.#driven.handle({ kind: 'message', link, message });
  }

  #linkDown(link: LinkId, router: RouterHost): void {
    if (!this.#links.delete(link)) return;
    this.#driven.handle({ kind: 'linkDown', link });
    this.#alive(this.#options.redialMs, () => this.#dial(router));
  }

  #engine(replica: ReplicaId): EngineHost {
    const engine = this.#options.engines.find((candidate) => candidate.replica === replica);
    if (engine === undefined) throw new Error(`${this.name}: no engine ${replica}`);
    return engine;
  }

  /** After a delay, unless the process has died meanwhile. */
  #alive(delayMs: number, task: () => void): void {
    const life = this.#starts;
    this.#context.timeline.after(delayMs, () => {
      if (this.#starts === life) task();
    });
  }
}
