// The region's other routers: what they send, as they tell it on links of their own, and what they are told of this one.
// With it goes who waits for KV room (`core-held-order.ts`).
//
//   hears   a link that a sibling has dialled: its sends weigh on their targets beside this router's own, until a report
//           includes them, they are past their prefill, or the link ends. What it says is of its own sends alone
//   tells   a link that this router has dialled: all open sends first, then what is new, together, BATCH_MS apart at least
//
// A sibling that is away is as one that sends nothing: then agents' reports alone tell of it.

import { ChurnMap } from '../../shared/lib/churn.ts';
import type { LinkId, PoolId, RouterId } from '../../shared/model/ids.ts';
import { MAX_LEASE_REQUESTS, MAX_OPEN_LEASES } from '../../shared/protocol/limits.ts';
import {
  MAX_OPENED,
  type SiblingSend,
  type SiblingSends,
} from '../../shared/protocol/sibling-messages.ts';
import { OthersWork, type OthersSend } from '../policy/others-work.ts';
import type { HeldPlace } from '../policy/queue-held.ts';
import { allHeld, forgetHeld, hasHeldNews, hearHeld, takeHeldNews } from './core-held-order.ts';
import type { LeaseState, RegionalState, TargetState } from './core-state.ts';

/** ms between two messages: a few of what the network takes, and fifty messages a second to each sibling at most. */
const BATCH_MS = 20;
/** Siblings that are heard at a time. */
const SIBLINGS_MAX = 256;

/** A send of a sibling, and where it weighs. */
interface Heard {
  readonly target: TargetState;
  readonly work: OthersWork;
  readonly send: OthersSend;
}

export interface Sibling {
  readonly link: LinkId;
  readonly router: RouterId;
  readonly sends: ChurnMap<number, Heard>;
  /** Of each pool where it holds anything back for KV room, the one that goes first. */
  readonly held: Map<PoolId, HeldPlace>;
  /** Whether it says that. */
  tellsHeld: boolean;
}

export class Siblings {
  readonly heard = new Map<LinkId, Sibling>();
  readonly told = new Set<LinkId>();
  /** This router's sends that are not past their prefill, by the numbers that siblings know them by. */
  readonly open = new ChurnMap<number, LeaseState>();
  /** Of `open`, what siblings are yet to be told, and the numbers of what has left it since. */
  opened = new Set<LeaseState>();
  past: number[] = [];
  toldMs = Number.NEGATIVE_INFINITY;
  numbers = 0;
  /** Of those from this number on nobody has been told. */
  toldBelow = 0;
}

// ── this router's own sends ────────────────────────────────────────────────────────────────────────────

/** It weighs on its target from here on. */
export function noteOpened({ siblings }: RegionalState, lease: LeaseState): void {
  lease.no = siblings.numbers;
  siblings.numbers += 1;
  siblings.open.set(lease.no, lease);
  noteTold(siblings, lease);
}

/** Its agent has been told of it under another number. */
export function noteRetold({ siblings }: RegionalState, lease: LeaseState): void {
  if (siblings.open.has(lease.no)) noteTold(siblings, lease);
}

/** It is past its prefill, or over. */
export function notePast({ siblings }: RegionalState, lease: LeaseState): void {
  if (!siblings.open.delete(lease.no)) return;
  siblings.opened.delete(lease);
  if (siblings.told.size > 0 && lease.no < siblings.toldBelow) siblings.past.push(lease.no);
}

function noteTold(siblings: Siblings, lease: LeaseState): void {
  if (siblings.told.size > 0) siblings.opened.add(lease);
}

/** A sibling listens: it is told of all that is open. */
export function siblingListens(state: RegionalState, link: LinkId): void {
  const { siblings } = state;
  siblings.told.add(link);
  siblings.toldBelow = siblings.numbers;
  const opened = [...siblings.open.values()].map(sendOf);
  for (let k = 0; k === 0 || k < opened.length; k += MAX_OPENED) {
    const message = messageOf(opened.slice(k, k + MAX_OPENED), []);
    state.emit({
      kind: 'sendSibling',
      link,
      message: k === 0 ? { ...message, anew: true, held: allHeld(state) } : message,
    });
  }
}

export function siblingDeaf({ siblings }: RegionalState, link: LinkId): void {
  siblings.told.delete(link);
  if (siblings.told.size > 0) return;
  siblings.opened.clear();
  siblings.past.length = 0;
}

