// What `core-weigh.ts` must say, written plainly: an object and every function for every target, medians by sorting,
// nothing kept from one request to the next. For tests only; the fast version is held against it.

import {
  addToSums,
  emptySums,
  prefillMs as curveMs,
  sumsMs,
  type PrefillSums,
} from '../../shared/model/cost-curve.ts';
import { costMs } from '../policy/cost.ts';
import { ejected } from '../policy/breaker.ts';
import { contextLimit, filterTarget } from '../policy/filter.ts';
import { heldOut, type SlowTarget } from '../policy/slow-third.ts';
import { leastPromptTokens, promptTokens } from '../policy/tokens.ts';
import { ASSUMED_CURVE, medianKnown } from '../policy/unknown.ts';
import { curveOf, loadOf, meanPromptMs, viewOf, type CurveChoice } from './core-load.ts';
import type { PoolState, RegionalState, RequestState, TargetState } from './core-state.ts';
import type { Removed, Scored } from './core-weighing.ts';

/** Elements of a list prompt that are looked up in the index; the rest count as uncached. */
const PROMPTS_MATCHED = 64;

export interface PlainWeighing {
  readonly scored: Scored[];
  readonly removed: Removed[];
}

/** Those that are held out for slowness come in where nobody else has room: slow capacity is capacity. */
export function weighPlainly(state: RegionalState, request: RequestState): PlainWeighing {
  const slow = slowOut(request.pool);
  const first = weighWithout(state, request, slow);
  const crowded = slow.size > 0 && first.scored.every(({ load }) => load.full);
  return crowded ? weighWithout(state, request, NOBODY) : first;
}

function weighWithout(
  state: RegionalState,
  request: RequestState,
  slow: ReadonlySet<TargetState>,
): PlainWeighing {
  const { kept, removed } = filterPool(state, request, slow);
  const shares = measurePrompts(state, request, kept);
  const fallback = lazily(() => plainPoolCurve(request.pool));
  const common = commonFigures(kept);
  const scored = kept.map((target, k): Scored => {
    const share = shares[k] as PromptShare;
    const { curve, learned } = curveOf(target, fallback);
    const { settings, nowMs } = state;
    const view = viewOf(state, request.pool);
    const load = loadOf(target, { curve, learned, settings, view, nowMs });
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
        delayMs:
          (request.pool.sight.crowding(settings, view) - 1) * sumsMs(fallback().curve, share.sums),
      },
      settings,
    );
    const { waitMs, full, closed } = load;
    return {
      target,
      load: { waitMs, full, closed },
      ...share,
      prefillMs,
      costMs: cost,
      learned,
    };
  });
  return { scored, removed };
}

function targetsOf(pool: PoolState): TargetState[] {
  return [...pool.replicas].filter(({ gone }) => !gone).flatMap(({ targets }) => targets);
}

function isReady(target: TargetState, slow: ReadonlySet<TargetState>): boolean {
  return couldServe(target) && !slow.has(target);
}

const NOBODY: ReadonlySet<TargetState> = new Set();

function slowOut(pool: PoolState): ReadonlySet<TargetState> {
  const members = targetsOf(pool).filter((target) => couldServe(target));
  const slow = members
    .filter(({ report }) => report?.phase === 'degraded')
    .map((target): SlowTarget<TargetState> => ({
      target,
      key: target.key,
      slowRatio: target.report?.slowRatio ?? null,
    }));
  return heldOut(slow, members.length);
}

function couldServe({ report, replica }: TargetState): boolean {
  if (replica.state === 'out' || replica.down) return false;
  return report?.phase === 'ready' || isSlow(report);
}

function isSlow(report: TargetState['report']): boolean {
  return report?.phase === 'degraded' && report.degradedFor === 'slow';
}

/** The curve whose prefill of 2,048 tokens is the lower median. */
function plainPoolCurve(pool: PoolState): CurveChoice {
  const known = targetsOf(pool).flatMap(({ report }) => report?.prefillCost ?? []);
  known.sort((a, b) => curveMs(a, 2_048, 0) - curveMs(b, 2_048, 0));
  const curve = known[(known.length - 1) >> 1];
  return curve === undefined ? { curve: ASSUMED_CURVE, learned: false } : { curve, learned: true };
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
  slow: ReadonlySet<TargetState>,
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
        otherRevision: isOther(request, target),
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

function isOther({ revisions }: RequestState, { report }: TargetState): boolean {
  if (revisions === null) return false;
  return report === null || report.revision === 'unknown' || !revisions.includes(report.revision);
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
      const match = depths === null ? null : state.index.match(target.slot, chain);
      const { report } = target;
      const contextTokens = contextLimit(report?.models ?? [], request.engineModel) ?? Infinity;
      const figures = report === null ? null : { ...report, contextTokens };
      const tokens = promptTokens(chain, match, figures);
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
