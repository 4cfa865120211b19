// Attempts: opened with all that a region has to know of them, watched, and closed exactly once.

import { leaseIdOf } from '../../shared/model/ids.ts';
import type { GlobalDecision } from '../../shared/model/global-decision.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import { attemptDeadlines, type Deadlines } from '../policy/deadlines.ts';
import type { GlobalAttempt, HintedTimes, TenantFacts } from './events.ts';
import { noteResumed, settlePause } from './core-pause.ts';
import { noteSend } from './core-regions.ts';
import type { ConversationTurn, GlobalState, LeaseState, RequestState } from './core-state.ts';
import { chainOf, idKeyOf, nameOf } from './core-conversation.ts';
import type { Place, Weighing } from './core-weigh.ts';

export interface Opening {
  readonly decision: GlobalDecision;
  readonly place: Place;
  readonly weighing: Weighing;
}

export function openAttempt(state: GlobalState, request: RequestState, opening: Opening): void {
  const { place, decision } = opening;
  const { region, pool, prefillMs } = place;
  const isLight = request.request.work === 'light';
  request.attempts += 1;
  request.promisedTokens = promisedTokens(opening);
  request.promiseKept = null;
  const id = leaseIdOf(request.request.id, request.attempts);
  const seq = noteSend(state, pool, isLight ? 0 : prefillMs);
  const deadlines = deadlinesOf(state, request, place);
  const lease: LeaseState = {
    id,
    request,
    region,
    pool,
    seq,
    sentMs: state.nowMs,
    timeoutMs: deadlines.firstTokenTimeoutMs,
    byClient: deadlines.byClient,
    conversation: turnOf(state, request, opening),
    firstTokenMs: null,
    aborting: false,
    withdrawn: false,
  };
  request.lease = lease;
  state.leases.set(id, lease);
  region.breaker.sent(id, state.nowMs);
  if (region.silence.silent) region.silence.trial ??= id;
  noteResumed(state, lease, isLight ? 0 : prefillMs);
  state.emit({
    kind: 'attempt',
    attempt: attemptOf(state, lease, { opening, deadlines }),
    decision,
  });
}

/** Written out member by member: put together from parts it takes several times as long. */
function attemptOf(
  state: GlobalState,
  lease: LeaseState,
  { opening, deadlines }: { readonly opening: Opening; readonly deadlines: Deadlines },
): GlobalAttempt {
  const { request, region, pool, conversation } = lease;
  const { weighing, place } = opening;
  const { tenant, homeByRule } = weighing;
  const { estimate } = place;
  const away = homeByRule !== null && homeByRule !== region;
  const sinceMs = conversation?.sinceMs ?? state.nowMs;
  return {
    lease: lease.id,
    request: request.request.id,
    number: request.attempts,
    seq: lease.seq,
    url: region.config.baseUrl,
    region: region.id,
    pool: pool.id,
    connectTimeoutMs: state.settings.connectTimeoutMs,
    firstTokenTimeoutMs: deadlines.firstTokenTimeoutMs,
    stallTimeoutMs: deadlines.stallTimeoutMs,
    // What the signed context says.
    tenant: request.request.tenant,
    saltGroup: tenant.saltGroup,
    residency: tenant.residency,
    zones: zonesOf(state, tenant),
    conversation: toldKeyOf(state, lease.request, away),
    revisions: weighing.revisions,
    byId: conversation?.vouched === true ? conversation.idKey : null,
    hint: request.request.hint === undefined ? null : hintedTimes(state, conversation),
    away,
    awayForMs: away ? Math.max(0, state.nowMs - sinceMs) : 0,
    deadlineInMs: clientLeftMs(state, request),
    // What the decision expected.
    predictedTtftMs: estimate === null ? null : estimate.ttftMs - estimate.costMs,
    networkMs: estimate?.networkMs ?? null,
    queueMs: estimate?.queueMs ?? null,
    prefillMs: estimate?.prefillMs ?? null,
    predictedPromptTokens: weighing.promptTokens,
    predictedCachedTokens: place.cachedTokens,
  };
}

/** The region has begun to answer: it holds the conversation now, and its prefill is over. */
export function noteServed(state: GlobalState, lease: LeaseState, answerTokens: number): void {
  lease.pool.own.seen(lease.seq);
  lease.pool.ramp?.began(lease.id, state.nowMs);
  settlePause(state, lease.pool);
  const turn = lease.conversation;
  if (turn === null) return;
  const { name, idKey, promptTokens, sinceMs, movedMs } = turn;
  const tokens = promptTokens + answerTokens;
  const region = lease.region.id;
  const dwelling = { region, tokens, atMs: state.nowMs, sinceMs, movedMs };
  state.memory.noted(name, dwelling, state.settings);
  if (idKey === null) return;
  const vouched = lease.request.promiseKept ?? turn.vouched;
  state.memory.noted(idKey, { ...dwelling, vouched }, state.settings);
}

