// What a global router knows: regions with their links, pools and controllers, conversations, requests and attempts, and
// the effects of the event at hand.

import type { ErrorCode, LogLevel } from '../../shared/errors.ts';
import type { GlobalDecision } from '../../shared/model/global-decision.ts';
import type { GlobalSettings } from '../../shared/model/global-settings.ts';
import type {
  LeaseId,
  LinkId,
  PoolId,
  RegionId,
  RequestId,
  RouterId,
} from '../../shared/model/ids.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import { ChurnMap } from '../../shared/lib/churn.ts';
import type { Random } from '../../shared/lib/random.ts';
import type { DemandMessage, RegionReportMessage } from '../../shared/protocol/region-messages.ts';
import { ConversationMemory, MatchedShare } from '../policy/affinity.ts';
import { Breaker } from '../policy/breaker.ts';
import type { DemandedModel } from '../policy/model-grant.ts';
import { OwnSends } from '../policy/own-sends.ts';
import { Smoothed } from '../policy/region-estimate.ts';
import type { PoolSight } from '../policy/region-merge.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import { RetryBudget } from '../policy/retry-budget.ts';
import { newSilence, type ReportGaps, type Silence } from '../policy/region-silence.ts';
import type { ResumeRamp } from '../policy/resume-ramp.ts';
import { RegionRtt } from '../policy/rtt.ts';
import { CreditPurse } from '../policy/spill-credit.ts';
import { SpillFlow } from '../policy/spill-demand.ts';
import { SpillGate } from '../policy/spill-gate.ts';
import { TurnPace } from '../policy/turn-pace.ts';
import type { Named } from './core-conversation.ts';
import type {
  ConversationHints,
  ConversationKeys,
  GlobalCoreConfig,
  GlobalEffect,
  RegionConfig,
  RegionProbe,
  TenantFacts,
} from './events.ts';
import { WaitingRoom } from './core-waiting.ts';

export interface GlobalCoreDeps {
  readonly routerId: RouterId;
  readonly software: string;
  readonly config: GlobalCoreConfig;
  readonly random: Random;
  /** ms since 1970, for the welcome and for hints. */
  readonly wallMs: () => number;
  readonly keys: ConversationKeys;
  readonly hints: ConversationHints;
}

export interface RegionState {
  readonly id: RegionId;
  config: RegionConfig;
  readonly links: Map<LinkId, RegionLink>;
  readonly pools: Map<PoolId, RegionPool>;
  readonly rtt: RegionRtt;
  warm: boolean;
  readonly breaker: Breaker;
  /** No link stands, and it has refused a connection: not seen until either changes. */
  dead: boolean;
  /** When it last gave anybody a first token. */
  firstTokenMs: number;
  readonly silence: Silence;
  /** When one of its routers was last lost. */
  lostMs: number;
  /** Of the last send. */
  seq: number;
  probe: (RegionProbe & { readonly atMs: number }) | null;
  /** The last one failed, or a link has come where none was: a good one says that the region is back. */
  probeIsNews: boolean;
}

export interface RegionLink {
  readonly id: LinkId;
  readonly region: RegionState;
  readonly routerId: RouterId;
  report: RegionReportMessage | null;
  receivedMs: number;
  readonly gaps: ReportGaps;
  upMs: number;
  /** What it was last told of each pool. */
  readonly told: Map<PoolId, DemandMessage & { readonly atMs: number }>;
}

export interface RegionPool {
  readonly id: PoolId;
  readonly region: RegionState;
  sight: PoolSight | null;
  /** Reported queue, own sends not included. */
  readonly smoothed: Smoothed;
  /** Reported queue of the last two reports, as it was. */
  lastQueuesMs: readonly [before: number | null, last: number | null];
  /** From when on the last is one of its own: what several routers report of one moment is one. */
  lastQueueAtMs: number;
  readonly gate: SpillGate;
  /** Own credit for sending there. */
  readonly purse: CreditPurse<LinkId>;
  /** New conversations whose home it is. */
  readonly flow: SpillFlow;
  /** It asked for time: requests of this priority and less urgent ones. */
  pause: { readonly untilMs: number; readonly priority: number } | null;
  /** How it is taken up again afterwards; null where there is no pause. */
  ramp: ResumeRamp | null;
  /** The pause has become longer: some of those that wait for it may wait in vain. */
  pausedAnew: boolean;
  /** Requests that wait for it here, and their prefill, ms. */
  held: number;
  heldMs: number;
  /** Sends of this router in no report yet. */
  readonly own: OwnSends;
  spilledIn: number;
  spilledOut: number;
}

export interface Failure {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryAfterMs: number | null;
}

