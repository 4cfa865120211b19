// Attempts and their leases: exactly one per attempt, opened here, told to the agent, and released
// here exactly once whatever happens to the attempt.
//
// What is added to a target's reports are the `sent`s that no report includes yet. A first token or
// an end that no report includes cancels such a `sent` and otherwise changes nothing: the report
// still counts it and will say so.

import { addSums, resetSums, subtractSums } from '../../shared/model/cost-curve.ts';
import type { Decision } from '../../shared/model/decision.ts';
import { leaseIdOf, type Incarnation, type LeaseId } from '../../shared/model/ids.ts';
import type {
  AttemptOutcome,
  ChainFacts,
  LeaseFacts,
  OpenLease,
  RouterMessage,
  Usage,
} from '../../shared/protocol/messages.ts';
import { attemptDeadlines, type Deadlines } from '../policy/deadlines.ts';
import { contextLimit } from '../policy/filter.ts';
import { isUnfound } from '../policy/working-set.ts';
import { medianKnown } from '../policy/unknown.ts';
import { isLight } from './core-decide.ts';
import { targetsOf } from './core-ready.ts';
import type { Scored } from './core-weighing.ts';
import {
  entersAged,
  growthTokens,
  noteAdmitted,
  noteClaim,
  restedMs,
  type Room,
} from './core-working-set.ts';
import { noteOpened, notePast, noteRetold } from './core-siblings.ts';
import type { LeaseState, RegionalState, RequestState, TargetState } from './core-state.ts';

type Unsequenced = RouterMessage extends infer M
  ? M extends { readonly seq: number }
    ? Omit<M, 'replica' | 'rank' | 'seq'>
    : never
  : never;

/** Sends the request to the chosen target. */
export function openAttempt(
  state: RegionalState,
  request: RequestState,
  chosen: { scored: Scored; decision: Decision; room: Room | null },
): void {
  const { scored, room } = chosen;
  const { target } = scored;
  request.attempts += 1;
  const deadlines = deadlinesOf(state, request, scored);
  const lease = newLease(state, request, { scored, deadlines, room });
  noteAdmitted(state, lease, room);
  state.leases.set(lease.id, lease);
  request.lease = lease;
  target.attempts += 1;
  if (!isLight(request)) {
    enterLedger(state, lease, scored);
    noteClaim(state, lease);
    request.pool.sight.sent(scored.prefillMs);
    request.pool.kvFill.wrote(lease.growthTokens, state.nowMs);
  }
  state.emit({
    kind: 'attempt',
    decision: chosen.decision,
    attempt: {
      lease: lease.id,
      request: request.request.id,
      number: request.attempts,
      target: { replica: target.replica.id, rank: target.rank },
      incarnation: target.incarnation,
      pool: request.pool.id,
      url: target.replica.url,
      rankHeader: target.replica.targets.length > 1 ? target.rank : null,
      engineModel: request.engineModel,
      connectTimeoutMs: state.settings.connectTimeoutMs,
      firstTokenTimeoutMs: deadlines.firstTokenTimeoutMs,
      stallTimeoutMs: deadlines.stallTimeoutMs,
      queueMs: state.nowMs - request.arrivedMs,
      waitMs: scored.load.waitMs,
      prefillMs: scored.prefillMs,
      predictedTtftMs:
        scored.learned && !isLight(request) ? scored.load.waitMs + scored.prefillMs : null,
      predictedPromptTokens: scored.promptTokens,
      predictedCachedTokens: scored.cachedTokens,
    },
  });
  if (isLight(request)) return;
  const rested = restedMs(request);
  const sent = { ...lease.facts, kind: 'sent', agoMs: 0 } as const;
  lease.sentSeq = tell(state, target, rested === null ? sent : { ...sent, restedMs: rested });
  noteOpened(state, lease);
}

/** The attempt weighs on its target from here on, and its prompts may be found there. */
function enterLedger(state: RegionalState, lease: LeaseState, scored: Scored): void {
  const { target, request } = lease;
  target.leases.set(lease.id, lease);
  target.unacked.add(lease);
  addSums(target.unackedSums, lease.sums);
  addSums(target.openSums, lease.sums);
  touch(target);
  target.released.requests += 1;
  target.released.prefillMs += scored.prefillMs;
  target.breaker.sent(lease.id, state.nowMs);
  for (const chain of chainsOf(request)) state.index.hope(target.slot, chain);
}

/** Prompts that an engine may find again. Inputs of embeddings are documents: no other shares their beginning. */
export function chainsOf({ request }: RequestState): RequestState['request']['prompts'] {
  return request.work === 'prefill' ? [] : request.prompts;
}

