// A target that fails again and again is left alone for a while.
//
//   closed --n consecutive faults--> open --breakerOpenMs·2^k--> half-open --success--> closed
//                                     ^------------ fault ------------'
//
// What shows that the target may be back brings half-open sooner, and closes nothing.
// Half-open lets one request through at a time. Outcomes that say nothing about the target (the
// client's own errors, back-pressure, a client that left) count neither way.

import type { RegionalSettings } from '../../shared/model/settings.ts';

export type BreakerSettings = Pick<RegionalSettings, 'breakerFailures' | 'breakerOpenMs'>;

const OPEN_MAX_MS = 60_000;

export type BreakerState = 'closed' | 'open' | 'half_open';

/** How many of several breakers are not closed: where none is, nobody has to be asked. */
export interface BreakerTally {
  tripped: number;
}

export class Breaker {
  readonly #tally: BreakerTally;
  #faults = 0;
  #opened = 0;
  #openedAtMs = 0;
  #openUntilMs = Number.NEGATIVE_INFINITY;
  #state: 'closed' | 'open' = 'closed';
  #trial: string | null = null;

  constructor(tally: BreakerTally = { tripped: 0 }) {
    this.#tally = tally;
  }

  state(nowMs: number): BreakerState {
    if (this.#state === 'closed') return 'closed';
    return nowMs >= this.#openUntilMs ? 'half_open' : 'open';
  }

  /** Whether a request may not go there now. */
  blocks(nowMs: number): boolean {
    const state = this.state(nowMs);
    return state === 'open' || (state === 'half_open' && this.#trial !== null);
  }

  get openedAtMs(): number {
    return this.#openedAtMs;
  }

  /** When an open breaker lets the next trial through; null when it is not open. */
  opensAgainMs(nowMs: number): number | null {
    return this.state(nowMs) === 'open' ? this.#openUntilMs : null;
  }

  get faults(): number {
    return this.#faults;
  }

  /** `trial` names the attempt that goes through a half-open breaker. */
  sent(trial: string, nowMs: number): void {
    if (this.state(nowMs) === 'half_open') this.#trial = trial;
  }

  /** A whole good answer. */
  succeeded(attempt: string): void {
    this.#clearTrial(attempt);
    this.#faults = 0;
    this.#opened = 0;
    this.#become('closed');
  }

  /** It lives: a half-open breaker closes, but one more fault opens it again. */
  showedLife(attempt: string, settings: BreakerSettings): void {
    if (this.#trial !== attempt) return;
    this.#trial = null;
    this.#become('closed');
    this.#faults = settings.breakerFailures - 1;
  }

  /** It may be back: no request has to wait longer than until then to try it. */
  mayTryFrom(atMs: number): void {
    this.#openUntilMs = Math.min(this.#openUntilMs, atMs);
  }

  neutral(attempt: string): void {
    this.#clearTrial(attempt);
  }

  failed(attempt: string, nowMs: number, settings: BreakerSettings): void {
    const wasTrial = this.#trial === attempt;
    this.#clearTrial(attempt);
    this.#faults += 1;
    const state = this.state(nowMs);
    if (state === 'open' || (state === 'half_open' && !wasTrial)) return;
    if (state === 'closed' && this.#faults < settings.breakerFailures) return;
    this.#become('open');
    this.#openedAtMs = nowMs;
    this.#openUntilMs = nowMs + Math.min(OPEN_MAX_MS, settings.breakerOpenMs * 2 ** this.#opened);
    this.#opened += 1;
  }

  /** The engine process is another one now. */
  reset(): void {
    this.#faults = 0;
    this.#opened = 0;
    this.#become('closed');
    this.#trial = null;
  }

  #become(state: 'closed' | 'open'): void {
    if (state !== this.#state) this.#tally.tripped += state === 'open' ? 1 : -1;
    this.#state = state;
  }

  #clearTrial(attempt: string): void {
    if (this.#trial === attempt) this.#trial = null;
  }
}

/**
 * Of a pool's targets, those whose breaker counts: never more than half of the pool, the longest
 * open first, so that a common cause cannot eject everybody.
 */
export function ejected<T extends { breaker: Breaker }>(
  targets: readonly T[],
  nowMs: number,
): Set<T> {
  const blocked = targets.filter((target) => target.breaker.blocks(nowMs));
  blocked.sort((a, b) => a.breaker.openedAtMs - b.breaker.openedAtMs);
  return new Set(blocked.slice(0, Math.floor(targets.length / 2)));
}
