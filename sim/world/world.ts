// A region in virtual time: simulated engines, the real agent and router cores beside them, links, clients. Everything
// follows from the options and the seed.

import type { PoolId } from '../../shared/model/ids.ts';
import {
  AGENT_DEFAULTS,
  REGIONAL_DEFAULTS,
  type AgentSettings,
  type RegionalSettings,
} from '../../shared/model/settings.ts';
import { NO_EVIDENCE, type ProcessEvidence } from '../../agent/events.ts';
import type { RegionalCoreConfig, UplinkConfig } from '../../router/regional/events.ts';
import type { EngineProfile } from '../engine/profiles.ts';
import { Conversations, type ConversationShape } from '../workloads/conversations.ts';
import { AgentHost } from './agent-host.ts';
import { Clients } from './clients.ts';
import { WorldContext } from './context.ts';
import { EngineHost } from './engine-host.ts';
import type { LinkTiming, Wire } from './link.ts';
import { Recorder } from './recorder.ts';
import { RouterHost } from './router-host.ts';
import { SiblingLinks } from './sibling-links.ts';

export interface WorldOptions {
  readonly seed: number;
  readonly profile: EngineProfile;
  /** Of the replicas in turn, over again where there are more; all have `profile` unless given. */
  readonly profiles?: readonly EngineProfile[];
  readonly replicas: number;
  /** Data-parallel ranks of each engine. */
  readonly ranks: number;
  readonly routers: number;
  /** Engines beside one agent. */
  readonly enginesPerAgent: number;
  readonly links: LinkTiming;
  /** ms from a router to an engine. */
  readonly netMs: number;
  readonly scrapeMs: number;
  readonly redialMs: number;
  readonly agent: Partial<AgentSettings>;
  readonly router: Partial<RegionalSettings>;
  /** Carries every message through a codec; null passes the objects on. */
  readonly wire: Wire | null;
  /** What an agent can see of the engine's process beside its port. */
  readonly processVisible: boolean;
  /** Expositions carry the engine process's start time. */
  readonly tellsStartTime: boolean;
  /** Engines publish KV events, and agents hear them. */
  readonly kvEvents: boolean;
  /** Time that it shares with other worlds; absent: its own. */
  readonly context?: WorldContext;
  /** Of the links between routers; null: they are cut. */
  readonly siblings: LinkTiming | null;
  /** What its routers are to global routers; absent: nothing. */
  readonly uplink?: UplinkConfig;
}

export const WORLD_DEFAULTS: Omit<WorldOptions, 'seed' | 'profile' | 'replicas'> = {
  ranks: 1,
  routers: 1,
  enginesPerAgent: 1,
  links: { delayMs: 0.3, jitterMs: 0.5 },
  netMs: 0.3,
  scrapeMs: 6,
  redialMs: 200,
  agent: {},
  router: {},
  wire: null,
  processVisible: true,
  tellsStartTime: true,
  kvEvents: false,
  siblings: { delayMs: 0.3, jitterMs: 0.5 },
};

export const WORLD_MODEL = 'sim-model';
export const WORLD_POOL = 'pool' as PoolId;

export class World {
  readonly context: WorldContext;
  readonly recorder = new Recorder();
  readonly engines: readonly EngineHost[];
  readonly agents: readonly AgentHost[];
  readonly routers: readonly RouterHost[];
  /** Between its routers; null where they are cut. */
  readonly siblings: SiblingLinks | null;
  readonly #options: WorldOptions;
  #clients = 0;

