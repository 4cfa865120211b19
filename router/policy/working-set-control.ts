// How much of a KV cache live conversations may take: the bound of working-set admission, moved by what continuing turns
// really find and by whether new ones wait. Room for a burst comes on top of it (`working-set-burst.ts`).
//
//   hits    = Σ tokens found ÷ Σ tokens of the turns gone on from, over one window, of turns that came back within τ
//   now     = share of the window in which some router of the pool held somebody back: 1 − (1 − own)^routers
//   waiting = the same of the last windows
//
// One bounded step a window of WINDOW_TURNS turns and WINDOW_MS at least:
//
//   waiting < ALWAYS   the pool is about as large as its load
//                        hits < POOR                   tightened, by two steps
//                        hits ≥ FAIR, and `now`        eased: the wait is what easing can end. Where nobody waits any more
//                        between SELDOM and ALWAYS     it has ended; where somebody always does, easing while the pool
//                                                      still fills would go all the way before the hits show it
//   waiting ≥ ALWAYS   the load is larger than the pool: what is eased is filled at once, and costs hits
//                        hits < POOR                   tightened, by two steps
//                        above the start               back towards it: easing has not ended the wait
//                        hits ≥ GOOD, below the start  eased back towards it
//
// After a step down one window passes unjudged: it still shows what the looser bound had evicted. A bound from which it
// stepped down is not tried again for RETRY_MS, so that it does not swing.

export interface BoundSettings {
  readonly workingSetBound: number | null;
  readonly workingSetBoundMin: number;
  readonly workingSetBoundMax: number;
}

const GOOD = 0.95;
const FAIR = 0.9;
const POOR = 0.8;
const ALWAYS = 0.75;
/** Bounds nearer to each other are the same. */
const SAME = 0.001;
const SELDOM = 0.02;
const STEP = 0.05;
/** Down, where hits are poor. */
const POOR_STEP = 0.1;
const WINDOW_TURNS = 96;
const WINDOW_MS = 5_000;
const RETRY_MS = 120_000;
/** Weight of one window in `waiting`. */
const WAITING_WEIGHT = 0.5;

interface Window {
  readonly sinceMs: number;
  found: number;
  could: number;
  turns: number;
  looks: number;
  waits: number;
}

export class WorkingSetControl {
  /** From the start of the settings. */
  #offset = 0;
  #routers = 1;
  #waiting = 0;
  #window: Window | null = null;
  #hits: number | null = null;
  #unjudged = false;
  #barred: { readonly bound: number; readonly untilMs: number } | null = null;

  /** Null while the rule is off. */
  bound(settings: BoundSettings): number | null {
    const { workingSetBound: start } = settings;
    return start === null ? null : clamp(start + this.#offset, settings);
  }

  /** Of the last window that was over; null before any. */
  get hits(): number | null {
    return this.#hits;
  }

  /** One look at this router's own lane. */
  look(seen: { readonly waiting: boolean; readonly routers: number }): void {
    this.#routers = seen.routers;
    if (this.#window === null) return;
    this.#window.looks += 1;
    if (seen.waiting) this.#window.waits += 1;
  }

  /** A turn went on from one of `could` tokens, and its engine found `found` of them. */
  observe(seen: { readonly found: number; readonly could: number }): void {
    if (this.#window === null || !(seen.could > 0) || !(seen.found >= 0)) return;
    this.#window.turns += 1;
    this.#window.found += Math.min(seen.found, seen.could);
    this.#window.could += seen.could;
  }

  /** Moves the bound where a window is over. */
  step(settings: BoundSettings, nowMs: number): void {
    const window = this.#window;
    const bound = this.bound(settings);
    if (window !== null) {
      if (window.turns < WINDOW_TURNS || nowMs - window.sinceMs < WINDOW_MS) return;
      this.#hits = window.found / window.could;
      if (bound !== null && !this.#unjudged) this.#judge(settings, { bound, window, nowMs });
      else this.#unjudged = false;
    }
    this.#window = { sinceMs: nowMs, found: 0, could: 0, turns: 0, looks: 0, waits: 0 };
  }

  #judge(
    settings: BoundSettings,
    { bound, window, nowMs }: { bound: number; window: Window; nowMs: number },
  ): void {
    const hits = window.found / window.could;
    const own = window.looks === 0 ? 0 : window.waits / window.looks;
    const now = 1 - (1 - own) ** this.#routers;
    const weight = this.#waiting === 0 ? 1 : WAITING_WEIGHT;
    this.#waiting += weight * (now - this.#waiting);
    const waiting = this.#waiting;
    const way = direction({
      hits,
      waiting,
      now,
      above: bound - (settings.workingSetBound ?? bound),
    });
    if (way === 0) return;
    if (way < 0) {
      this.#barred = { bound, untilMs: nowMs + RETRY_MS };
      this.#unjudged = true;
    }
    const barred = this.#barred !== null && nowMs < this.#barred.untilMs;
    const top = barred ? (this.#barred?.bound ?? 0) - STEP : Number.POSITIVE_INFINITY;
    const down = hits < POOR ? POOR_STEP : STEP;
    const next = way < 0 ? bound - down : Math.max(bound, Math.min(bound + STEP, top));
    this.#offset = clamp(next, settings) - (settings.workingSetBound ?? 0);
  }
}

/** `above`: how far the bound is above its start. */
function direction(seen: {
  hits: number;
  waiting: number;
  now: number;
  above: number;
}): -1 | 0 | 1 {
  const { hits, waiting, now, above } = seen;
  if (hits < POOR) return -1;
  if (waiting < ALWAYS) return hits >= FAIR && now > SELDOM && now < ALWAYS ? 1 : 0;
  if (above > SAME) return -1;
  return hits >= GOOD && above < -SAME ? 1 : 0;
}

function clamp(bound: number, settings: BoundSettings): number {
  const { workingSetBoundMin: least, workingSetBoundMax: most } = settings;
  return Math.max(least, Math.min(most, Math.round(bound * 1_000) / 1_000));
}
