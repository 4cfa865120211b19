// The link between an agent and a router: every message as a type. Encoding and validation are in codec.ts.
//
// Clocks do not travel: `…AgoMs` and `…InMs` are made local at receipt. A 64-bit hash is two words of a
// Uint32Array. Ledger messages carry `seq`, counted per target: a new link begins with a `leases` snapshot, and that as
// well as a further `leases` (the agent has met another incarnation) goes on counting, so that no number means two
// things, to whichever router an agent tells how far it has come. A report's `ackedSeq` says up to where that router's events are in its figures;
// -1 again after a new incarnation, until the further `leases` has come.

import type { AgentId, Incarnation, LeaseId, PoolId, ReplicaId, RouterId } from '../model/ids.ts';
import type { CostCurve } from '../model/cost-curve.ts';
import type { HashWords } from '../model/prompt.ts';
import type { BytesPerToken, EngineCounters, ReplicaReport } from '../model/report.ts';
import type { AnyHello, AnyWelcome } from './greeting.ts';

export const PROTOCOL_VERSION = 1;

/** What a router can do beyond the first version; named in its welcome. */
export const ROUTER_FEATURES = [
  'heard', // answers a report that asks for it
  'delta_parts', // takes what has changed of prefixes in as many messages as it needs
  'others_acked', // hears what its siblings send, and asks which of it a report includes
] as const;

/** What an agent can do beyond the first version; named in its hello. */
export const AGENT_FEATURES = [
  'others_acked', // says to routers that ask for it which events of other routers a report includes
] as const;

// ── agent → router ─────────────────────────────────────────────────────────────────────────────────────

export interface Hello extends AnyHello {
  readonly agentId: AgentId;
  readonly pool: PoolId;
  readonly engines: readonly HelloEngine[];
  /** Where the agent answers `GET /v1/proof?nonce=…`; null when it has no HTTP listener. */
  readonly proofPort: number | null;
  /** Wall time in ms since 1970, only to alarm on clock offsets. */
  readonly wallMs: number;
}

export interface HelloEngine {
  readonly replica: ReplicaId;
  /** Base URL at which routers reach the engine, no path. */
  readonly advertiseUrl: string;
  readonly ranks: number;
}

export interface ReportMessage {
  readonly kind: 'report';
  readonly report: ReplicaReport;
  /** The router is to answer with `heard`; absent: it is not. */
  readonly echo?: boolean | undefined;
  /** Other routers' events that the report includes, of those where that has changed since the last report on this link. */
  readonly othersAcked?: readonly OtherAcked[] | undefined;
}

export interface OtherAcked {
  readonly router: RouterId;
  /** Of its ledger events about this target. */
  readonly seq: number;
}

/** Chain elements that a target's KV cache holds, as runs of consecutive chunks. */
export interface PrefixRun {
  /** Words of the chunk before the first; both 0 at depth 0. */
  readonly parentLow: number;
  readonly parentHigh: number;
  /** Chunks before the first hash of the run. */
  readonly depth: number;
  readonly hashes: HashWords;
}

/** The end of a prompt whose answer is in the KV cache too. */
export interface PrefixLeaf {
  readonly hashLow: number;
  readonly hashHigh: number;
  /** Exact tokens of the prompt up to here; null until its usage is known. */
  readonly promptTokens: number | null;
  /** Tokens of the answer after it. */
  readonly answerTokens: number;
}

export interface PrefixMessage {
  readonly kind: 'prefix';
  readonly replica: ReplicaId;
  readonly rank: number;
  readonly incarnation: Incarnation;
  /** 0 for a snapshot, which replaces all; then one more per delta. A gap means: ask by `resync`. */
  readonly seq: number;
  readonly runs: readonly PrefixRun[];
  readonly leaves: readonly PrefixLeaf[];
  /** Words of evicted chunks and leaves, leaf first. */
  readonly evicted: HashWords;
  /** It goes on with the snapshot before it: its leaves are of turns that ended some time ago. */
  readonly continues?: true;
}

export const BYE_REASONS = ['drained', 'removed', 'shutdown'] as const;
/** drained: an operator had marked it, and its work is over or was left; removed; shutdown: its agent ends. */
export type ByeReason = (typeof BYE_REASONS)[number];

export interface Bye {
  readonly kind: 'bye';
  readonly replica: ReplicaId;
  readonly reason: ByeReason;
}

export type AgentMessage = Hello | ReportMessage | PrefixMessage | Bye;

// ── router → agent ─────────────────────────────────────────────────────────────────────────────────────

export interface Welcome extends AnyWelcome {
  /** Link addresses of all routers of the region that this one knows, itself included. */
  readonly siblings: readonly string[];
  readonly minReportIntervalMs: number;
  /** What this router knows of the agent's engines from an earlier agent process. */
  readonly resume: readonly ResumeState[];
  readonly wallMs: number;
}

