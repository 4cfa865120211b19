// One request, all regions: which may serve it, and what its first token would cost in each. Nothing is changed here.

import type { CostCurve } from '../../shared/model/cost-curve.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { Dwelling } from '../policy/affinity.ts';
import { estimateTtft, keptTokens, type TtftEstimate } from '../policy/region-estimate.ts';
import {
  filterRegions,
  mayEverServe,
  runsAsked,
  takesWhole,
  type DemandedLength,
  type FilteredRegions,
  type RegionFilterReason,
  type RegionDemand,
  type RegionView,
} from '../policy/region-filter.ts';
import { granted, type DemandedModel } from '../policy/model-grant.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import { ASSUMED_BYTES_PER_TOKEN, ASSUMED_PART_TOKENS } from '../policy/tokens.ts';
import { chainOf, conversationOf, type Conversation } from './core-conversation.ts';
import type { TenantFacts } from './events.ts';
import { pauseOf } from './core-pause.ts';
import { isLeaving, isSeen, queueMs } from './core-regions.ts';
import { keepsAway } from './core-silence.ts';
import type { GlobalState, RegionPool, RegionState, RequestState } from './core-state.ts';

/** Where no region has told its own: 8,000 tokens a second. */
const ASSUMED_CURVE: CostCurve = {
  baseMs: 20,
  frontMsPerToken: 0,
  linearMsPerToken: 1 / 8,
  contextMsPerToken2: 0,
  stepTokens: 2_048,
};

/** A region that may serve the request. */
export interface Place {
  readonly region: RegionState;
  readonly pool: RegionPool;
  /** Null: something of it is unknown. */
  readonly estimate: TtftEstimate | null;
  readonly prefillMs: number;
  readonly cachedTokens: number;
  /** It asked for time, until then; null: it did not. */
  readonly pausedUntilMs: number | null;
}

export interface Weighing {
  readonly tenant: TenantFacts;
  readonly filtered: FilteredRegions;
  /** In the order of the configuration. */
  readonly places: readonly Place[];
  /** The nearest; null where no region may serve it. */
  readonly home: Place | null;
  /** The nearest by rules alone: what is served elsewhere while that one is out is away from home. */
  readonly homeByRule: RegionState | null;
  readonly conversation: Conversation;
  /** Where its id says that it lives, heeded or not; null: it says nothing. */
  readonly byId: Dwelling | null;
  readonly promptTokens: number;
  /** Those that will do; null: every one. */
  readonly revisions: readonly string[] | null;
}

export function weigh(state: GlobalState, request: RequestState, tenant: TenantFacts): Weighing {
  const asked = request.request;
  const { filtered, demand } = filter(state, request, demandOf(tenant, request));
  const { conversation, byId } = conversationOf(state, request);
  const promptTokens = tokensOf(state, request);
  const size = { promptTokens, expectedTokens: promptTokens + answerTokens(state, asked) };
  const places = filtered.eligible.flatMap((id) => {
    const region = state.regions.get(id);
    const pool = region === undefined ? null : poolFor(region, demand);
    if (region === undefined || pool === null) return [];
    return [placeOf(state, { request, asked, region, pool, conversation, size })];
  });
  const home = nearest(places);
  const homeByRule = isOut(filtered) ? ruledHome(state, request, demand) : (home?.region ?? null);
  const { revisions } = demand;
  return {
    tenant,
    filtered,
    places,
    home,
    homeByRule,
    conversation,
    byId,
    promptTokens,
    revisions,
  };
}

/**
 * The pool of a region that serves the model: the one with most ready replicas, of those that have a revision that is asked
 * for where there are any, and of these of those whose context takes the request where there are any.
 */
export function poolFor(
  region: RegionState,
  demand: DemandedModel & Pick<RegionDemand, 'length'>,
): RegionPool | null {
  let best: RegionPool | null = null;
  let bestRank = -1;
  for (const pool of region.pools.values()) {
    const rank = rankOf(pool, demand);
    if (rank <= bestRank) continue;
    best = pool;
    bestRank = rank;
  }
  return best;
}

/** More than any pool has replicas. */
const TAKES_WHOLE = 1e9;
const RUNS_ASKED = 2 * TAKES_WHOLE;

/** -1: it does not serve the model. */
function rankOf(
  { sight }: RegionPool,
  demand: DemandedModel & Pick<RegionDemand, 'length'>,
): number {
  if (sight === null) return -1;
  let rank = -1;
  for (const model of sight.models) {
    if (model.name !== demand.model) continue;
    const runs = runsAsked(model, demand);
    const bonus = (runs ? RUNS_ASKED : 0) + (runs && takesWhole(model, demand) ? TAKES_WHOLE : 0);
    rank = Math.max(rank, sight.readyReplicas + bonus);
  }
  return rank;
}

