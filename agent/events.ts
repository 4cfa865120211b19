// What happens to an agent's core and what the core wants done. The shell and the simulator translate the
// world into these events and carry the effects out; neither decides anything.

import type { LinkId, ReplicaId, RouterId } from '../shared/model/ids.ts';
import type { EngineKind } from '../shared/model/engine-kind.ts';
import type { LoadProgress, ModelInfo } from '../shared/model/report.ts';
import type { LogLevel } from '../shared/errors.ts';
import type { KvBatch, KvEventsOptions } from './policy/kv-event.ts';
import type { GpuReading } from './policy/gpu-presence.ts';
import type { AgentMessage, CloseReason, RouterMessage } from '../shared/protocol/messages.ts';

/** An engine of this agent, as configured. */
export interface AgentEngine {
  readonly replica: ReplicaId;
  readonly advertiseUrl: string;
  readonly ranks: number;
}

/**
 * One rank's figures as its engine tells them. `null` is absent: neither zero nor full. Counters are totals since
 * the engine's start.
 */
export interface RankScrape {
  readonly rank: number;
  readonly running: number | null;
  readonly waiting: number | null;
  /** Requests that the engine takes at once, where it says so: batch slots, or fewer where it refuses earlier. */
  readonly runningMax: number | null;
  /** 0..1 */
  readonly kvUsageRatio: number | null;
  readonly kvCapacityTokens: number | null;
  readonly blockTokens: number | null;
  readonly asleep: boolean | null;
  /** Full prompts, cached tokens included. */
  readonly promptTokensTotal: number | null;
  /** Prompt tokens really computed. */
  readonly computedTokensTotal: number | null;
  readonly cachedTokensTotal: number | null;
  readonly generationTokensTotal: number | null;
  readonly preemptionsTotal: number | null;
  /** Requests that have shown a first token. */
  readonly firstTokensTotal: number | null;
  readonly itlSumSeconds: number | null;
  readonly itlCount: number | null;
  /** Uncached prompt tokens accepted and not yet computed, as the engine itself counts them at this moment. */
  readonly waitingPrefillTokens: number | null;
  /** Prompt tokens computed in `prefillBusySeconds`: only the ratio of two increases means something. */
  readonly prefillBusyTokens: number | null;
  readonly prefillBusySeconds: number | null;
  /** Steps of the engine: moves while it works, also where no request ends. */
  readonly stepsTotal: number | null;
  /** Figures that stand for what the engine does not tell: bounds, or means of another thing. */
  readonly derived: readonly string[];
}

/** A rank of which nothing is known: no exposition, or one that leaves it out. */
export function absentRank(rank: number): RankScrape {
  return {
    rank,
    running: null,
    waiting: null,
    runningMax: null,
    kvUsageRatio: null,
    kvCapacityTokens: null,
    blockTokens: null,
    asleep: null,
    promptTokensTotal: null,
    computedTokensTotal: null,
    cachedTokensTotal: null,
    generationTokensTotal: null,
    preemptionsTotal: null,
    firstTokensTotal: null,
    itlSumSeconds: null,
    itlCount: null,
    waitingPrefillTokens: null,
    prefillBusyTokens: null,
    prefillBusySeconds: null,
    stepsTotal: null,
    derived: [],
  };
}

export interface EngineScrape {
  /** Unix seconds of the engine process's start; null where the exposition has none. */
  readonly startTimeSeconds: number | null;
  readonly ranks: readonly RankScrape[];
}

export interface EngineIdentity {
  readonly kind: EngineKind;
  readonly version: string | null;
  readonly models: readonly ModelInfo[];
  /** Tokens per scheduler step, where the engine tells; null or absent: not told. */
  readonly stepTokens?: number | null;
  /** Where it publishes KV events, where it tells. */
  readonly kvEvents?: KvEventsOptions | null;
}

export type ScrapeResult =
  | { readonly kind: 'ok'; readonly scrape: EngineScrape }
  /** Nothing listens. */
  | { readonly kind: 'refused' }
  /** An engine listens and says that it does not serve: not yet, or no longer. */
  | { readonly kind: 'unready'; readonly stage: 'loading' | 'stopping'; readonly detail: string }
  /** Something listens and does not answer as an engine does. */
  | { readonly kind: 'failed'; readonly detail: string };

export type IdentityResult =
  | { readonly kind: 'ok'; readonly identity: EngineIdentity }
  | { readonly kind: 'failed'; readonly detail: string };

/** The engine's process as one source names it. Two sources may name different processes of one engine. */
export interface EngineProcess {
  readonly source: 'pidFile' | 'unit' | 'list';
  readonly pid: number;
}