/** Says what is new, where enough time has passed since the last time. */
export function tellSiblings(state: RegionalState): void {
  const { siblings } = state;
  if ((tellSiblingsWakeMs(state) ?? Number.POSITIVE_INFINITY) > state.nowMs) return;
  const held = takeHeldNews(state);
  const opened = [...siblings.opened].map(sendOf);
  const { past } = siblings;
  if (held.length === 0 && opened.length === 0 && past.length === 0) return;
  siblings.opened = new Set();
  siblings.past = [];
  siblings.toldMs = state.nowMs;
  siblings.toldBelow = siblings.numbers;
  for (let k = 0; k === 0 || k < opened.length || k < past.length; k += MAX_OPENED) {
    const upTo = k + MAX_OPENED;
    const message = messageOf(opened.slice(k, upTo), past.slice(k, upTo));
    const more = k === 0 && held.length > 0 ? { held } : {};
    state.emit({ kind: 'tellSiblings', message: { ...message, ...more } });
  }
}

/** When siblings are told next; null where there is nothing to tell. */
export function tellSiblingsWakeMs(state: RegionalState): number | null {
  const { siblings } = state;
  const sends = siblings.opened.size + siblings.past.length;
  if (sends === 0 && !hasHeldNews(state)) return null;
  return siblings.toldMs + BATCH_MS;
}

function messageOf(opened: readonly SiblingSend[], past: readonly number[]): SiblingSends {
  return { kind: 'sends', opened, past };
}

function sendOf(lease: LeaseState): SiblingSend {
  const { no, target, sums, sentSeq, facts, growthTokens } = lease;
  const { requests } = facts;
  return {
    no,
    replica: target.replica.id,
    rank: target.rank,
    seq: sentSeq,
    promptTokens: sums.prompt,
    uncachedTokens: sums.uncached,
    contextTokens2: sums.context,
    ...(requests === undefined ? {} : { requests: Math.min(requests, MAX_LEASE_REQUESTS) }),
    growthTokens,
    ...(lease.aged ? { aged: true } : {}),
  };
}

// ── what siblings send ─────────────────────────────────────────────────────────────────────────────────

export function siblingUp(state: RegionalState, link: LinkId, router: RouterId): void {
  const { heard } = state.siblings;
  const older = [...heard.values()].find((other) => other.router === router);
  if (older !== undefined) {
    siblingDown(state, older.link);
    state.emit({ kind: 'closeSibling', link: older.link, reason: 'duplicate' });
  }
  if (heard.size >= SIBLINGS_MAX) {
    state.limit('siblings');
    state.emit({ kind: 'closeSibling', link, reason: 'flooded' });
    return;
  }
  const nothing = { sends: new ChurnMap<number, Heard>(), held: new Map<PoolId, HeldPlace>() };
  heard.set(link, { link, router, ...nothing, tellsHeld: false });
}

export function siblingDown(state: RegionalState, link: LinkId): void {
  const sibling = state.siblings.heard.get(link);
  if (sibling === undefined) return;
  state.siblings.heard.delete(link);
  forgetSends(sibling);
  forgetHeld(state, sibling);
}

export function siblingSaid(state: RegionalState, link: LinkId, message: SiblingSends): void {
  const sibling = state.siblings.heard.get(link);
  if (sibling === undefined) return;
  if (message.anew === true) forgetSends(sibling);
  hearHeld(state, sibling, message);
  for (const send of message.opened) hear(state, sibling, send);
  for (const no of message.past) endHeard(sibling, no);
}

/** The agent's reports include events of other routers up to these numbers. */
export function noteOthersAcked(
  target: TargetState,
  acked: readonly { readonly router: RouterId; readonly seq: number }[],
): void {
  for (const { router, seq } of acked) {
    target.others ??= new OthersWork();
    target.others.acknowledged(router, seq);
  }
  touch(target);
}

function hear(state: RegionalState, sibling: Sibling, said: SiblingSend): void {
  const known = sibling.sends.get(said.no);
  if (known !== undefined) {
    known.work.toldAnew(known.send, said.seq);
    return touch(known.target);
  }
  const target = state.replicas.get(said.replica)?.targets[said.rank];
  if (target === undefined) return;
  if (sibling.sends.size >= MAX_OPEN_LEASES) return state.limit('sibling_sends');
  const work = (target.others ??= new OthersWork());
  const { promptTokens: prompt, uncachedTokens: uncached, contextTokens2: context } = said;
  const sums = { prompt, uncached, context };
  const { seq, requests = 1, growthTokens = 0 } = said;
  const send = work.opened(sibling.router, { sums, requests, growthTokens, seq });
  sibling.sends.set(said.no, { target, work, send });
  if (said.aged === true) target.agedMs = state.nowMs;
  touch(target);
}

function endHeard(sibling: Sibling, no: number): void {
  const heard = sibling.sends.get(no);
  if (heard === undefined) return;
  sibling.sends.delete(no);
  heard.work.ended(heard.send);
  touch(heard.target);
  // What waits here may have room there now.
  heard.target.replica.pool.dirty = true;
}

function forgetSends(sibling: Sibling): void {
  for (const no of [...sibling.sends.keys()]) endHeard(sibling, no);
}

/** What waits there is another thing now. */
function touch(target: TargetState): void {
  target.replica.pool.roster.touch(target);
}
