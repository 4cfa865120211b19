// What an agent says about one target. `null` is unknown: neither zero nor full.

import type { CostCurve } from './cost-curve.ts';
import type { Incarnation, ReplicaId } from './ids.ts';
import type { DegradedReason, Phase } from './phase.ts';

export interface ModelInfo {
  readonly id: string;
  /** Tokens. */
  readonly maxModelLen: number | null;
  readonly loras: readonly string[];
}

/** Canonical bytes per token of a model, learned from usage. */
export interface BytesPerToken {
  readonly mean: number;
  readonly p5: number;
  readonly p95: number;
}

export interface ProbeResult {
  readonly ok: boolean;
  readonly ttftMs: number | null;
  readonly consecutiveOk: number;
}

/** Work that routers hold back for a pool, summed over the routers that told this agent. */
export interface QueuedWork {
  readonly prefillMs: number;
  readonly requests: number;
  /** Lowest number = most urgent; null when nothing is queued. */
  readonly topPriority: number | null;
  /** Routers with at least one request queued. */
  readonly routersQueueing: number;
  /** How the receiving router's own queue stands among them; absent from an agent that does not say. */
  readonly place?: QueuePlace | undefined;
}

/** The other routers' queues, as the agent was told, beside one router's. */
export interface QueuePlace {
  /** Most urgent priority that another router holds; null when no other queues. */
  readonly othersTop: number | null;
  /** Other routers that hold it. */
  readonly othersAtTop: number;
  /** Of these, those whose next request goes before this router's. */
  readonly before: number;
  /**
   * Reports go to the routers in turn: for so long after this one its room is the receiving router's alone, ms. Absent
   * from an agent that tells all at once.
   */
  readonly turnMs?: number | undefined;
  /** Requests that wait in other routers, of whatever priority. Absent: not told. */
  readonly othersRequests?: number | undefined;
  /**
   * How long the oldest that waits in those `othersAtTop` has waited when this report is sent, less what its length
   * costs, ms. Absent: none of them told.
   */
  readonly oldestAgeMs?: number | undefined;
}

/** Engine counters, so that an agent that restarts can tell whether the engine it meets is the one it left. */
export interface EngineCounters {
  readonly promptTokens: number | null;
  readonly generationTokens: number | null;
}

/** How far an engine's start has come, as its log tells. */
export interface LoadProgress {
  readonly stage: string;
  /** Of the stage, 0..1. */
  readonly ratio: number | null;
}

/** The GPUs of an engine together. `null` is what the driver does not tell. */
export interface GpuSummary {
  /** Of the first; the others of a machine are mostly the same. */
  readonly name: string | null;
  readonly count: number;
  /** Seen before and missing now. */
  readonly lost: number;
  readonly memoryTotalBytes: number | null;
  readonly memoryUsedBytes: number | null;
  /** Of the hottest, °C. */
  readonly temperatureC: number | null;
  /** Mean, 0..1. */
  readonly utilisationRatio: number | null;
  /** Some GPU lowers its clocks for heat or power. */
  readonly throttled: boolean | null;
}

/** |predicted ÷ measured − 1| of the last prefills; `bias` with its sign, as a median. */
export interface CostError {
  readonly p50: number;
  readonly p90: number;
  readonly bias: number;
}

export interface ReplicaReport {
  readonly replica: ReplicaId;
  readonly rank: number;
  /** Null while no engine process has been seen. */
  readonly incarnation: Incarnation | null;
  /** Grows by one per report of this target and agent process. */
  readonly seq: number;
  readonly phase: Phase;
  /** How long the phase has lasted. */
  readonly phaseForMs: number;
  /** Why `degraded`; null in every other phase, and from an agent that does not say. */
  readonly degradedFor: DegradedReason | null;
  /** Prefill time over what calibration had, of the last prefills; null where too few tell. */
  readonly slowRatio: number | null;
  readonly progress: LoadProgress | null;
  readonly gpus: GpuSummary | null;
  /** Expected time to `ready`; only `loading` and `warming` with a known start have one. */
  readonly etaMs: number | null;
  readonly prefillCost: CostCurve | null;
  /** How well that curve foretold the last prefills; null until there were enough. */
  readonly costError: CostError | null;
  readonly waitingPrefillMs: number | null;
  readonly waitingPrefillTokens: number | null;
  /** Tokens of prefill work that no router has told of. */
  readonly unattributedTokens: number | null;
  readonly largestPrefillMs: number | null;
  /** Uncached tokens over busy time; holds when idle. */
  readonly prefillTps: number | null;
  readonly slotWaitMs: number | null;
  readonly workingSetTokens: number | null;
  readonly itlMs: number | null;
  /** Requests inside the engine: the ledger's open leases and foreign ones. */
  readonly running: number | null;
  /** Batch slots. */
  readonly runningMax: number | null;
  readonly kvUsageRatio: number | null;
  readonly kvCapacityTokens: number | null;
  /** Tokens in the findable blocks of the KV cache, as its KV events tell; null without them. */
  readonly kvCachedTokens: number | null;
  /** Tokens per KV block: predicted hits are rounded down to it. */
  readonly blockTokens: number | null;
  readonly preemptionsTotal: number | null;
  readonly preemptionsPerMin: number | null;
  readonly bytesPerToken: BytesPerToken | null;
  /** Tokens per non-text part, by kind. */
  readonly partTokens: Readonly<Record<string, number>>;
  /** Reported ÷ predicted cached tokens, learned; 1 until learned. */
  readonly kappa: number;
  readonly probe: ProbeResult | null;
  readonly models: readonly ModelInfo[];
  /** `unknown` satisfies no demand for a revision. */
  readonly revision: string;
  readonly engine: { readonly kind: string; readonly version: string | null };
  /** Live router links of the agent. */
  readonly routers: number;
  readonly queued: QueuedWork;
  /** Ledger events of the receiving router that this report includes; -1 before its `leases` snapshot. */
  readonly ackedSeq: number;
  /** Age of the last good scrape; null when there was none. */
  readonly scrapeAgoMs: number | null;
  readonly counters: EngineCounters;
  /** Names of fields that are derived rather than measured. Null fields are unknown. */
  readonly derived: readonly string[];
  /** Figures that the engine does not tell; empty from an agent that does not say. */
  readonly absent: readonly string[];
}