/** Whether the tenant's own rules, as they are now, let a region serve it. Health is no part of it. */
export function mayServe({ id, config }: RegionState, tenant: TenantFacts): boolean {
  return mayEverServe({ ...config, region: id }, tenant.residency, tenant);
}

export function tokensOf(state: GlobalState, { request, demanded }: RequestState): number {
  const perToken = state.bytesPerToken.get(demanded.model) ?? ASSUMED_BYTES_PER_TOKEN;
  let tokens = 0;
  for (const chain of request.prompts) tokens += chainTokens(chain, perToken);
  return Math.max(1, Math.round(tokens));
}

/** With what was demanded in the end. */
function filter(
  state: GlobalState,
  request: RequestState,
  demand: RegionDemand,
): { readonly filtered: FilteredRegions; readonly demand: RegionDemand } {
  const filtered = filterFor(state, request, demand);
  const { length = null } = demand;
  if (length === null || length.answerTokens === 0 || !isTooLong(filtered)) {
    return { filtered, demand };
  }
  // So long an answer fits nowhere: whether it is cut or refused is the engine's to say.
  const promptAlone = { ...demand, length: { ...length, answerTokens: 0 } };
  return { filtered: filterFor(state, request, promptAlone), demand: promptAlone };
}

/**
 * Where nothing is ready, what is on its way is waited for; and neither breakers nor silence leave a request without a
 * region that its tenant has: the last are tried all the same.
 */
function filterFor(
  state: GlobalState,
  request: RequestState,
  demand: RegionDemand,
): FilteredRegions {
  const regions = [...state.regions.values()];
  const asking = { request, demand };
  const views = regions.map((region) => viewFor(state, region, asking));
  const now = filterRegions(views, demand);
  if (now.eligible.length > 0) return now;
  const coming = regions.map((region) => ({
    ...viewFor(state, region, asking),
    hasCapacity: isComing(region, demand),
  }));
  const soon = filterRegions(coming, demand);
  const reasons = new Set(soon.removed.values());
  const isUnsure = reasons.has('breaker') || reasons.has('silent');
  if (soon.eligible.length > 0 || !isUnsure) return soon;
  return filterRegions(
    coming.map((view) => ({ ...view, breakerOpen: false, silent: false })),
    demand,
  );
}

/** No region is left, and every one that its rules would let is too short. */
export function isTooLong({ eligible, removed }: FilteredRegions): boolean {
  if (eligible.length > 0) return false;
  const reasons = new Set(removed.values());
  if (!reasons.delete('context_length')) return false;
  for (const reason of reasons) if (!RULES.has(reason)) return false;
  return true;
}

/** What a region is, and a tenant's rules: nothing that may be otherwise in a minute. */
const RULES: ReadonlySet<RegionFilterReason> = new Set<RegionFilterReason>([
  ...(['residency', 'rollout', 'certification', 'tier', 'model', 'revision'] as const),
]);

/** Another region than this one could take the request now. */
export function isServedElsewhere(
  state: GlobalState,
  request: RequestState,
  from: RegionState,
): boolean {
  const tenant = state.tenant(request.request.tenant);
  if (tenant === null) return false;
  const others = [...state.regions.values()].filter(
    (region) => region !== from && !region.silence.silent,
  );
  const demand = demandOf(tenant, request);
  const views = others.map((region) => viewFor(state, region, { request, demand }));
  return filterRegions(views, demand).eligible.length > 0;
}

/** Some of its replicas are ready or on their way. */
function isComing(region: RegionState, demand: RegionDemand): boolean {
  return poolFor(region, demand)?.sight?.hasCapacity === true && !isLeaving(region);
}

const OUT: ReadonlySet<RegionFilterReason> = new Set<RegionFilterReason>([
  ...(['excluded', 'unseen', 'no_capacity', 'breaker', 'silent'] as const),
]);

/** Some region does not serve it now that its rules would let. */
function isOut({ removed }: FilteredRegions): boolean {
  for (const reason of removed.values()) if (OUT.has(reason)) return true;
  return false;
}

function ruledHome(
  state: GlobalState,
  request: RequestState,
  demand: RegionDemand,
): RegionState | null {
  const views = [...state.regions.values()].map((region) => ({
    ...viewFor(state, region, { request, demand }),
    ...{ seen: true, hasCapacity: true, breakerOpen: false, silent: false, excluded: false },
  }));
  const { eligible } = filterRegions(views, demand);
  const regions = eligible.flatMap((id) => state.regions.get(id) ?? []);
  return nearest(regions.map((region) => ({ region })))?.region ?? null;
}

function demandOf(tenant: TenantFacts, { request, demanded }: RequestState): RegionDemand {
  const { residency, tier, certifications, models } = tenant;
  // Who may not use it at all has been refused.
  const { model, revisions } = granted(models, demanded) ?? demanded;
  return { residency, model, revisions, tier, certifications, length: lengthOf(request) };
}

