// Every target of a pool as seen by one request: removed, with the reason, or with its costs.

import { addToSums, emptySums, sumsMs, type PrefillSums } from '../../shared/model/cost-curve.ts';
import type { FilterReason } from '../../shared/model/decision.ts';
import { costMs } from '../policy/cost.ts';
import { ejected } from '../policy/breaker.ts';
import { filterTarget } from '../policy/filter.ts';
import { heldOut, type SlowTarget } from '../policy/slow-third.ts';
import { leastPromptTokens, promptTokens } from '../policy/tokens.ts';
import { medianKnown } from '../policy/unknown.ts';
import {
  curveOf,
  loadOf,
  meanPromptMs,
  poolCurve,
  type CurveChoice,
  type Load,
} from './core-load.ts';
import type { PoolState, RegionalState, RequestState, TargetState } from './core-state.ts';

/** Elements of a list prompt that are looked up in the index; the rest count as uncached. */
const PROMPTS_MATCHED = 64;

export interface Scored {
  readonly target: TargetState;
  readonly load: Load;
  readonly sums: PrefillSums;
  readonly promptTokens: number;
  /** What the index alone says. */
  readonly matchedTokens: number;
  readonly cachedTokens: number;
  readonly prefillMs: number;
  readonly costMs: number;
  /** The cost curve is learned, the target's own or its pool's. */
  readonly learned: boolean;
}

export interface Removed {
  readonly target: TargetState;
  readonly reason: FilterReason;
}

export interface Weighing {
  readonly scored: Scored[];
  readonly removed: Removed[];
}

/** Those that are held out for slowness come in where nobody else has room: slow capacity is capacity. */
export function weigh(state: RegionalState, request: RequestState): Weighing {
  const slow = slowOut(request.pool);
  const first = weighWithout(state, request, slow);
  const crowded = slow.size > 0 && first.scored.every(({ load }) => load.full);
  return crowded ? weighWithout(state, request, NOBODY) : first;
}

function weighWithout(state: RegionalState, request: RequestState, slow: SlowOut): Weighing {
  const { kept, removed } = filterPool(state, request, slow);
  const shares = measurePrompts(state, request, kept);
  const fallback = lazily(() => poolCurve(request.pool));
  const common = commonFigures(kept);
  const scored = kept.map((target, k): Scored => {
    const share = shares[k] as PromptShare;
    const { curve, learned } = curveOf(target, fallback);
    const { settings, nowMs } = state;
    const load = loadOf(target, { curve, settings, nowMs });
    const prefillMs = sumsMs(curve, share.sums);
    const { report } = target;
    const cost = costMs(
      {
        waitMs: load.waitMs,
        prefillMs,
        outputTokens: Math.min(
          request.request.maxTokens ?? Number.POSITIVE_INFINITY,
          request.pool.meanOutputTokens,
        ),
        itlMs: report?.itlMs ?? common.itlMs,
        itlMinMs: common.itlMinMs,
        kvUsageRatio: report?.kvUsageRatio ?? common.kvUsageRatio,
        preemptionsPerMin: report?.preemptionsPerMin ?? null,
        meanPromptMs: meanPromptMs(curve, request.pool),
      },
      settings,
    );
    return { target, load, ...share, prefillMs, costMs: cost, learned };
  });
  return { scored, removed };
}

/** Targets of a pool whose reports count, whatever the request. */
export function* targetsOf(pool: PoolState): Generator<TargetState> {
  for (const replica of pool.replicas) {
    if (!replica.gone) yield* replica.targets;
  }
}

/** Fit for users: ready, or slow and not among those of its pool that stay out for it. */
export function isReady(target: TargetState, slow: SlowOut): boolean {
  return couldServe(target) && !slow.has(target);
}

export type SlowOut = ReadonlySet<TargetState>;

/** Of a look at everybody who could serve. */
export const NOBODY: SlowOut = new Set();

/** Those that stay out for slowness now. */
export function slowOut(pool: PoolState): SlowOut {
  const slow: SlowTarget<TargetState>[] = [];
  let members = 0;
  for (const target of targetsOf(pool)) {
    if (!couldServe(target)) continue;
    members += 1;
    const { report, key } = target;
    if (report?.phase !== 'degraded') continue;
    slow.push({ target, key, slowRatio: report.slowRatio });
  }
  return heldOut(slow, members);
}

