// How much of a KV cache live conversations may take: the bound of working-set admission, moved by what continuing turns
// really find.
//
//   hits = Σ cached tokens that engines reported ÷ Σ tokens of the turns gone on from      over one window
//
// A window is over when it has enough turns and has lasted as long as conversations rest (τ): what the bound does shows
// only when they come back. Then, one bounded step a window:
//   hits < POOR                          tightened, by what is missing, STEP_DOWN at most
//   hits ≥ GOOD and somebody held back   eased by STEP_UP
// A bound at which hits were poor is not tried again for RETRY_MS: the controller does not swing.

export interface BoundSettings {
  readonly workingSetBound: number | null;
  readonly workingSetBoundMin: number;
  readonly workingSetBoundMax: number;
}

const GOOD = 0.9;
const POOR = 0.8;
const STEP_UP = 0.05;
const STEP_DOWN = 0.2;
const LEAST_STEP_DOWN = 0.05;
const WINDOW_TURNS = 64;
const WINDOW_MS = 5_000;
const RETRY_MS = 300_000;

export class WorkingSetControl {
  #offset = 0;
  #found = 0;
  #could = 0;
  #turns = 0;
  #held = false;
  #sinceMs: number | null = null;
  #hits: number | null = null;
  #poor: { readonly bound: number; readonly atMs: number } | null = null;

  /** Null while the rule is off. */
  bound(settings: BoundSettings): number | null {
    const { workingSetBound: start } = settings;
    return start === null ? null : clamp(start + this.#offset, settings);
  }

  /** Of the last window that was over; null before any. */
  get hits(): number | null {
    return this.#hits;
  }

  /** The bound has held somebody back. */
  heldBack(): void {
    this.#held = true;
  }

  /** A turn went on from one of `could` tokens, and its engine found `found` of them. */
  observe(turn: { readonly found: number; readonly could: number }): void {
    if (!(turn.could > 0) || !(turn.found >= 0)) return;
    this.#found += Math.min(turn.found, turn.could);
    this.#could += turn.could;
    this.#turns += 1;
  }

  /** Moves the bound where a window is over. `restMs`: how long conversations rest, τ. */
  step(settings: BoundSettings, at: { readonly nowMs: number; readonly restMs: number }): void {
    this.#sinceMs ??= at.nowMs;
    const over = at.nowMs - this.#sinceMs >= Math.max(WINDOW_MS, at.restMs);
    const before = this.bound(settings);
    if (!over || this.#turns < WINDOW_TURNS || before === null) return;
    const hits = this.#found / this.#could;
    this.#hits = hits;
    this.#move(settings, { before, hits, nowMs: at.nowMs });
    this.#found = 0;
    this.#could = 0;
    this.#turns = 0;
    this.#held = false;
    this.#sinceMs = at.nowMs;
  }

  #move(
    settings: BoundSettings,
    { before, hits, nowMs }: { before: number; hits: number; nowMs: number },
  ): void {
    let next = before;
    if (hits < POOR) {
      this.#poor = { bound: before, atMs: nowMs };
      next -= Math.min(STEP_DOWN, Math.max(LEAST_STEP_DOWN, GOOD - hits));
    } else if (hits >= GOOD && this.#held) {
      const poor = this.#poor;
      const barred = poor !== null && nowMs - poor.atMs < RETRY_MS ? poor.bound : Infinity;
      next = Math.max(before, Math.min(before + STEP_UP, barred - STEP_UP));
    }
    this.#offset = clamp(next, settings) - (settings.workingSetBound ?? 0);
  }
}

function clamp(bound: number, settings: BoundSettings): number {
  return Math.max(
    settings.workingSetBoundMin,
    Math.min(settings.workingSetBoundMax, Math.round(bound * 1_000) / 1_000),
  );
}
