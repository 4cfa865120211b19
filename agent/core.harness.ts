// Drives an AgentCore in virtual time for tests: an engine that answers by a cost curve, links that are lists.

import { AgentCore } from './core.ts';
import { absentRank, NO_EVIDENCE } from './events.ts';
import type {
  AgentEffect,
  AgentEngine,
  AgentEvent,
  GenerateOrder,
  RankScrape,
  ScrapeResult,
} from './events.ts';
import { seededRandom } from '../shared/lib/random.ts';
import { prefillMs } from '../shared/model/cost-curve.ts';
import type { CostCurve } from '../shared/model/cost-curve.ts';
import type { AgentId, LinkId, PoolId, ReplicaId, RouterId } from '../shared/model/ids.ts';
import type { ReplicaReport } from '../shared/model/report.ts';
import { AGENT_DEFAULTS } from '../shared/model/settings.ts';
import type { AgentSettings } from '../shared/model/settings.ts';
import type {
  AgentMessage,
  LeaseFacts,
  ResumeState,
  RouterMessage,
} from '../shared/protocol/messages.ts';

export const REPLICA = '10.0.0.1:8000' as ReplicaId;
export const POOL = 'pool-a' as PoolId;
const ENGINE: AgentEngine = { replica: REPLICA, advertiseUrl: 'http://10.0.0.1:8000', ranks: 1 };

export const CURVE: CostCurve = {
  baseMs: 12,
  frontMsPerToken: 0.002,
  linearMsPerToken: 0.08,
  contextMsPerToken2: 4e-6,
  stepTokens: 2_048,
};

/** An engine as the agent's shell would show it. */
export class FakeEngine {
  mode: 'up' | 'refused' | 'frozen' | 'loading' | 'stopping' | 'strange' = 'up';
  startTimeSeconds: number | null = 1_000;
  evidence: 'alive' | 'absent' | 'unknown' = 'unknown';
  maxModelLen = 32_768;
  /** Ranks in the exposition; null: all that the agent was started for. */
  ranksShown: number | null = null;
  /** Ranks whose header the engine refuses. */
  ranksUnknown: readonly number[] = [];
  rank: RankScrape = {
    ...absentRank(0),
    running: 0,
    waiting: 0,
    kvUsageRatio: 0.1,
    kvCapacityTokens: 100_000,
    blockTokens: 16,
    asleep: false,
    promptTokensTotal: 0,
    computedTokensTotal: 0,
    cachedTokensTotal: 0,
    generationTokensTotal: 0,
    preemptionsTotal: 0,
    firstTokensTotal: 0,
    itlSumSeconds: 0,
    itlCount: 0,
  };
  readonly orders: GenerateOrder[] = [];
  private readonly texts: string[] = [];

  add(change: Partial<Record<keyof RankScrape, number>>): void {
    const rank: Record<string, unknown> = { ...this.rank };
    for (const [name, by] of Object.entries(change)) rank[name] = Number(rank[name] ?? 0) + by;
    this.rank = rank as unknown as RankScrape;
  }

  /** Prompt tokens: 1.5 a word; cached: the longest text seen before that this one extends. */
  generate(order: GenerateOrder): { ttftMs: number; promptTokens: number; cachedTokens: number } {
    const tokens = (text: string): number => Math.round(text.split(' ').length * 1.5);
    const promptTokens = tokens(order.prompt);
    const known = this.texts.filter((text) => order.prompt.startsWith(text));
    const cachedTokens = Math.max(0, ...known.map((text) => Math.floor(tokens(text) / 16) * 16));
    this.texts.push(order.prompt);
    this.add({ promptTokensTotal: promptTokens, firstTokensTotal: 1, generationTokensTotal: 1 });
    return {
      ttftMs: prefillMs(CURVE, promptTokens - cachedTokens, cachedTokens),
      promptTokens,
      cachedTokens,
    };
  }
}

interface Later {
  readonly atMs: number;
  readonly event: AgentEvent;
}

export class Harness {
  nowMs = 1_000;
  readonly core: AgentCore;
  readonly engine: FakeEngine;
  readonly sent: {
    readonly atMs: number;
    readonly link: LinkId;
    readonly message: AgentMessage;
  }[] = [];
  readonly logs: string[] = [];
  /** Of the engine, as they were logged. */
  readonly phases: unknown[] = [];
  /** Numbers from which KV batches were asked for again. */
  readonly replays: number[] = [];
  /** Ranks left, as often as it was said. */
  readonly fewerRanks: number[] = [];
  wakes = 0;
  private readonly ranks: number;
  private later: Later[] = [];

  constructor(
    options: {
      readonly settings?: Partial<AgentSettings>;
      readonly engine?: FakeEngine;
      readonly seed?: number;
      readonly startMs?: number;
      /** All of them tell the same figures. */
      readonly ranks?: number;
    } = {},
  ) {
    this.nowMs = options.startMs ?? 1_000;
    this.engine = options.engine ?? new FakeEngine();
    this.ranks = options.ranks ?? 1;
    const seed = options.seed ?? 1;
    this.core = new AgentCore({
      agentId: `agent-${seed}` as AgentId,
      pool: POOL,
      engines: [{ ...ENGINE, ranks: this.ranks }],
      settings: { ...AGENT_DEFAULTS, ...options.settings },
      random: seededRandom(seed),
      software: 'test',
      proofPort: null,
      wallMs: () => 0,
    });
    this.deliver({ kind: 'start' });
  }