function couldServe({ report, replica }: TargetState): boolean {
  if (replica.state === 'out' || replica.down) return false;
  return report?.phase === 'ready' || isSlow(report);
}

function isSlow(report: TargetState['report']): boolean {
  return report?.phase === 'degraded' && report.degradedFor === 'slow';
}

interface PromptShare {
  readonly sums: PrefillSums;
  promptTokens: number;
  matchedTokens: number;
  cachedTokens: number;
}

function filterPool(
  state: RegionalState,
  request: RequestState,
  slow: SlowOut,
): { kept: TargetState[]; removed: Removed[] } {
  const { nowMs } = state;
  const ready: TargetState[] = [];
  const all: TargetState[] = [];
  for (const target of targetsOf(request.pool)) {
    all.push(target);
    if (isReady(target, slow)) ready.push(target);
  }
  const broken = ejected(ready, nowMs);
  const kept: TargetState[] = [];
  const removed: Removed[] = [];
  for (const target of all) {
    const { report, replica } = target;
    const reason = filterTarget(
      {
        phase: isSlow(report) ? 'ready' : (report?.phase ?? null),
        models: report?.models ?? [],
        slow: slow.has(target),
        link: replica.state,
        down: replica.down,
        breakerOpen: broken.has(target),
        paused: target.pausedUntilMs > nowMs,
        excluded: request.tried.has(target.key),
        leastPromptTokens: leastTokens(request, target),
      },
      request.engineModel,
    );
    if (reason === null) kept.push(target);
    else removed.push({ target, reason });
  }
  return { kept, removed };
}

/** Of a list prompt, each element has to fit by itself: the longest decides. */
function leastTokens(request: RequestState, target: TargetState): number | null {
  let longest: number | null = null;
  if (request.request.truncates === true) return null;
  for (const prompt of request.request.prompts) {
    const least = leastPromptTokens(prompt, target.report);
    if (least !== null && least > (longest ?? 0)) longest = least;
  }
  return longest;
}

function measurePrompts(
  state: RegionalState,
  request: RequestState,
  targets: readonly TargetState[],
): PromptShare[] {
  const shares = targets.map((): PromptShare => ({
    sums: emptySums(),
    promptTokens: 0,
    matchedTokens: 0,
    cachedTokens: 0,
  }));
  const { prompts } = request.request;
  for (let p = 0; p < prompts.length; p += 1) {
    const chain = prompts[p];
    if (chain === undefined) continue;
    const depths = p < PROMPTS_MATCHED ? state.index.walk(chain) : null;
    for (let k = 0; k < targets.length; k += 1) {
      const target = targets[k] as TargetState;
      const share = shares[k] as PromptShare;
      const match =
        depths === null
          ? null
          : state.index.matchAt(target.slot, chain, depths[target.slot] as number);
      const tokens = promptTokens(chain, match, target.report);
      addToSums(share.sums, tokens.uncached, tokens.prompt - tokens.uncached);
      share.promptTokens += tokens.prompt;
      share.matchedTokens += tokens.matched;
      share.cachedTokens += tokens.cached;
    }
  }
  return shares;
}

/** What stands for figures that a target does not report: its candidates' medians. */
function commonFigures(targets: readonly TargetState[]): {
  itlMs: number | null;
  itlMinMs: number | null;
  kvUsageRatio: number | null;
} {
  const itls: (number | null)[] = [];
  const usages: (number | null)[] = [];
  let itlMinMs: number | null = null;
  for (const { report } of targets) {
    const itlMs = report?.itlMs ?? null;
    itls.push(itlMs);
    usages.push(report?.kvUsageRatio ?? null);
    if (itlMs !== null) itlMinMs = Math.min(itlMinMs ?? itlMs, itlMs);
  }
  return { itlMs: medianKnown(itls), itlMinMs, kvUsageRatio: medianKnown(usages) };
}

function lazily(make: () => CurveChoice): () => CurveChoice {
  let made: CurveChoice | null = null;
  return () => (made ??= make());
}