  constructor(
    options: Partial<WorldOptions> & Pick<WorldOptions, 'seed' | 'profile' | 'replicas'>,
  ) {
    const full: WorldOptions = { ...WORLD_DEFAULTS, ...options };
    this.#options = full;
    this.context = full.context ?? new WorldContext(full.seed);
    this.engines = Array.from({ length: full.replicas }, (_, index) => this.#engine(index));
    this.routers = Array.from({ length: full.routers }, (_, index) => this.#router(index));
    const agents = Math.ceil(full.replicas / full.enginesPerAgent);
    this.agents = Array.from({ length: agents }, (_, index) => this.#agent(index));
    this.siblings = full.siblings === null ? null : new SiblingLinks(this.context, full.siblings);
    for (const router of this.routers) if (this.siblings !== null) router.joins(this.siblings);
    for (const router of this.routers) this.context.addCheck(() => router.check());
    for (const router of this.routers) router.start();
    for (const agent of this.agents) agent.start();
  }

  get nowMs(): number {
    return this.context.timeline.nowMs;
  }

  /** Same options and seed, same hash. */
  get hash(): string {
    return this.context.log.hash;
  }

  clients(
    shape: ConversationShape,
    options: {
      clientDeadlineMs?: number | null;
      priority?: number;
      tries?: number;
      /** Those that these clients know; all unless given. */
      routers?: readonly RouterHost[];
    } = {},
  ): Clients {
    const name = `c${this.#clients++}-`;
    return new Clients({
      name,
      context: this.context,
      recorder: this.recorder,
      routers: options.routers ?? this.routers,
      conversations: new Conversations(shape, this.context.stream(`${name}/conversations`)),
      model: WORLD_MODEL,
      clientDeadlineMs: options.clientDeadlineMs ?? null,
      priority: options.priority ?? 0,
      tries: options.tries ?? 5,
    });
  }

  run(forMs: number): void {
    const untilMs = this.nowMs + forMs;
    this.context.guard(() => {
      while (this.context.timeline.step(untilMs));
    });
    this.context.timeline.settle(untilMs);
  }

  /** Runs until `condition` holds, looking every `everyMs`; throws where it does not within `withinMs`. */
  runUntil(condition: () => boolean, withinMs: number, everyMs = 10): void {
    const endMs = this.nowMs + withinMs;
    while (!condition()) {
      if (this.nowMs >= endMs) throw new Error(`not reached within ${withinMs} ms`);
      this.run(everyMs);
    }
  }

  /** Runs until every router sees every replica ready. */
  runUntilReady(withinMs = 600_000): void {
    const ready = (): boolean =>
      this.routers.every((router) => router.readyReplicas === this.engines.length);
    this.runUntil(ready, withinMs, 250);
  }

  get openRequests(): number {
    return this.routers.reduce((total, router) => total + router.openRequests, 0);
  }

  #engine(index: number): EngineHost {
    const host = `10.0.0.${index + 1}:8000`;
    const { profile, profiles = [] } = this.#options;
    return new EngineHost({
      host,
      model: WORLD_MODEL,
      profile: profiles[index % profiles.length] ?? profile,
      context: this.context,
      tellsStartTime: this.#options.tellsStartTime,
      kvEvents: this.#options.kvEvents,
      ranks: this.#options.ranks,
    });
  }

  #router(index: number): RouterHost {
    const config: RegionalCoreConfig = {
      settings: { ...REGIONAL_DEFAULTS, ...this.#options.router },
      pools: [{ id: WORLD_POOL, models: [], aliases: {} }],
      siblings: [],
      ...(this.#options.uplink === undefined ? {} : { uplink: this.#options.uplink }),
    };
    return new RouterHost({
      name: `${this.#options.uplink?.region ?? ''}router-${index}`,
      context: this.context,
      config,
      netMs: this.#options.netMs,
      engineAt: (url) => this.engines.find((engine) => engine.url === url) ?? null,
    });
  }

  #agent(index: number): AgentHost {
    const { enginesPerAgent, links, wire, scrapeMs, redialMs, processVisible } = this.#options;
    const first = index * enginesPerAgent;
    return new AgentHost({
      name: `agent-${index}`,
      context: this.context,
      pool: WORLD_POOL,
      engines: this.engines.slice(first, first + enginesPerAgent),
      routers: this.routers,
      settings: { ...AGENT_DEFAULTS, ...this.#options.agent },
      timing: links,
      wire,
      scrapeMs,
      redialMs,
      evidence: (engine): ProcessEvidence =>
        processVisible
          ? { ...NO_EVIDENCE, state: engine.processAlive ? 'alive' : 'absent' }
          : NO_EVIDENCE,
    });
  }
}
