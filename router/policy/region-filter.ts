// Which regions may serve a request at all. Every removal has one reason, the first that applies, from what must never be
// to what is so only now.
//
//   residency    the tenant's list is the only one that any path sees: what is not in it is gone before anything else is
//                looked at. A tenant without a list may be served everywhere; an empty list, nowhere
//   order        of those left: allowed and active; allowed and kept for failover; then the fallbacks, one after the
//                other, in their order. The first group with anyone left serves, the others are removed as `standby`
//
// The filter is never widened: no region left is an answer. It runs anew for every attempt, and a second time in the
// region itself.

import type { RegionId } from '../../shared/model/ids.ts';

export const ROLLOUT_MODES = ['off', 'failover', 'active'] as const;
/** off: serves nobody of the global tier; failover: only where no active region can; active. */
export type RolloutMode = (typeof ROLLOUT_MODES)[number];

export const REGION_FILTER_REASONS = [
  'residency',
  'rollout',
  'model', // does not serve it, or not to this tenant
  'revision',
  'context_length', // not even by the least that its tokens can be would it fit
  'tier',
  'certification',
  'excluded', // an earlier attempt failed there
  'unseen', // no report of it: what cannot be seen gets no traffic
  'no_capacity', // nothing ready, and nothing that comes
  'paused', // it asked for time
  'breaker',
  'silent', // nothing comes from it any more, and one request tries it already
  'standby', // another group goes first
] as const;
export type RegionFilterReason = (typeof REGION_FILTER_REASONS)[number];

/** Of replicas that do not say which they run. */
const UNKNOWN_REVISION = 'unknown';

/** A tenant's residency: region names. */
export interface Residency {
  readonly allow: readonly RegionId[];
  /** In order; only where no allowed region is left. */
  readonly fallback: readonly RegionId[];
}

export interface RegionView {
  readonly region: RegionId;
  readonly rollout: RolloutMode;
  readonly certifications: readonly string[];
  readonly tiers: readonly string[];
  /** Public names that its pools serve; null before any report. */
  readonly models: readonly RegionModel[] | null;
  readonly seen: boolean;
  /** Ready replicas of the pool, or some on their way. */
  readonly hasCapacity: boolean;
  readonly paused: boolean;
  readonly breakerOpen: boolean;
  /** Absent: it is not. */
  readonly silent?: boolean;
  readonly excluded: boolean;
}

/** What a region is by its configuration. */
export type RegionRules = Pick<RegionView, 'region' | 'rollout' | 'certifications' | 'tiers'>;

export interface RegionModel {
  readonly name: string;
  /** `unknown` satisfies no demand for one. */
  readonly revision: string;
  /** Tokens of prompt and answer that some replica takes. Absent or null: some replica does not say. */
  readonly longestModelLen?: number | null | undefined;
  /** Bytes of a token that prompts there hardly ever exceed. Absent or null: nobody has learned it. */
  readonly bytesPerTokenMost?: number | null | undefined;
}

/** What has to fit into a model's context. */
export interface DemandedLength {
  /** Of the longest prompt that is a text; 0: none is. */
  readonly bytes: number;
  /** Of the longest prompt that came as tokens; 0: none did. */
  readonly tokens: number;
  readonly answerTokens: number;
}

export interface RegionDemand {
  /** Null: the tenant may be served everywhere. */
  readonly residency: Residency | null;
  readonly model: string;
  /** Any of these will do; null: every one. */
  readonly revisions: readonly string[] | null;
  /** Absent or null: it fits everywhere. */
  readonly length?: DemandedLength | null;
  readonly tier: string | null;
  readonly certifications: readonly string[];
}

export interface FilteredRegions {
  /** In the order given, but for fallbacks, of which there is one at most. */
  readonly eligible: readonly RegionId[];
  readonly removed: ReadonlyMap<RegionId, RegionFilterReason>;
}

export function filterRegions(views: readonly RegionView[], demand: RegionDemand): FilteredRegions {
  const removed = new Map<RegionId, RegionFilterReason>();
  const left: RegionView[] = [];
  for (const view of views) {
    const reason = removalOf(view, demand);
    if (reason === null) left.push(view);
    else removed.set(view.region, reason);
  }
  const eligible = firstGroup(left, demand.residency);
  for (const { region } of left) {
    if (!eligible.includes(region)) removed.set(region, 'standby');
  }
  return { eligible, removed };
}

/** Whether a tenant's list names the region at all, for what is not a request: reports, hints, cache entries. */
export function mayReside(region: RegionId, residency: Residency | null): boolean {
  if (residency === null) return true;
  return residency.allow.includes(region) || residency.fallback.includes(region);
}

/** Whether rules alone let the region serve the tenant, whatever is up. */
export function mayEverServe(
  region: RegionRules,
  residency: Residency | null,
  demand: Pick<RegionDemand, 'certifications' | 'tier'> | null,
): boolean {
  const { certifications = [], tier = null } = demand ?? {};
  return ruledOut(region, { residency, certifications, tier }) === null;
}

function ruledOut(
  { region, rollout, certifications, tiers }: RegionRules,
  demand: Pick<RegionDemand, 'residency' | 'certifications' | 'tier'>,
): RegionFilterReason | null {
  if (!mayReside(region, demand.residency)) return 'residency';
  if (rollout === 'off') return 'rollout';
  if (!demand.certifications.every((each) => certifications.includes(each))) return 'certification';
  return demand.tier !== null && !tiers.includes(demand.tier) ? 'tier' : null;
}

function removalOf(view: RegionView, demand: RegionDemand): RegionFilterReason | null {
  const reason = ruledOut(view, demand);
  if (reason !== null) return reason;
  if (view.excluded) return 'excluded';
  if (!view.seen || view.models === null) return 'unseen';
  const served = view.models.filter(({ name }) => name === demand.model);
  if (served.length === 0) return 'model';
  const fit = served.filter((each) => runsAsked(each, demand));
  if (fit.length === 0) return 'revision';
  if (!fit.some((each) => takesWhole(each, demand))) return 'context_length';
  if (!view.hasCapacity) return 'no_capacity';
  if (view.breakerOpen) return 'breaker';
  if (view.silent === true) return 'silent';
  return view.paused ? 'paused' : null;
}

/** None is asked for, or it is one of those. */
export function runsAsked(
  { revision }: RegionModel,
  { revisions }: Pick<RegionDemand, 'revisions'>,
): boolean {
  return revisions === null || (revision !== UNKNOWN_REVISION && revisions.includes(revision));
}

/** Prompt and answer fit into its context, as far as can be told. */
export function takesWhole(
  model: RegionModel,
  { length = null }: Pick<RegionDemand, 'length'>,
): boolean {
  if (length === null) return true;
  const { bytes, tokens, answerTokens } = length;
  const { longestModelLen = null, bytesPerTokenMost = null } = model;
  if (longestModelLen === null) return true;
  const text = bytesPerTokenMost === null ? 0 : bytes / bytesPerTokenMost;
  return Math.max(text, tokens) + answerTokens <= longestModelLen;
}

function firstGroup(left: readonly RegionView[], residency: Residency | null): RegionId[] {
  const allowed = left.filter(({ region }) => residency?.allow.includes(region) ?? true);
  const groups = [
    allowed.filter(({ rollout }) => rollout === 'active'),
    allowed.filter(({ rollout }) => rollout === 'failover'),
    ...(residency?.fallback ?? []).map((name) => left.filter(({ region }) => region === name)),
  ];
  return (groups.find((group) => group.length > 0) ?? []).map(({ region }) => region);
}