export interface RequestState {
  readonly request: RouteRequest;
  /** Without what its tenant is granted, which may change while it waits. */
  readonly demanded: DemandedModel;
  readonly arrivedMs: number;
  attempts: number;
  /** Regions that failed it. */
  readonly tried: Set<RegionId>;
  /** Regions that have lost a router under it, and may be tried once more. */
  readonly lostIn: Set<RegionId>;
  metStale: boolean;
  /** Regions that refused it for its own haste, and until when: nobody else is kept away from them. */
  readonly askedToWaitMs: Map<RegionId, number>;
  /** Its home's flow and gate have counted it. */
  counted: boolean;
  lease: LeaseState | null;
  /** It waits, and is looked at again then, whatever happens before; null: it does not wait. */
  againMs: number | null;
  /** The pool that it waits for; null: none, or its own time alone. */
  heldBy: RegionPool | null;
  gone: boolean;
  failure: Failure | null;
  /** What it says of its conversation beside its text; null: not looked at yet. */
  named: Named | null;
  /** Tokens that its id says are in the cache of the region that it was sent to; null: it says nothing of that one. */
  promisedTokens: number | null;
  /** Most of them were, as its answer tells; null: it does not tell, or has not come. */
  promiseKept: boolean | null;
}

export interface LeaseState {
  readonly id: LeaseId;
  readonly request: RequestState;
  readonly region: RegionState;
  readonly pool: RegionPool;
  readonly seq: number;
  readonly sentMs: number;
  readonly timeoutMs: number;
  /** The client's patience set the time-out. */
  readonly byClient: boolean;
  readonly conversation: ConversationTurn | null;
  firstTokenMs: number | null;
  aborting: boolean;
  /** Its tenant may no longer be served there: it is decided anew, at no charge. */
  withdrawn: boolean;
}

/** What is remembered of a turn once a region has begun to answer it. */
export interface ConversationTurn {
  /** Of its end, in this router's memory. */
  readonly name: string;
  /** By its client's id; null: it has none that counts. */
  readonly idKey: string | null;
  /** It had proved itself before this turn. */
  readonly vouched: boolean;
  readonly promptTokens: number;
  readonly sinceMs: number;
  readonly movedMs: number | null;
}

export class GlobalState {
  readonly deps: GlobalCoreDeps;
  config: GlobalCoreConfig;
  /** In the order of the configuration. */
  readonly regions = new Map<RegionId, RegionState>();
  readonly links = new Map<LinkId, RegionLink>();
  readonly requests = new ChurnMap<RequestId, RequestState>();
  readonly leases = new ChurnMap<LeaseId, LeaseState>();
  readonly memory = new ConversationMemory();
  readonly matched = new MatchedShare();
  readonly pace = new TurnPace();
  readonly budget = new RetryBudget();
  readonly queue = new WaitingRoom();
  /** Bytes per token, learned per model. */
  readonly bytesPerToken = new Map<string, number>();
  meanOutputTokens = 256;
  draining = false;
  nowMs = 0;
  sweptMs = Number.NEGATIVE_INFINITY;
  /** When what silent regions hold was last looked at. */
  calledBackMs = Number.NEGATIVE_INFINITY;
  effects: GlobalEffect[] = [];
  /** Requests that this event has put in the queue. */
  announced: { request: RequestId; decision: GlobalDecision }[] = [];

  constructor(deps: GlobalCoreDeps) {
    this.deps = deps;
    this.config = deps.config;
    for (const region of deps.config.regions) this.regions.set(region.id, newRegion(region));
  }

  get settings(): GlobalSettings {
    return this.config.settings;
  }

  /** Null: there are tenants, and this is none of them. */
  tenant(name: string): TenantFacts | null {
    const { tenants } = this.config;
    return tenants.size === 0 ? openTo(name) : (tenants.get(name) ?? null);
  }

  emit(effect: GlobalEffect): void {
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

/** Without tenants everybody may use everything. */
function openTo(name: string): TenantFacts {
  return { residency: null, saltGroup: name, models: null, certifications: [], tier: null };
}

export function newRegion(config: RegionConfig): RegionState {
  return {
    id: config.id,
    config,
    links: new Map(),
    pools: new Map(),
    rtt: new RegionRtt(),
    warm: false,
    breaker: new Breaker(),
    dead: false,
    firstTokenMs: Number.NEGATIVE_INFINITY,
    silence: newSilence(),
    lostMs: Number.NEGATIVE_INFINITY,
    seq: 0,
    probe: null,
    probeIsNews: true,
  };
}

export function newRegionPool(id: PoolId, region: RegionState, halfLifeMs: number): RegionPool {
  return {
    id,
    region,
    sight: null,
    smoothed: new Smoothed(halfLifeMs),
    lastQueuesMs: [null, null],
    lastQueueAtMs: Number.NEGATIVE_INFINITY,
    gate: new SpillGate(),
    purse: new CreditPurse(),
    flow: new SpillFlow(),
    pause: null,
    ramp: null,
    pausedAnew: false,
    held: 0,
    heldMs: 0,
    own: new OwnSends(),
    spilledIn: 0,
    spilledOut: 0,
  };
}