/** Of a list prompt, each element has to fit by itself: the longest decides. Null: nothing of it has to. */
function lengthOf(asked: RouteRequest): DemandedLength | null {
  if (asked.truncates === true || asked.work === 'light') return null;
  let bytes = 0;
  let tokens = 0;
  for (const prompt of asked.prompts) {
    if (prompt.tokenIds === null) bytes = Math.max(bytes, prompt.bytes);
    else tokens = Math.max(tokens, prompt.tokenIds);
  }
  return { bytes, tokens, answerTokens: asked.maxTokens ?? 0 };
}

/** A pause is no part of it: a region that asks for time is home all the same, and does not open a fallback. */
function viewFor(
  state: GlobalState,
  region: RegionState,
  { request, demand }: { readonly request: RequestState; readonly demand: RegionDemand },
): RegionView {
  const { rollout, certifications, tiers } = region.config;
  const sight = poolFor(region, demand)?.sight ?? null;
  return {
    region: region.id,
    rollout,
    certifications,
    tiers,
    models: sight?.models ?? (knowsModels(region) ? [] : null),
    seen: isSeen(state, region),
    hasCapacity: sight !== null && sight.readyReplicas > 0 && !isLeaving(region),
    paused: false,
    breakerOpen: region.breaker.blocks(state.nowMs),
    silent: keepsAway(region),
    excluded: request.tried.has(region.id),
  };
}

/** A pool that names none has heard of no replica yet: its routers have just started, or all its replicas are gone. */
function knowsModels({ pools }: RegionState): boolean {
  for (const { sight } of pools.values()) if (sight?.models.length === 0) return false;
  return pools.size > 0;
}

interface PlaceInput {
  readonly request: RequestState;
  readonly asked: RouteRequest;
  readonly region: RegionState;
  readonly pool: RegionPool;
  readonly conversation: Conversation;
  readonly size: { readonly promptTokens: number; readonly expectedTokens: number };
}

function placeOf(state: GlobalState, input: PlaceInput): Place {
  const { region, pool, size } = input;
  const rttMs = region.rtt.valueMs;
  const queue = queueMs(state, pool);
  const cachedTokens = cachedIn(state, input);
  const parts = estimateTtft({
    rttMs: rttMs ?? 0,
    warm: region.warm,
    queueMs: queue ?? 0,
    promptTokens: size.promptTokens,
    cachedTokens,
    curve: pool.sight?.prefillCost ?? ASSUMED_CURVE,
    costMs: region.config.costMs,
    expectedTokens: size.expectedTokens,
  });
  const known = rttMs !== null && queue !== null;
  return {
    region,
    pool,
    estimate: known ? parts : null,
    prefillMs: parts.prefillMs,
    cachedTokens,
    pausedUntilMs: pauseOf(state, pool, input.request)?.untilMs ?? null,
  };
}

/** Tokens of its history that a region should hold. Of a conversation that nobody knows, what its home may. */
function cachedIn(state: GlobalState, input: PlaceInput): number {
  const { conversation, region, pool, size, asked } = input;
  if (conversation.kind === 'unknown') {
    const chain = chainOf(asked);
    const before = chain?.turnEnds.at(-1)?.offset ?? 0;
    const share = state.matched.of(asked.tenant) * (before / Math.max(1, chain?.bytes ?? 1));
    return Math.round(Math.min(1, share) * (size.promptTokens - 1));
  }
  if (conversation.kind !== 'lives' || conversation.dwelling.region !== region.id) return 0;
  const { tokens, atMs } = conversation.dwelling;
  const history = Math.min(tokens, size.promptTokens - 1);
  const kept = keptTokens(history, state.nowMs - atMs, pool.sight?.kvLifetimeMs ?? null);
  return Math.round(kept);
}

/** The least distance; the first in the configuration of those that nobody has measured. */
export function nearest<T extends Pick<Place, 'region'>>(places: readonly T[]): T | null {
  let best: T | null = null;
  for (const place of places) {
    if (best === null || rttOf(place) < rttOf(best)) best = place;
  }
  return best;
}

function rttOf({ region }: Pick<Place, 'region'>): number {
  return region.rtt.distanceMs ?? Number.POSITIVE_INFINITY;
}

function chainTokens(chain: PromptChain, perToken: number): number {
  if (chain.tokenIds !== null) return chain.tokenIds;
  let tokens = chain.bytes / perToken;
  for (const count of Object.values(chain.parts)) tokens += count * ASSUMED_PART_TOKENS;
  return tokens;
}

function answerTokens(state: GlobalState, { maxTokens }: RouteRequest): number {
  return Math.min(maxTokens ?? Number.POSITIVE_INFINITY, state.meanOutputTokens);
}
