// What a regional router knows: pools, replicas, targets, links, requests and leases, and the
// effects of the event at hand. Every change to a lease goes through core-leases.ts, so that each
// is released exactly once.

import { ChurnMap, type ChurnSet } from '../../shared/lib/churn.ts';
import type { Decision } from '../../shared/model/decision.ts';
import type { PrefillSums } from '../../shared/model/cost-curve.ts';
import type {
  AgentId,
  Incarnation,
  LeaseId,
  LinkId,
  PoolId,
  ReplicaId,
  RequestId,
  RouterId,
} from '../../shared/model/ids.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { ErrorCode, LogLevel } from '../../shared/errors.ts';
import type { LeaseFacts } from '../../shared/protocol/messages.ts';
import { TurnGaps } from '../../shared/lib/turn-gaps.ts';
import type { Random } from '../../shared/lib/random.ts';
import type { Breaker } from '../policy/breaker.ts';
import type { LinkState } from '../policy/filter.ts';
import { PrefixIndex } from '../policy/prefix-index.ts';
import { ReleaseQueue } from '../policy/queue.ts';
import { RetryBudget } from '../policy/retry-budget.ts';
import { Inflow } from '../policy/inflow.ts';
import { KvFill } from '../policy/kv-fill.ts';
import { Promises } from '../policy/promises.ts';
import { ReleasePace } from '../policy/shed.ts';
import { PoolSight } from '../policy/sight.ts';
import { TurnMemory, type EarlierTurn } from '../policy/turn-memory.ts';
import { WaitingTurns } from '../policy/waiting-turns.ts';
import type { RecentTurns } from '../policy/working-set.ts';
import { BurstRoom } from '../policy/working-set-burst.ts';
import { WorkingSetControl } from '../policy/working-set-control.ts';
import { FreshHistory } from '../policy/static-pool.ts';
import type { LinkBounds } from './core-link-bounds.ts';
import type { PoolConfig, RegionalCoreConfig, RouterEffect } from './events.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import type { OthersWork } from '../policy/others-work.ts';
import { newHeldTurn, type HeldTurn } from './core-held-order.ts';
import { Siblings } from './core-siblings.ts';
import { RegionTier } from './core-region-state.ts';
import { Roster } from './core-roster.ts';
import { Weighing } from './core-weighing.ts';

/** Answer and prompt of a pool that has served nothing yet, tokens. */
const FIRST_MEAN_OUTPUT = 256;
const FIRST_MEAN_PROMPT = 1_024;

export interface RegionalCoreDeps {
  readonly routerId: RouterId;
  readonly software: string;
  readonly config: RegionalCoreConfig;
  readonly random: Random;
  /** ms since 1970, for the welcome only. */
  readonly wallMs: () => number;
}

/** What agents know of a queue, but for the age of its next request. */
export interface QueueTold {
  readonly requests: number;
  readonly prefillMs: number;
  readonly topPriority: number | null;
}

export interface PoolState {
  readonly id: PoolId;
  config: PoolConfig;
  readonly replicas: Set<ReplicaState>;
  readonly roster: Roster;
  readonly queue: ReleaseQueue;
  readonly pace: ReleasePace;
  readonly sight: PoolSight;
  /** Of those that waited for KV room. */
  readonly heldPace: ReleasePace;
  /** When they are looked at next, where a look costs much; and whether something has happened since the last one. */
  readonly heldLook: { atMs: number; due: boolean };
  /** Beside those that wait for it in the region's other routers. */
  readonly heldTurn: HeldTurn;
  /** What comes, by priority. */
  readonly inflow: Inflow;
  /** To those who were turned away. */
  readonly promises: Promises;
  readonly workingSet: {
    readonly control: WorkingSetControl;
    readonly burst: BurstRoom;
    readonly turns: TurnMemory;
    readonly gaps: TurnGaps;
    readonly waiting: WaitingTurns<TargetState>;
    /** New conversations that found no room and entered by age, ever. */
    aged: number;
  };
  readonly fresh: FreshHistory;
  /** What this router makes its engines write into their KV caches. */
  readonly kvFill: KvFill;
  /** Smoothed over complete answers, tokens. */
  meanOutputTokens: number;
  meanPromptTokens: number;
  /** Names that replicas have reported; bounded, and then those that they still do. */
  readonly names: Set<string>;
  /** When those were last told from the others. */
  namesSortedMs: number;
  /** An agent has reported models of this pool. */
  reported: boolean;
  /** What the agents were last told of the queue. */
  told: QueueTold;
  toldAtMs: number;
  /** Until then reports may count this router as queueing although `told` says that it does not. */
  countedUntilMs: number;
  /** The queue may be able to move. */
  dirty: boolean;
  /** A new configuration has no such pool. */
  removed: boolean;
}

