// Every target of a pool as seen by one request: removed, with the reason, or with its costs.
//
// A pool may have a thousand targets, and a request looks at each: so the common case reads numbers
// only (`core-roster.ts`) and writes numbers only (`core-weighing.ts`). Common is a target that is fit for
// users, whose reports come and say what waits there; the others go the plain way, through the functions that
// say what is meant. `core-weigh.test.ts` holds both against a
// version that is plain throughout.

import type { ReplicaReport } from '../../shared/model/report.ts';
import { ejected } from '../policy/breaker.ts';
import { filterTarget } from '../policy/filter.ts';
import { leastPromptTokens } from '../policy/tokens.ts';
import { weighCosts, weighLoads } from './core-costs.ts';
import { measurePrompts } from './core-measure.ts';
import { isReady, isSlow, NOBODY, runsOther, slowOut, type SlowOut } from './core-ready.ts';
import { FIGURE, STANDING } from './core-roster.ts';
import type { PoolState, RegionalState, RequestState, TargetState } from './core-state.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import type { Weighing } from './core-weighing.ts';

/**
 * Valid until the next request is weighed. Those that are held out for slowness come in where nobody
 * else has room: slow capacity is capacity.
 */
export function weigh(state: RegionalState, request: RequestState): Weighing {
  request.pool.roster.sync();
  const slow = request.pool.roster.degraded === 0 ? NOBODY : slowOut(request.pool);
  weighWithout(state, request, slow);
  if (slow.size > 0 && allFull(state.weighing)) weighWithout(state, request, NOBODY);
  return state.weighing;
}

function allFull(weighing: Weighing): boolean {
  for (let k = 0; k < weighing.count; k += 1) if (!weighing.full(k)) return false;
  return true;
}

function weighWithout(state: RegionalState, request: RequestState, slow: SlowOut): void {
  const { weighing } = state;
  weighing.begin(request.pool.roster.targets);
  filterPool(state, request, slow);
  measurePrompts(state, request);
  weighLoads(state, request);
  weighCosts(state, request);
}

/** Of a target that has asked to be left alone, the plain way tells until when. */
const NOT_PAUSED = STANDING.fit | STANDING.paused;

function filterPool(state: RegionalState, request: RequestState, slow: SlowOut): void {
  const { weighing, nowMs } = state;
  const { roster } = request.pool;
  const { targets, figures, standing } = roster;
  const limits = roster.limits(request.engineModel);
  const broken = roster.breakers.tripped === 0 ? NOBODY : brokenIn(targets, slow, nowMs);
  const least = new LeastTokens(request);
  const isPicky = request.tried.size > 0 || request.revisions !== null;
  const plain = !isPicky && broken.size === 0 && slow.size === 0;
  const p95 = FIGURE.p95 * limits.length;
  for (let place = 0; place < limits.length; place += 1) {
    if (
      plain &&
      ((standing[place] as number) & NOT_PAUSED) === STANDING.fit &&
      least.fits(figures[p95 + place] as number, limits[place] as number)
    ) {
      weighing.add(place);
      continue;
    }
    const target = targets[place] as TargetState;
    const reason = reasonAgainst(state, request, { target, slow, broken });
    if (reason === null) weighing.add(place);
    else weighing.removed.push({ target, reason });
  }
}

/** The plain way: each question by itself, the first that applies is the reason. */
function reasonAgainst(
  state: RegionalState,
  request: RequestState,
  seen: { target: TargetState; slow: SlowOut; broken: ReadonlySet<TargetState> },
): ReturnType<typeof filterTarget> {
  const { target, slow, broken } = seen;
  const { report, replica } = target;
  return filterTarget(
    {
      phase: isSlow(report) ? 'ready' : (report?.phase ?? null),
      models: report?.models ?? [],
      otherRevision: runsOther(request.revisions, report),
      slow: slow.has(target),
      link: replica.state,
      down: replica.down,
      breakerOpen: broken.has(target),
      paused: target.pausedUntilMs > state.nowMs,
      excluded: request.tried.has(target.key),
      leastPromptTokens: leastTokens(request, report),
    },
    request.engineModel,
  );
}

/** How much of a request fits into the context of some replica of a pool. */
export const FIT = { nothing: 0, prompt: 1, promptAndAnswer: 2 } as const;
export type Fit = (typeof FIT)[keyof typeof FIT];

/** `engineModel` is the name that the pool's engines know. What a replica does not say leaves room for everything. */
export function fitIn(pool: PoolState, request: RouteRequest, engineModel: string): Fit {
  const { roster } = pool;
  roster.sync();
  const { targets, figures } = roster;
  const limits = roster.limits(engineModel);
  const least = new LeastTokens({ request });
  const p95 = FIGURE.p95 * limits.length;
  let fit: Fit = FIT.nothing;
  for (let k = 0; k < limits.length; k += 1) {
    if (targets[k]?.replica.state === 'out') continue;
    const [perToken, limit] = [figures[p95 + k] as number, limits[k] as number];
    if (least.fits(perToken, limit - (request.maxTokens ?? 0))) return FIT.promptAndAnswer;
    if (least.fits(perToken, limit)) fit = FIT.prompt;
  }
  return fit;
}

/** Breakers that count now. */
function brokenIn(
  targets: readonly TargetState[],
  slow: SlowOut,
  nowMs: number,
): ReadonlySet<TargetState> {
  return ejected(
    targets.filter((target) => isReady(target, slow)),
    nowMs,
  );
}

/** Of a list prompt, each element has to fit by itself: the longest decides. */
function leastTokens({ request }: RequestState, report: ReplicaReport | null): number | null {
  let longest: number | null = null;
  if (request.truncates === true) return null;
  for (const prompt of request.prompts) {
    const least = leastPromptTokens(prompt, report);
    if (least !== null && least > (longest ?? 0)) longest = least;
  }
  return longest;
}

/** Of a limit: what is below so much of it is below it however numbers are rounded. */
const NEARLY = 0.999;

/** The same for many targets: the longest text and the longest list of token ids are the same for all. */
class LeastTokens {
  #bytes = 0;
  #tokens = 0;

  constructor({ request }: Pick<RequestState, 'request'>) {
    if (request.truncates === true) return;
    for (const { bytes, tokenIds } of request.prompts) {
      if (tokenIds === null) this.#bytes = Math.max(this.#bytes, bytes);
      else this.#tokens = Math.max(this.#tokens, tokenIds);
    }
  }

  /** False also where the model is not served, whose limit is -1. */
  fits(bytesPerTokenP95: number, limit: number): boolean {
    if (limit < 0 || this.#tokens > limit) return false;
    if (this.#bytes < NEARLY * limit * bytesPerTokenP95) return true;
    return !(this.#bytes / bytesPerTokenP95 > limit);
  }
}