export function noteFirstToken(state: RegionalState, lease: LeaseState): void {
  if (lease.firstTokenMs !== null) return;
  lease.firstTokenMs = state.nowMs;
  lease.target.firstTokenMs = state.nowMs;
  endPrefill(state, lease);
  lease.target.breaker.showedLife(lease.id, state.settings);
  if (lease.sentSeq !== null) {
    tell(state, lease.target, { kind: 'firstToken', lease: lease.id, agoMs: 0 });
  }
}

/** The one release of a lease. */
export function releaseLease(
  state: RegionalState,
  lease: LeaseState,
  end: { outcome: AttemptOutcome; usage: Usage | null },
): void {
  const { target } = lease;
  endPrefill(state, lease);
  state.leases.delete(lease.id);
  target.leases.delete(lease.id);
  target.unacked.delete(lease);
  settle(target);
  if (lease.request.lease === lease) lease.request.lease = null;
  if (lease.firstTokenMs === null && end.outcome !== 'complete') {
    for (const chain of lease.facts.chains) state.index.unhope(target.slot, chain.hashes);
  }
  if (lease.sentSeq !== null) {
    tell(state, target, { kind: 'ended', lease: lease.id, agoMs: 0, ...end });
  }
}

/**
 * The agent's ledger is to hold exactly these from now on. Sequence numbers go on, so that a report on its way acknowledges
 * nothing sent after it, whichever router has it.
 */
export function tellLeases(state: RegionalState, target: TargetState, newLink: boolean): void {
  const { link } = target.replica;
  if (link === null) return;
  if (target.leasesFor !== undefined) target.seq += 1;
  target.unconfirmed = true;
  target.asked = { seq: target.seq, atMs: state.nowMs };
  target.leasesFor = target.incarnation;
  const open: OpenLease[] = [];
  for (const lease of target.leases.values()) {
    if (newLink || lease.sentSeq === null) {
      lease.sentSeq = target.seq;
      noteRetold(state, lease);
    }
    open.push({
      ...lease.facts,
      sentAgoMs: state.nowMs - lease.sentMs,
      firstTokenAgoMs: lease.firstTokenMs === null ? null : state.nowMs - lease.firstTokenMs,
    });
  }
  const { replica, rank } = target;
  state.emit({
    kind: 'send',
    link: link.id,
    message: { kind: 'leases', replica: replica.id, rank, seq: target.seq, open },
  });
}

/** A report includes this router's events up to `ackedSeq`; below 0 it includes none. */
export function acknowledge(target: TargetState, ackedSeq: number, nowMs: number): void {
  const { asked } = target;
  if (asked !== null && ackedSeq >= asked.seq) {
    target.replica.pool.sight.acknowledged(nowMs - asked.atMs, nowMs);
    target.asked = null;
  }
  if (target.unconfirmed || ackedSeq < 0) {
    recount(target, ackedSeq);
    target.unconfirmed = ackedSeq < 0;
    return;
  }
  for (const lease of target.unacked) {
    if (lease.sentSeq === null || lease.sentSeq > ackedSeq) break;
    target.unacked.delete(lease);
    if (!lease.pastPrefill) subtractSums(target.unackedSums, lease.sums);
  }
  settle(target);
}

/** The engine process is another one: what was sent to the old one weighs on nobody. */
export function orphanLeases(
  state: RegionalState,
  target: TargetState,
  incarnation: Incarnation,
): void {
  for (const lease of target.leases.values()) {
    if (lease.orphan || lease.facts.incarnation === null) continue;
    if (lease.facts.incarnation === incarnation) continue;
    endPrefill(state, lease);
    lease.orphan = true;
    target.unacked.delete(lease);
  }
  settle(target);
}

/**
 * Requests that show no first token leave the sums at their predicted end where no report says
 * better.
 */
export function passPredicted(state: RegionalState, target: TargetState): void {
  const { nowMs } = state;
  for (const lease of target.leases.values()) {
    if (!lease.facts.streamed && !lease.pastPrefill && lease.prefilledMs <= nowMs)
      endPrefill(state, lease);
  }
  settle(target);
}

function recount(target: TargetState, ackedSeq: number): void {
  touch(target);
  target.unacked.clear();
  resetSums(target.unackedSums);
  for (const lease of target.leases.values()) {
    if (lease.orphan || (lease.sentSeq !== null && lease.sentSeq <= ackedSeq)) continue;
    target.unacked.add(lease);
    if (!lease.pastPrefill) addSums(target.unackedSums, lease.sums);
  }
}

