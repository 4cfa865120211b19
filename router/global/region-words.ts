// What a global router says of an attempt: the region and pool it went to, and what was estimated of it.

import type { GlobalDecision, RegionCandidate } from '../../shared/model/global-decision.ts';
import type { PlacementHints } from '../../shared/lib/placement-hint.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import type { LabelValues } from '../../shared/runtime/metrics.ts';
import { HINT_HEADER } from '../gateway/conversation-ids.ts';
import { fitting, tenth } from '../gateway/explain-header.ts';
import type { AnswerHeaders } from '../gateway/reply.ts';
import type { Outgoing, RoutedFacts, TierWords } from '../gateway/tier-words.ts';
import type { UpstreamOrder } from '../gateway/upstream.ts';
import type { GlobalAttempt, HintedTimes } from './events.ts';
import { regionOrder, type RegionOrderDeps } from './region-order.ts';

const REFUSALS_LOGGED = 16;

export const NOWHERE: LabelValues = { region: 'none', pool: 'none' };

export interface RegionWordsDeps extends RegionOrderDeps {
  readonly hints: Pick<PlacementHints, 'sign'>;
}

type Place = Readonly<Record<'region' | 'pool', string>>;

export class RegionWords implements TierWords<GlobalAttempt, GlobalDecision> {
  readonly interrupted = 'The region failed while it was answering; the answer is incomplete.';
  private readonly deps: RegionWordsDeps;
  /** Of each region the last labels, the same object again: metrics find their rows by it. */
  private readonly places = new Map<RegionId, Place>();

  constructor(deps: RegionWordsDeps) {
    this.deps = deps;
  }

  place(attempt: GlobalAttempt | null): LabelValues {
    if (attempt === null) return NOWHERE;
    const { region, pool } = attempt;
    const last = this.places.get(region);
    if (last?.pool === pool) return last;
    const place = { region, pool };
    this.places.set(region, place);
    return place;
  }

  logFields(attempt: GlobalAttempt | null, decision: GlobalDecision | null) {
    return {
      refusedBy: decision === null ? null : refusals(decision),
      region: attempt?.region ?? null,
      pool: attempt?.pool ?? null,
      away: attempt?.away === true ? 'yes' : null,
      networkMs: attempt?.networkMs ?? null,
      waitMs: attempt?.queueMs ?? null,
      prefillMs: attempt?.prefillMs ?? null,
      predictedTtftMs: attempt?.predictedTtftMs ?? null,
      predictedPromptTokens: attempt?.predictedPromptTokens ?? null,
      predictedCachedTokens: attempt?.predictedCachedTokens ?? null,
    };
  }

  headers(facts: RoutedFacts<GlobalAttempt, GlobalDecision>): AnswerHeaders {
    const { attempt, decision, attempts, queueMs } = facts;
    const headers: AnswerHeaders = { 'server-timing': facts.timing };
    if (decision !== null && facts.explain) headers['x-spillway-explain'] = explained(decision);
    if (decision !== null) headers['x-spillway-route-reason'] = decision.reason;
    if (attempt === null) return headers;
    headers['x-spillway-region'] = attempt.region;
    headers['x-spillway-attempts'] = String(attempts);
    if (attempt.hint !== null) headers[HINT_HEADER] = this.hintFor(attempt, attempt.hint);
    if (queueMs !== null) headers['x-spillway-queue-ms'] = whole(queueMs);
    if (attempt.predictedTtftMs !== null) {
      headers['x-spillway-predicted-ttft-ms'] = whole(attempt.predictedTtftMs);
    }
    return headers;
  }

  /** What its client may bring along with the next turn. */
  private hintFor(attempt: GlobalAttempt, { sinceAgoMs, movedAgoMs }: HintedTimes): string {
    const { conversation: turnKey, byId: idKey, region, tenant } = attempt;
    const wallMs = this.deps.wallMs();
    const placement = {
      ...{ turnKey, idKey, region, tokens: attempt.predictedPromptTokens, atMs: wallMs },
      sinceMs: Math.max(0, wallMs - sinceAgoMs),
      movedMs: movedAgoMs === null ? null : Math.max(0, wallMs - movedAgoMs),
    };
    return this.deps.hints.sign(placement, tenant);
  }

  /** A prompt has one token at least: none stands for no prompt, and nothing was predicted of it. */
  cachedTokens(attempt: GlobalAttempt): number | null {
    return attempt.predictedPromptTokens > 0 ? attempt.predictedCachedTokens : null;
  }

  order(outgoing: Outgoing, attempt: GlobalAttempt): UpstreamOrder {
    return regionOrder(outgoing, attempt, this.deps);
  }

  /** Which names are adapters is known in the regions, and keeps no conversation apart here. */
  loraOf(): null {
    return null;
  }
}

/** Why a refused request could go nowhere: each region by its name and reason, in their order. */
function refusals({ kind, candidates }: GlobalDecision): string | null {
  if (kind !== 'refuse' && kind !== 'shed') return null;
  const all = candidates.flatMap(({ region, removed }) =>
    removed === null ? [] : [`${region} ${removed}`],
  );
  const shown = all.slice(0, REFUSALS_LOGGED);
  const more = all.length - shown.length;
  return all.length === 0 ? null : [...shown, ...(more === 0 ? [] : [`${more} more`])].join(', ');
}

function explained(decision: GlobalDecision): string {
  const { kind, reason, region, pool, conversation, candidates } = decision;
  return fitting(candidates.length, (shown) => ({
    kind,
    reason,
    ...(region === null ? {} : { region }),
    ...(pool === null ? {} : { pool }),
    ...(conversation === null ? {} : { conversation }),
    candidates: candidates.slice(0, shown).map(brief),
    ...(shown === candidates.length ? {} : { more: candidates.length - shown }),
  }));
}

function brief(candidate: RegionCandidate): object {
  const { region, removed, home } = candidate;
  if (removed !== null) return { region, removed };
  return {
    region,
    ...(home ? { home } : {}),
    ttftMs: tenth(candidate.ttftMs),
    networkMs: tenth(candidate.networkMs),
    queueMs: tenth(candidate.queueMs),
    prefillMs: tenth(candidate.prefillMs),
    costMs: tenth(candidate.costMs),
    cached: candidate.cachedTokens,
    ...(candidate.creditMs === null ? {} : { creditMs: tenth(candidate.creditMs) }),
    p: Math.round(candidate.drawProbability * 1_000) / 1_000,
  };
}

function whole(value: number): string {
  return String(Math.round(value));
}