export interface ReplicaState {
  readonly id: ReplicaId;
  readonly pool: PoolState;
  url: string;
  readonly targets: TargetState[];
  link: LinkHolder | null;
  agentId: AgentId;
  state: LinkState;
  /** Of the last report of any rank. */
  reportedMs: number | null;
  /** Since when no report comes; null while fresh. */
  lostMs: number | null;
  /** It said goodbye: no candidate, kept for an agent that returns. */
  gone: boolean;
  /** When it was taken out for good or said goodbye; null while it is in use. */
  leftMs: number | null;
  /** It failed us while no agent vouched for it. */
  down: boolean;
  probeAtMs: number;
  probeBackoffMs: number;
  probing: boolean;
}

export interface TargetState {
  readonly replica: ReplicaState;
  readonly rank: number;
  readonly key: string;
  /** In the prefix index; another one whenever it begins anew there. */
  slot: number;
  /** In its pool's roster. */
  place: number;
  report: ReplicaReport | null;
  receivedMs: number;
  /** Last known; a report without an engine does not clear it. */
  incarnation: Incarnation | null;
  /** Of the `leases` last sent over this link; undefined before any. */
  leasesFor: Incarnation | null | undefined;
  /** Of the last ledger event sent since then. */
  seq: number;
  /** A ledger event that waits for its report: how late reports are; null where none does. */
  asked: { readonly seq: number; readonly atMs: number } | null;
  /** No report has acknowledged that snapshot yet. */
  unconfirmed: boolean;
  readonly leases: ChurnMap<LeaseId, LeaseState>;
  /** Leases ever opened. */
  attempts: number;
  /** Open leases whose `sent` no report includes, in order of sending. */
  readonly unacked: ChurnSet<LeaseState>;
  /** Prefill of those of `unacked` that are not past it. */
  readonly unackedSums: PrefillSums;
  /** Prefill of all open leases that are not past it. */
  readonly openSums: PrefillSums;
  /** What the region's other routers say that they have sent; null while none has said anything. */
  others: OthersWork | null;
  readonly breaker: Breaker;
  pausedUntilMs: number;
  firstTokenMs: number;
  /** Greatest `running` of the current and the previous window. */
  peakRunning: { current: number; previous: number; sinceMs: number };
  /** Released from the queue, or past it, since the last report. */
  released: { requests: number; prefillMs: number };
  /** Since when reports say that it has nothing to do; null where the last one does not. */
  idleSinceMs: number | null;
  /** Since when reports say that it waits less than the hold; null where the last one does not. */
  roomSinceMs: number | null;
  /** New conversations sent there lately, oldest first. */
  claims: LeaseState[];
  /** When a new conversation last entered without KV room. */
  agedMs: number;
  /** What this router has sent there lately. */
  readonly recentTurns: RecentTurns;
}

export interface LinkHolder {
  readonly id: LinkId;
  readonly agentId: AgentId;
  readonly pool: PoolState;
  readonly replicas: Set<ReplicaState>;
  /** Replicas that a newer link has taken over. */
  readonly fenced: Set<ReplicaState>;
  /** The least interval between reports that its agent was last told, ms. */
  toldIntervalMs: number;
  /** Link addresses of this router's workers, as the agent reaches them. */
  readonly workers: readonly string[];
  /** Since when its agent has said fewer links than there are routers; null while it has enough. */
  fewSinceMs: number | null;
  /** Somebody has been told of it. */
  fewSaid: boolean;
  /** Its agent says which events of other routers its reports include. */
  readonly tellsOthers: boolean;
  readonly bounds: LinkBounds;
}

export interface Failure {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryAfterMs: number | null;
}

export interface RequestState {
  readonly request: RouteRequest;
  readonly pool: PoolState;
  /** Other pools of the model, into whose context it does not fit as well. */
  readonly tooShort: readonly PoolState[];
  readonly engineModel: string;
  /** Any of these will do; null: every one. */
  readonly revisions: readonly string[] | null;
  readonly arrivedMs: number;
  attempts: number;
  /** Targets that failed it. */
  readonly tried: Set<string>;
  /** It met a stale connection, whose attempt counts for none. */
  metStale: boolean;
  /** The turn that it goes on from, known from its first attempt on; null where it is unknown. */
  earlier: EarlierTurn | null;
  lease: LeaseState | null;
  gone: boolean;
  failure: Failure | null;
}

