// What a router can know of a replica's backlog between two reports, and how crowded a pool is.
//
// Where reports come oftener than a hold is long, a report tells: agents report at once what another router sends. Where
// they do not (a region of more than 60 agents, a slow link), the last figure says ever less of now, and only what this
// router has itself sent there is certain:
//
//   backlog = left · e^(−age/τ) + W · (1 − e^(−age/τ))     left = max(0, reported − age), τ = max(600 ms, W)
//
// with W the mean of what the pool's replicas report: the same for all, so that no old difference between replicas sends
// a conversation away from its cache. A difference between replicas is worked off in about W: that is how long it tells.
// The hold is then as long as the reports take: less would leave a replica idle.
//
// How late they come is told by one event at a time for each replica: from its sending to the first report that
// includes it, which may have waited for the next report, so the least of several counts.
//
// Crowding: whatever prefill a request adds delays those that come behind it. A prefix that is computed again in a full
// pool costs everybody, so prefill weighs, by one curve for all of the pool,
//
//   1 + weight · (max(0, W − holdMs) / S + BLIND · (1 − holdMs / hold))      S: mean prefill of what is sent; at most 5
//
// with `hold` as long as the reports take. The longer it is, the less waits in routers, where short and cached work goes
// first: what waits in engines waits for all that came before, so prefill weighs more there without any queue.

import { expFall } from '../../shared/lib/exp-fall.ts';
import { reportIntervalMs } from './report-interval.ts';

/** What is known of a backlog is worth e⁻¹ after so long at least, ms. */
const KEEPS_MS = 600;
const MEAN_MS = 5_000;
/** Of the mean prefill: one in so many requests. */
const REQUESTS = 64;
const PREFILL_MIN_MS = 1;
const CROWDING_MAX = 5;
/** What prefill weighs more where reports come very late, as a share of the weight. */
const BLIND = 0.5;
/** A report's way, and the time until the next thing is sent that it could acknowledge. */
const TRAVEL_MS = 20;
const LAG_WINDOW_MS = 5_000;
/** Acknowledgements of a window that tell its least lag: a few may each have waited for something. */
const LAG_SAMPLES = 8;

export interface SightSettings {
  readonly holdMs: number;
  readonly minReportIntervalMs: number;
  readonly crowdingWeight: number;
}

/** How a pool is looked at for one event. */
export interface View {
  readonly holdMs: number;
  /** Reports tell too late what others send. */
  readonly blind: boolean;
  /** Age of a report when it arrives, ms, beyond what its interval explains. */
  readonly lateMs: number;
  readonly meanWaitMs: number;
}

export class PoolSight {
  #meanWaitMs = 0;
  #meanPrefillMs: number | null = null;
  /** Least lag of the current and of the previous window, ms; NaN where too few tell it. */
  #lag = { current: Infinity, samples: 0, previous: Number.NaN, sinceMs: -Infinity };
  /** The last one made, by what it depends on; null once a report has told more. */
  #seen: { readonly view: View; readonly settledMs: number; readonly intervalMs: number } | null =
    null;

  get meanWaitMs(): number {
    return this.#meanWaitMs;
  }

  /** A report of one of `targets` targets, `gapMs` after its last one. */
  heard(waitMs: number, gapMs: number, targets: number): void {
    const weight = -Math.expm1(-Math.max(0, gapMs) / MEAN_MS) / Math.max(1, targets);
    this.#meanWaitMs += weight * (waitMs - this.#meanWaitMs);
    this.#seen = null;
  }

  /** A report includes what was sent so long ago, and is the first that does. */
  acknowledged(lagMs: number, nowMs: number): void {
    const lag = this.#lag;
    if (nowMs - lag.sinceMs >= LAG_WINDOW_MS) {
      lag.previous = nowMs - lag.sinceMs < 2 * LAG_WINDOW_MS ? this.#currentLag() : Number.NaN;
      lag.current = Infinity;
      lag.samples = 0;
      lag.sinceMs = nowMs;
    }
    lag.current = Math.min(lag.current, lagMs);
    lag.samples += 1;
    this.#seen = null;
  }

  sent(prefillMs: number): void {
    const mean = this.#meanPrefillMs ?? prefillMs;
    this.#meanPrefillMs = mean + (prefillMs - mean) / REQUESTS;
  }

  /** Asked for every target of a pool: the same one until a report comes. */
  view({ holdMs: settledMs, minReportIntervalMs }: SightSettings, agents: number): View {
    const intervalMs = reportIntervalMs(minReportIntervalMs, agents);
    const seen = this.#seen;
    if (seen !== null && seen.settledMs === settledMs && seen.intervalMs === intervalMs) {
      return seen.view;
    }
    const view = this.#viewOf(settledMs, intervalMs);
    this.#seen = { view, settledMs, intervalMs };
    return view;
  }

  #viewOf(settledMs: number, intervalMs: number): View {
    const lateMs = Math.max(0, (this.#leastLag() ?? 0) - intervalMs - TRAVEL_MS);
    const toldMs = intervalMs + lateMs;
    const blind = toldMs > settledMs;
    const holdMs = blind ? toldMs : settledMs;
    return { holdMs, blind, lateMs, meanWaitMs: this.#meanWaitMs };
  }

  #currentLag(): number {
    return this.#lag.samples < LAG_SAMPLES ? Number.NaN : this.#lag.current;
  }

  #leastLag(): number | null {
    const told = [this.#currentLag(), this.#lag.previous].filter((lag) => !Number.isNaN(lag));
    return told.length === 0 ? null : Math.min(...told);
  }

  /** What a ms of prefill weighs. */
  crowding({ holdMs, crowdingWeight }: SightSettings, view: View): number {
    const beyondMs = Math.max(0, this.#meanWaitMs - holdMs);
    const prefillMs = Math.max(PREFILL_MIN_MS, this.#meanPrefillMs ?? Infinity);
    const blind = view.blind ? BLIND * (1 - holdMs / view.holdMs) : 0;
    return Math.min(CROWDING_MAX, 1 + crowdingWeight * (beyondMs / prefillMs + blind));
  }
}

/** What is left of a reported backlog, ms. */
export function backlogNowMs(view: View, reportedMs: number, ageMs: number): number {
  const left = Math.max(0, reportedMs - ageMs - view.lateMs);
  if (!view.blind) return left;
  const keepsMs = Math.max(KEEPS_MS, view.meanWaitMs);
  const keeps = expFall((ageMs + view.lateMs) / keepsMs);
  return left * keeps + view.meanWaitMs * (1 - keeps);
}