  deliver(event: AgentEvent): void {
    for (const effect of this.core.handle(event, this.nowMs)) this.carryOut(effect);
  }

  /** Lets virtual time pass. */
  advance(ms: number): void {
    const endMs = this.nowMs + ms;
    for (;;) {
      this.later.sort((a, b) => a.atMs - b.atMs);
      const wakeMs = Math.max(this.nowMs, this.core.nextWakeMs() ?? Infinity);
      const first = this.later[0];
      const nextMs = Math.min(wakeMs, first?.atMs ?? Infinity);
      if (nextMs > endMs) break;
      this.nowMs = nextMs;
      this.wakes += 1;
      if (this.wakes > 200_000) throw new Error('the core asks for ticks without end');
      if (first !== undefined && first.atMs <= wakeMs) {
        this.later.shift();
        this.deliver(first.event);
      } else {
        this.deliver({ kind: 'tick' });
      }
    }
    this.nowMs = endMs;
  }

  link(
    name: string,
    options: {
      router?: string;
      resume?: readonly ResumeState[];
      features?: readonly string[];
    } = {},
  ): LinkId {
    const link = name as LinkId;
    this.deliver({ kind: 'linkUp', link });
    this.say(link, {
      kind: 'welcome',
      protocol: 1,
      features: options.features ?? [],
      routerId: (options.router ?? `router-${name}`) as RouterId,
      software: 'test',
      siblings: [],
      minReportIntervalMs: 50,
      resume: options.resume ?? [],
      wallMs: 0,
    });
    return link;
  }

  say(link: LinkId, message: RouterMessage): void {
    this.deliver({ kind: 'message', link, message });
  }

  /** The last report sent over a link. */
  report(link: LinkId): ReplicaReport {
    const found = this.sent.findLast(
      (each) => each.link === link && each.message.kind === 'report',
    );
    if (found?.message.kind !== 'report') throw new Error(`no report on ${link}`);
    return found.message.report;
  }

  private carryOut(effect: AgentEffect): void {
    if (effect.kind === 'send') {
      this.sent.push({ atMs: this.nowMs, link: effect.link, message: effect.message });
    } else if (effect.kind === 'log') {
      this.logs.push(effect.code);
      if (effect.code === 'phase') this.phases.push(effect.fields['to']);
    } else if (effect.kind === 'fewerRanks') {
      this.fewerRanks.push(effect.ranks);
    } else if (effect.kind === 'replayKv') {
      this.replays.push(effect.fromSeq);
    } else if (effect.kind === 'scrape') {
      this.answerScrape();
    } else if (effect.kind === 'identify') {
      const models = [{ id: 'm', maxModelLen: this.engine.maxModelLen, loras: [] }];
      const identity = { kind: 'vllm' as const, version: '0.32.0', models };
      this.after(2, { kind: 'identified', replica: REPLICA, result: { kind: 'ok', identity } });
    } else if (effect.kind === 'generate') {
      this.answerGenerate(effect.order);
    }
  }

  private answerScrape(): void {
    const { engine } = this;
    const sentMs = this.nowMs;
    const { startTimeSeconds } = engine;
    const evidence = { ...NO_EVIDENCE, state: engine.evidence };
    const scrape = {
      startTimeSeconds,
      ranks: Array.from({ length: engine.ranksShown ?? this.ranks }, (_, rank) => ({
        ...engine.rank,
        rank,
      })),
    };
    const result = scrapeOf(engine.mode) ?? ({ kind: 'ok', scrape } as const);
    this.after(3, { kind: 'scraped', replica: REPLICA, sentMs, result, evidence });
  }

  private answerGenerate(order: GenerateOrder): void {
    const { engine } = this;
    engine.orders.push(order);
    const reply = (
      ms: number,
      outcome: Extract<AgentEvent, { kind: 'generated' }>['outcome'],
    ): void => this.after(ms, { kind: 'generated', replica: REPLICA, id: order.id, outcome });
    if (engine.ranksUnknown.includes(order.rank)) reply(1, { kind: 'failed', cause: 'rank' });
    else if (engine.mode === 'refused') reply(1, { kind: 'failed', cause: 'refused' });
    else if (engine.mode === 'frozen')
      reply(order.deadlineMs, { kind: 'failed', cause: 'timeout' });
    else {
      const answer = engine.generate(order);
      reply(answer.ttftMs + 10, { kind: 'ok', ...answer });
    }
  }

  private after(ms: number, event: AgentEvent): void {
    this.later.push({ atMs: this.nowMs + ms, event });
  }
}

/** What an engine says that tells no figures. */
function scrapeOf(mode: FakeEngine['mode']): ScrapeResult | null {
  if (mode === 'refused') return { kind: 'refused' };
  if (mode === 'strange') return { kind: 'failed', detail: 'models: not a model list' };
  if (mode !== 'loading' && mode !== 'stopping') return null;
  return { kind: 'unready', stage: mode, detail: 'status 503' };
}

export function leaseFacts(lease: string, change: Partial<LeaseFacts> = {}): LeaseFacts {
  return {
    lease: lease as LeaseFacts['lease'],
    incarnation: null,
    promptTokens: 1_000,
    uncachedTokens: 1_000,
    matchedTokens: 0,
    promptBytes: 4_000,
    parts: {},
    streamed: true,
    maxTokens: null,
    chains: [],
    ...change,
  };
}
