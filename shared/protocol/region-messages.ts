// The link between a regional router and a global router: every message as a type. The regional router dials; each of
// a region's routers has a link to each global router. Encoding and validation are in region-codec.ts.
//
// Who a region is comes from the link's credential, by the global router's own configuration: name, zone, certifications,
// price and base URL are in no message. What a hello says of the name is only compared.
//
// Figures of replicas are the same in every router's report, so the freshest counts (`observedAgoMs`); a router's own
// figures (its queue, what it has sent and no agent has reported yet) are its own, and are summed. Clocks do not travel:
// `…AgoMs`, `…InMs`, `idleMs` and `lifeMs` are made local at receipt. Null is unknown, never 0.

import type { CostCurve } from '../model/cost-curve.ts';
import type { PoolId, RegionId, RouterId } from '../model/ids.ts';
import type { AnyHello, AnyWelcome } from './greeting.ts';

export const REGION_PROTOCOL_VERSION = 1;

/** Sends that one report acknowledges; more go into the next. */
export const MAX_ARRIVED = 16_384;
/** Conversations of one message; more take further messages. */
export const MAX_AWAY = 4_096;

// ── regional router → global router ────────────────────────────────────────────────────────────────────

export interface RegionHello extends AnyHello {
  readonly routerId: RouterId;
  /** Compared with what the credential says; another name closes the link. */
  readonly region: RegionId;
  /** Only to alarm on clock offsets. */
  readonly wallMs: number;
}

export interface RegionReportMessage {
  readonly kind: 'report';
  /** Counted per link from 0. */
  readonly seq: number;
  readonly pools: readonly RegionPoolReport[];
  /** Routers of the region that this one knows, itself included. */
  readonly routers: number;
  /** It drains: nothing more should be sent through this router. */
  readonly draining: boolean;
  /** Sends of this global router (`seq` of their signed contexts) that have arrived here since the last report on this link. */
  readonly arrived: readonly number[];
}

export interface RegionPoolReport {
  readonly pool: PoolId;
  /** How old the youngest report of a replica is. Null: there is none. */
  readonly observedAgoMs: number | null;

  // of replicas
  /** Those that take new requests, or will where all of them ask for time: loading and cordoned ones are none. */
  readonly readyReplicas: number;
  /** Sum over ready replicas, others' work included. */
  readonly waitingPrefillMs: number | null;
  readonly waitingPrefillTokens: number | null;
  /** Of the ready replica in the middle. */
  readonly prefillCost: CostCurve | null;
  /** Sum over ready replicas. */
  readonly prefillTps: number | null;
  /** Least wait for a slot in a ready replica. */
  readonly slotWaitMs: number | null;
  /** Middle of the ready replicas. */
  readonly kvUsageRatio: number | null;
  /** Sum over ready replicas. */
  readonly preemptionsPerS: number | null;
  /** How long an idle conversation's KV blocks last. */
  readonly kvLifetimeMs: number | null;
  /** Tokens of new conversations that working-set admission would let in now; null: unknown or off. */
  readonly kvRoomTokens: number | null;
  /** Replicas on their way, soonest first; null: no estimate. */
  readonly pending: readonly PendingCapacity[];
  readonly models: readonly RegionModelReport[];
  /** Of its replicas. */
  readonly tiers: readonly string[];

  // of the reporting router
  readonly queuedPrefillMs: number;
  readonly queuedRequests: number;
  /** Since its oldest queued request came; null: none waits. */
  readonly oldestQueuedMs: number | null;
  /** What a new conversation waits for KV room now; null: none is held back for it. */
  readonly kvRoomWaitMs: number | null;
  /** Sent to replicas by this router and in no report of theirs yet. */
  readonly unacknowledgedMs: number;
}

export interface PendingCapacity {
  readonly replicas: number;
  readonly etaMs: number | null;
}

export interface RegionModelReport {
  /** Public name. */
  readonly name: string;
  /** `unknown` where replicas do not say. */
  readonly revision: string;
  readonly maxModelLen: number | null;
  /** Of the replica that takes the longest; `maxModelLen` is of the one that takes the least. Absent or null: some do not say. */
  readonly longestModelLen?: number | null | undefined;
  /** Bytes of a token that 95 % of prompts do not exceed, where it is most. Absent or null: some have not learned it. */
  readonly bytesPerTokenMost?: number | null | undefined;
}

/** Credit: prefill ms that this global router may send here beyond what lives here. One a (link, pool). */
export interface GrantMessage {
  readonly kind: 'grant';
  readonly pool: PoolId;
  readonly prefillMs: number;
  readonly lifeMs: number;
}

/** Conversations that live here and would not by distance. A snapshot replaces all; then what changed. */
export interface AwayMessage {
  readonly kind: 'away';
  readonly snapshot: boolean;
  readonly here: readonly AwayConversation[];
  /** Keys that have lapsed or gone home. */
  readonly gone: readonly string[];
}

export interface AwayConversation {
  /** `TierContext.conversation` of its last turn: names its next one, and holds no content. */
  readonly key: string;
  /** Tokens of its whole history. */
  readonly tokens: number;
  readonly idleMs: number;
  /** Since it came here. */
  readonly awayForMs: number;
}

export type RegionChildMessage = RegionHello | RegionReportMessage | GrantMessage | AwayMessage;

// ── global router → regional router ────────────────────────────────────────────────────────────────────

export interface RegionWelcome extends AnyWelcome {
  /** What the credential says the region is. */
  readonly region: RegionId;
  /** The zone that the global router itself is in: conversations of a bound tenant are told only inside its zones. */
  readonly zone: string | null;
  readonly reportIntervalMs: number;
  readonly wallMs: number;
}

/** What this global router would send here on credit. One a (link, pool). */
export interface DemandMessage {
  readonly kind: 'demand';
  readonly pool: PoolId;
  /** Prefill that it would send here until it says so again, ms. */
  readonly wantsMs: number;
  /** Prefill of one of its requests, ms; more than 0. */
  readonly requestMs: number;
  /** All that it has spent of this link's grants since the link began, ms. */
  readonly spentMs: number;
}

export type RegionParentMessage = RegionWelcome | DemandMessage;