/** What is known of the engine from outside its port: process list, pid file, unit, log. */
export interface ProcessEvidence {
  /** `unknown` where nothing tells. */
  readonly state: 'alive' | 'absent' | 'unknown';
  /** How far the start has come; null where no log tells. */
  readonly progress: LoadProgress | null;
  readonly process: EngineProcess | null;
  /** How often a supervisor has started it again; null without one. */
  readonly restarts: number | null;
}

export const NO_EVIDENCE: ProcessEvidence = {
  state: 'unknown',
  progress: null,
  process: null,
  restarts: null,
};

export type GenerationOutcome =
  | {
      readonly kind: 'ok';
      readonly ttftMs: number;
      readonly promptTokens: number | null;
      readonly cachedTokens: number | null;
      /** Embeddings or scores: `ttftMs` is that of the whole answer, and nobody knows what was cached. */
      readonly pooled?: true;
    }
  /** `rank`: refused as a request that names a rank, other than the first, which the engine may not have. */
  | {
      readonly kind: 'failed';
      readonly cause: 'refused' | 'timeout' | 'status' | 'rank' | 'broken';
    };

export type AgentEvent =
  | { readonly kind: 'start' }
  /** The time that `nextWakeMs` named has come. */
  | { readonly kind: 'tick' }
  /** `sentMs` is the core's clock when the scrape was asked for. */
  | {
      readonly kind: 'scraped';
      readonly replica: ReplicaId;
      readonly sentMs: number;
      readonly result: ScrapeResult;
      readonly evidence: ProcessEvidence;
    }
  | { readonly kind: 'identified'; readonly replica: ReplicaId; readonly result: IdentityResult }
  | {
      readonly kind: 'generated';
      readonly replica: ReplicaId;
      readonly id: string;
      readonly outcome: GenerationOutcome;
    }
  /** KV events of a rank, as they were published. */
  | {
      readonly kind: 'kvEvents';
      readonly replica: ReplicaId;
      readonly rank: number;
      readonly batches: readonly KvBatch[];
    }
  /** What a replay from `fromSeq` brought, in order; nothing and `done` where none can be had. */
  | {
      readonly kind: 'kvReplay';
      readonly replica: ReplicaId;
      readonly rank: number;
      readonly fromSeq: number;
      readonly batches: readonly KvBatch[];
      readonly done: boolean;
    }
  /** What the driver tells of the machine's GPUs; `uuids` are the engine's, null for all of them. */
  | {
      readonly kind: 'gpus';
      readonly replica: ReplicaId;
      readonly reading: GpuReading;
      readonly uuids: readonly string[] | null;
    }
  | { readonly kind: 'linkUp'; readonly link: LinkId }
  | { readonly kind: 'linkDown'; readonly link: LinkId }
  | { readonly kind: 'message'; readonly link: LinkId; readonly message: RouterMessage }
  /** An operator marks an engine, or takes the mark off: it is to get nothing new. */
  | { readonly kind: 'drain'; readonly replica: ReplicaId; readonly on: boolean }
  /** Leave: say bye for all engines. */
  | { readonly kind: 'stop' };

/** A generation of the agent's own: never a user's, excluded from every statistic of theirs. */
export interface GenerateOrder {
  readonly replica: ReplicaId;
  readonly rank: number;
  readonly id: string;
  readonly purpose: 'probe' | 'calibration';
  readonly model: string;
  readonly prompt: string;
  readonly maxTokens: number;
  readonly deadlineMs: number;
}

export const AGENT_LIMITS = [
  'ledger', // open requests of one router at one target
] as const;

export type AgentLimit = (typeof AGENT_LIMITS)[number];

export type AgentEffect =
  | { readonly kind: 'scrape'; readonly replica: ReplicaId }
  | { readonly kind: 'identify'; readonly replica: ReplicaId }
  | { readonly kind: 'generate'; readonly order: GenerateOrder }
  /** Ask the engine for its KV batches from this number on. */
  | {
      readonly kind: 'replayKv';
      readonly replica: ReplicaId;
      readonly rank: number;
      readonly fromSeq: number;
    }
  /** The engine has come back with so few ranks: the agent is to begin anew. */
  | { readonly kind: 'fewerRanks'; readonly replica: ReplicaId; readonly ranks: number }
  | { readonly kind: 'send'; readonly link: LinkId; readonly message: AgentMessage }
  | { readonly kind: 'close'; readonly link: LinkId; readonly reason: CloseReason }
  /** For metrics: a limit was reached. */
  | { readonly kind: 'limit'; readonly limit: AgentLimit }
  | {
      readonly kind: 'log';
      readonly level: LogLevel;
      readonly code: string;
      readonly fields: Readonly<Record<string, string | number | boolean | null>>;
    };

/** Routers that a link's welcome named: the shell dials them too. */
export interface AgentLinkView {
  readonly link: LinkId;
  readonly routerId: RouterId | null;
  readonly siblings: readonly string[];
}