export function closeLease(state: GlobalState, lease: LeaseState, { kind }: AttemptResult): void {
  state.leases.delete(lease.id);
  lease.request.lease = null;
  const { silence } = lease.region;
  if (silence.trial === lease.id) silence.trial = null;
  const { ramp } = lease.pool;
  // Of a whole answer no first token is told.
  if (kind === 'complete') ramp?.began(lease.id, state.nowMs);
  ramp?.ended(lease.id, kind === 'serverFault' || kind === 'connectFailed');
  lease.pool.own.seen(lease.seq);
}

/**
 * The first-token deadline has passed: a region that gives first tokens to others may have this one in its queue, and is
 * waited for; any other has failed it.
 */
export function firstTokenLate(state: GlobalState, lease: LeaseState): void {
  if (lease.aborting) return;
  const { settings, nowMs } = state;
  const isLively = nowMs - lease.region.firstTokenMs <= settings.firstTokenExtendWindowMs;
  const leftMs = lease.sentMs + settings.firstTokenMaxMs - nowMs;
  if (isLively && !lease.byClient && leftMs > 0) {
    const clientMs = clientLeftMs(state, lease.request) ?? Number.POSITIVE_INFINITY;
    const timeoutMs = Math.max(0, Math.min(leftMs, settings.firstTokenExtendWindowMs, clientMs));
    state.emit({ kind: 'extend', lease: lease.id, timeoutMs });
    return;
  }
  lease.aborting = true;
  state.emit({ kind: 'abort', lease: lease.id, reason: 'first_token_timeout' });
}

export function clientLeftMs(
  state: GlobalState,
  { request, arrivedMs }: RequestState,
): number | null {
  if (request.clientDeadlineMs === null) return null;
  return Math.max(0, arrivedMs + request.clientDeadlineMs - state.nowMs);
}

function deadlinesOf(state: GlobalState, request: RequestState, place: Place) {
  const { stream, maxTokens } = request.request;
  const { estimate, prefillMs } = place;
  const { settings } = state;
  // Whatever a region says of itself: who never hears from it is told in time.
  const within = (ms: number): number => Math.min(ms, settings.firstTokenMaxMs);
  const waitMs = within((estimate?.queueMs ?? 0) + (estimate?.networkMs ?? 0));
  return attemptDeadlines(
    {
      stream,
      maxTokens,
      waitMs,
      prefillMs: within(prefillMs),
      itlMs: null,
      largestPrefillMs: null,
      clientLeftMs: clientLeftMs(state, request),
    },
    settings,
  );
}

/** By which the region tells of it where it is away, and a hint does; nobody else is told. */
function toldKeyOf(state: GlobalState, { request }: RequestState, away: boolean): string | null {
  const chain = away || request.hint !== undefined ? chainOf(request) : null;
  return chain === null ? null : state.deps.keys.keyOf(request.tenant, chain.end);
}

function hintedTimes(state: GlobalState, turn: ConversationTurn | null): HintedTimes | null {
  if (turn === null) return null;
  const { sinceMs, movedMs } = turn;
  return {
    sinceAgoMs: Math.max(0, state.nowMs - sinceMs),
    movedAgoMs: movedMs === null ? null : Math.max(0, state.nowMs - movedMs),
  };
}

/** Of its history, as its id tells it. */
function promisedTokens({ place, weighing }: Opening): number | null {
  const { byId, promptTokens } = weighing;
  return byId?.region === place.region.id ? Math.min(byId.tokens, promptTokens) : null;
}

/** Of the regions that its tenant is bound to; null where it is bound to none. */
function zonesOf(state: GlobalState, { residency }: TenantFacts): readonly string[] | null {
  if (residency === null) return null;
  const zones = new Set<string>();
  for (const id of [...residency.allow, ...residency.fallback]) {
    const zone = state.regions.get(id)?.config.zone;
    if (zone !== undefined) zones.add(zone);
  }
  return [...zones];
}

function turnOf(
  state: GlobalState,
  request: RequestState,
  { place, weighing, decision }: Opening,
): ConversationTurn | null {
  const chain = chainOf(request.request);
  if (chain === null) return null;
  const { conversation, promptTokens } = weighing;
  const lives = conversation.kind === 'lives' ? conversation.dwelling : null;
  const stays = lives !== null && lives.region === place.region.id;
  const movedNow = decision.kind === 'spill' ? state.nowMs : null;
  return {
    name: nameOf(request.request.tenant, chain.end),
    idKey: idKeyOf(request),
    vouched: weighing.byId?.vouched === true,
    promptTokens,
    sinceMs: stays ? lives.sinceMs : state.nowMs,
    movedMs: stays ? lives.movedMs : movedNow,
  };
}
