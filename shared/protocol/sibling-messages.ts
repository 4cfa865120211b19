// The link between two routers of one region: every message as a type. Each router dials every other and tells it on that
// link what it sends; nothing but the welcome goes the other way. Encoding and validation are in sibling-codec.ts.
//
// What is told is work that has been sent and is not past its prefill, by a number that its router gives: `opened` adds
// it, or says its `seq` anew, `past` takes it away. A number that is known, or is not, is no fault: telling twice changes
// nothing. An agent's report says up to which `seq` of each router it includes (`othersAcked`), so that nothing is counted
// in a report and beside it.
//
// Beside it what routers have to agree on about KV room: what a send adds to a working set, and of each pool which
// conversation that waits for room goes first (`held`). What follows `anew` is all there is of that, too.

import type { PoolId, ReplicaId, RouterId } from '../model/ids.ts';
import type { AnyHello, AnyWelcome } from './greeting.ts';

export const SIBLING_PROTOCOL_VERSION = 1;

/** Sends of one message; more take further messages. */
export const MAX_OPENED = 1_024;
/** Ends of one message; more take further messages. */
export const MAX_PAST = 16_384;
/** Pools of one message; of more, the others are not told. */
export const MAX_HELD = 256;

export interface SiblingHello extends AnyHello {
  readonly routerId: RouterId;
  /** Another one has no place among its siblings. */
  readonly region: string;
}

/** One attempt, as far as it weighs on its target. */
export interface SiblingSend {
  /** Of its router, which gives none twice. */
  readonly no: number;
  readonly replica: ReplicaId;
  readonly rank: number;
  /** Of the ledger event that told its agent; null while none has. */
  readonly seq: number | null;
  /** Sums of its prefill (shared/model/cost-curve.ts). */
  readonly promptTokens: number;
  readonly uncachedTokens: number;
  readonly contextTokens2: number;
  /** Requests that an engine makes of it and counts. Absent: 1. */
  readonly requests?: number | undefined;
  /** By so much its target's working set grows. Absent: unknown. */
  readonly growthTokens?: number | undefined;
  /** A conversation that begins, and enters without KV room for its age. Absent: it is none. */
  readonly aged?: boolean | undefined;
}

/** Of what waits for KV room, the one that goes first. */
export interface SiblingHeldFirst {
  readonly tenant: string;
  /** Lower is more urgent. */
  readonly priority: number;
  /** It goes on, and its cache was evicted. */
  readonly returning: boolean;
  /** Since it arrived, ms. */
  readonly ageMs: number;
  /** From its arrival until it may enter without room, ms. */
  readonly patienceMs: number;
}

export interface SiblingHeld {
  readonly pool: PoolId;
  /** Absent: nothing waits there. */
  readonly first?: SiblingHeldFirst | undefined;
}

export interface SiblingSends {
  readonly kind: 'sends';
  /** All that was told before is over: what follows is all there is. Absent: it goes on. */
  readonly anew?: boolean | undefined;
  readonly opened: readonly SiblingSend[];
  /** Numbers of those that have left the prefill, or are over. */
  readonly past: readonly number[];
  /** Of pools of which it has changed; with `anew`, of all where something waits. Absent: none, or the router says nothing of it. */
  readonly held?: readonly SiblingHeld[] | undefined;
}

export type SiblingChildMessage = SiblingHello | SiblingSends;

export interface SiblingWelcome extends AnyWelcome {
  /** Link addresses of all workers of this router, as the one who dials reaches them. */
  readonly siblings: readonly string[];
}

export type SiblingParentMessage = SiblingWelcome;