export interface ResumeState {
  readonly replica: ReplicaId;
  readonly rank: number;
  readonly incarnation: Incarnation;
  readonly prefillCost: CostCurve | null;
  readonly prefillTps: number | null;
  readonly bytesPerToken: BytesPerToken | null;
  readonly partTokens: Readonly<Record<string, number>>;
  readonly kappa: number;
  readonly runningMax: number | null;
  readonly counters: EngineCounters;
  readonly runs: readonly PrefixRun[];
  readonly leaves: readonly PrefixLeaf[];
}

/** One open attempt, as the ledger needs it. */
export interface LeaseFacts {
  readonly lease: LeaseId;
  readonly incarnation: Incarnation | null;
  readonly promptTokens: number;
  readonly uncachedTokens: number;
  /** Before κ and rounding: what the index alone said, so that κ can be learned. */
  readonly matchedTokens: number;
  readonly promptBytes: number;
  readonly parts: Readonly<Record<string, number>>;
  readonly streamed: boolean;
  readonly maxTokens: number | null;
  /** Requests that an engine makes of it and counts: elements of a list × answers of each. Absent: 1. */
  readonly requests?: number | undefined;
  /**
   * ms from the end of the turn that it goes on from, wherever that was, to its arrival at the router. Told once a turn;
   * absent where it is unknown.
   */
  readonly restedMs?: number | undefined;
  /** The prompt's chains, one an element of a list prompt. */
  readonly chains: readonly ChainFacts[];
}

export interface ChainFacts {
  readonly hashes: HashWords;
  readonly endLow: number;
  readonly endHigh: number;
  /** Earlier turns' ends in this prompt, 2 words each: marks them as continued. */
  readonly turnEnds: HashWords;
}

export interface Leases {
  readonly kind: 'leases';
  readonly replica: ReplicaId;
  readonly rank: number;
  readonly seq: number;
  readonly open: readonly OpenLease[];
}

export interface OpenLease extends LeaseFacts {
  readonly sentAgoMs: number;
  /** Null while no first token has come. */
  readonly firstTokenAgoMs: number | null;
}

export interface Sent extends LeaseFacts {
  readonly kind: 'sent';
  readonly replica: ReplicaId;
  readonly rank: number;
  readonly seq: number;
  readonly agoMs: number;
}

export interface FirstToken {
  readonly kind: 'firstToken';
  readonly replica: ReplicaId;
  readonly rank: number;
  readonly seq: number;
  readonly lease: LeaseId;
  readonly agoMs: number;
}

export const ATTEMPT_OUTCOMES = ['complete', 'failed', 'refused', 'aborted'] as const;
/** complete; failed on the way; refused by the engine before any work (4xx, 429, 503, no connection); aborted by us or the client. */
export type AttemptOutcome = (typeof ATTEMPT_OUTCOMES)[number];

export interface Usage {
  readonly promptTokens: number;
  /** Null where the engine does not say. */
  readonly cachedTokens: number | null;
  readonly completionTokens: number;
}

export interface Ended {
  readonly kind: 'ended';
  readonly replica: ReplicaId;
  readonly rank: number;
  readonly seq: number;
  readonly lease: LeaseId;
  readonly agoMs: number;
  readonly outcome: AttemptOutcome;
  readonly usage: Usage | null;
}

export interface Queued {
  readonly kind: 'queued';
  readonly pool: PoolId;
  readonly prefillMs: number;
  readonly requests: number;
  readonly topPriority: number | null;
  /**
   * ms since the request that goes next came, less what its length costs it in the order. Absent: not told.
   */
  readonly headAgeMs?: number | undefined;
}

/** Another agent has taken over this engine: say no more about it. */
export interface Fence {
  readonly kind: 'fence';
  readonly replica: ReplicaId;
}

/** Another least interval between reports than the welcome's: there are many more agents now, or fewer. */
export interface Pace {
  readonly kind: 'pace';
  readonly minReportIntervalMs: number;
}

/** The prefix deltas of a target had a gap: send a snapshot. */
export interface Resync {
  readonly kind: 'resync';
  readonly replica: ReplicaId;
  readonly rank: number;
}

/** The echo of a report: all that this router sent before it had read the report has come before this. */
export interface HeardReport {
  readonly kind: 'heard';
  readonly replica: ReplicaId;
  readonly rank: number;
  readonly reportSeq: number;
}

export type RouterMessage =
  | Welcome
  | Leases
  | Sent
  | FirstToken
  | Ended
  | Queued
  | Fence
  | Pace
  | Resync
  | HeardReport;

/** WebSocket close codes with a name; 4000–4999 is the private range. */
export const CLOSE_CODES = {
  protocol_too_old: 4001,
  hello_timeout: 4002,
  unauthorized: 4003,
  unknown_pool: 4004,
  address_refused: 4005,
  fenced: 4006,
  bad_frame: 4007,
  flooded: 4008,
  shutting_down: 4009,
  /** Two addresses of one router process: the newer link stays. */
  duplicate: 4010,
} as const;
export type CloseReason = keyof typeof CLOSE_CODES;