export interface LeaseState {
  readonly id: LeaseId;
  readonly request: RequestState;
  readonly target: TargetState;
  readonly facts: LeaseFacts;
  readonly sums: Readonly<PrefillSums>;
  readonly sentMs: number;
  /** By which sibling routers know it. */
  no: number;
  /** The ledger sequence that told of it; null while no link has. */
  sentSeq: number | null;
  firstTokenMs: number | null;
  /**
   * Its prefill no longer counts: a first token came, or it shows none and its predicted end has
   * passed.
   */
  pastPrefill: boolean;
  /** Predicted end of its prefill. */
  readonly prefilledMs: number;
  readonly timeoutMs: number;
  /** Tokens that it adds to its target's working set. */
  readonly growthTokens: number;
  /** A new conversation that entered without KV room, for its age. */
  readonly aged: boolean;
  /** Its target held less than half of its prompt. */
  readonly unfound: boolean;
  /** Another candidate held more of it: what it does not find here was not evicted. */
  readonly moved: boolean;
  /** The client's patience set the time-out. */
  readonly byClient: boolean;
  extended: boolean;
  aborting: boolean;
  /** Its engine process is another one now. */
  orphan: boolean;
}

export class RegionalState {
  readonly deps: RegionalCoreDeps;
  config: RegionalCoreConfig;
  readonly pools = new Map<PoolId, PoolState>();
  readonly replicas = new Map<ReplicaId, ReplicaState>();
  readonly links = new Map<LinkId, LinkHolder>();
  readonly requests = new ChurnMap<RequestId, RequestState>();
  readonly leases = new ChurnMap<LeaseId, LeaseState>();
  readonly index: PrefixIndex;
  /** Of the request that was weighed last. */
  readonly weighing = new Weighing();
  readonly budget = new RetryBudget();
  readonly tier = new RegionTier();
  readonly siblings = new Siblings();
  draining = false;
  nowMs = 0;
  /** When time-driven changes were last looked for. */
  sweptMs = Number.NEGATIVE_INFINITY;
  /** Evictions of the index that have been counted as limit hits. */
  countedEvictions = 0;
  /** Of the event at hand. */
  effects: RouterEffect[] = [];
  /** Requests that this event has put in a queue. */
  announced: { request: RequestId; decision: Decision }[] = [];

  constructor(deps: RegionalCoreDeps) {
    this.deps = deps;
    this.config = deps.config;
    this.index = new PrefixIndex(deps.config.settings.prefixIndexBytes);
    for (const pool of deps.config.pools) this.pools.set(pool.id, newPool(pool));
  }

  get settings(): RegionalCoreConfig['settings'] {
    return this.config.settings;
  }

  emit(effect: RouterEffect): void {
    this.effects.push(effect);
  }

  log(
    level: LogLevel,
    code: string,
    fields: Readonly<Record<string, string | number | boolean | null>>,
  ): void {
    this.effects.push({ kind: 'log', level, code, fields });
  }

  limit(limit: LimitName): void {
    this.effects.push({ kind: 'limit', limit });
  }
}

export function newPool(config: PoolConfig): PoolState {
  const replicas = new Set<ReplicaState>();
  return {
    id: config.id,
    config,
    replicas,
    roster: new Roster(replicas),
    queue: new ReleaseQueue(),
    pace: new ReleasePace(),
    sight: new PoolSight(),
    heldPace: new ReleasePace(),
    heldLook: { atMs: Number.NEGATIVE_INFINITY, due: false },
    heldTurn: newHeldTurn(),
    inflow: new Inflow(),
    promises: new Promises(),
    workingSet: {
      control: new WorkingSetControl(),
      burst: new BurstRoom(),
      turns: new TurnMemory(),
      gaps: new TurnGaps(),
      waiting: new WaitingTurns(),
      aged: 0,
    },
    fresh: new FreshHistory(),
    kvFill: new KvFill(),
    meanOutputTokens: FIRST_MEAN_OUTPUT,
    meanPromptTokens: FIRST_MEAN_PROMPT,
    names: new Set(),
    namesSortedMs: Number.NEGATIVE_INFINITY,
    reported: false,
    told: { requests: 0, prefillMs: 0, topPriority: null },
    toldAtMs: Number.NEGATIVE_INFINITY,
    countedUntilMs: Number.NEGATIVE_INFINITY,
    dirty: false,
    removed: false,
  };
}