function newLease(
  state: RegionalState,
  request: RequestState,
  plan: { scored: Scored; deadlines: Deadlines; room: Room | null },
): LeaseState {
  const { scored, deadlines } = plan;
  const unfound = isUnfound(scored.matchedTokens, scored.promptTokens);
  const id = leaseIdOf(request.request.id, request.attempts);
  return {
    id,
    request,
    target: scored.target,
    facts: factsOf(id, request, scored),
    sums: scored.sums,
    sentMs: state.nowMs,
    no: -1,
    sentSeq: null,
    firstTokenMs: null,
    pastPrefill: isLight(request),
    prefilledMs: state.nowMs + scored.load.waitMs + scored.prefillMs,
    timeoutMs: deadlines.firstTokenTimeoutMs,
    growthTokens: growthTokens(request, scored),
    aged: entersAged(scored, plan.room),
    unfound,
    moved: unfound && plan.room?.acts !== true,
    byClient: deadlines.byClient,
    extended: false,
    aborting: false,
    orphan: false,
  };
}

/** As an engine counts them: each prompt of a list, and each of its answers, is a request there. */
function engineRequests({ request }: RequestState): number {
  const { prompts, answers = 1 } = request;
  return Math.max(1, prompts.length) * answers;
}

function factsOf(lease: LeaseId, request: RequestState, scored: Scored): LeaseFacts {
  const { prompts, stream, maxTokens, work } = request.request;
  const parts: Record<string, number> = {};
  let promptBytes = 0;
  for (const prompt of prompts) {
    promptBytes += prompt.bytes;
    for (const [kind, count] of Object.entries(prompt.parts)) {
      parts[kind] = (parts[kind] ?? 0) + count;
    }
  }
  const chains = chainsOf(request).map((prompt): ChainFacts => {
    const turnEnds = new Uint32Array(2 * prompt.turnEnds.length);
    prompt.turnEnds.forEach((end, k) => turnEnds.set([end.hashLow, end.hashHigh], 2 * k));
    const { hashLow: endLow, hashHigh: endHigh } = prompt.end;
    return { hashes: prompt.hashes, endLow, endHigh, turnEnds };
  });
  const facts = {
    lease,
    incarnation: scored.target.incarnation,
    promptTokens: scored.promptTokens,
    uncachedTokens: scored.sums.uncached,
    matchedTokens: scored.matchedTokens,
    promptBytes,
    parts,
    // Its whole answer shows the end of its prefill, as a first token does.
    streamed: stream || work === 'prefill',
    maxTokens,
    chains,
  };
  const requests = engineRequests(request);
  return requests > 1 ? { ...facts, requests } : facts;
}

function deadlinesOf(state: RegionalState, request: RequestState, scored: Scored): Deadlines {
  const { stream, maxTokens, clientDeadlineMs } = request.request;
  const { report } = scored.target;
  const contextTokens = contextLimit(report?.models ?? [], request.engineModel) ?? null;
  return attemptDeadlines(
    {
      stream,
      waitMs: scored.load.waitMs,
      prefillMs: scored.prefillMs,
      maxTokens,
      ...(contextTokens === null ? {} : { contextTokens }),
      itlMs: report?.itlMs ?? poolItlMs(request),
      largestPrefillMs: report?.largestPrefillMs ?? null,
      clientLeftMs:
        clientDeadlineMs === null ? null : request.arrivedMs + clientDeadlineMs - state.nowMs,
    },
    state.settings,
  );
}

function poolItlMs(request: RequestState): number | null {
  const itls: (number | null)[] = [];
  for (const target of targetsOf(request.pool)) itls.push(target.report?.itlMs ?? null);
  return medianKnown(itls);
}

/** Sends a ledger event; its sequence number, null where no link is. */
function tell(state: RegionalState, target: TargetState, event: Unsequenced): number | null {
  const { replica, rank } = target;
  if (replica.link === null || target.leasesFor === undefined) return null;
  target.seq += 1;
  target.asked ??= { seq: target.seq, atMs: state.nowMs };
  const message = { ...event, replica: replica.id, rank, seq: target.seq } as RouterMessage;
  state.emit({ kind: 'send', link: replica.link.id, message });
  return target.seq;
}

function endPrefill(state: RegionalState, lease: LeaseState): void {
  if (lease.pastPrefill) return;
  lease.pastPrefill = true;
  notePast(state, lease);
  touch(lease.target);
  subtractSums(lease.target.openSums, lease.sums);
  if (lease.target.unacked.has(lease)) subtractSums(lease.target.unackedSums, lease.sums);
}

/** Sums of nothing are nothing: no rounding is carried on. */
function settle(target: TargetState): void {
  touch(target);
  if (target.unacked.size === 0) resetSums(target.unackedSums);
  if (target.leases.size === 0) resetSums(target.openSums);
}

/** What this router has under way there is another thing now. */
function touch(target: TargetState): void {
  target.replica.pool.roster.touch(target);
}
