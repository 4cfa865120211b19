// How much of a hot region's new conversations may go abroad: one gate a (region, pool).
//
//   queue ≥ start   the share grows by `ramp` an interval, while receivers have credit, up to the ceiling
//   queue ≤ stop    it shrinks by `ramp` an interval, to 0
//   between         it stays
//   unknown         it stays for `blindMs`, then shrinks: what is not seen is not hot
//
// It moves evenly with time, not in steps: many routers that read one report do not step together. It turns round only
// when it has not moved the other way for `dwellMs`. Each new conversation adds the share to an account, and one goes
// abroad when the account has reached 1: of n in a row at most share · n + 1 do. A second account holds prefill tokens a
// second; one that overdraws it waits until it is paid back.

import type { GlobalSettings } from '../../shared/model/global-settings.ts';

export type SpillSettings = Pick<
  GlobalSettings,
  | 'spillStartMs'
  | 'spillStopMs'
  | 'spillRampRatio'
  | 'spillIntervalMs'
  | 'spillDwellMs'
  | 'spillCeilingRatio'
  | 'spillTokensPerS'
  | 'spillBlindMs'
>;

/** What the cap may be behind or ahead by, ms of its rate. */
const CAP_BURST_MS = 1_000;

/** A conversation that asks to go abroad. */
export interface SpillAsking {
  readonly uncachedTokens: number;
  /** It has asked before: it may take a turn that is left, and adds nothing to the account. */
  readonly again: boolean;
}

export type SpillDirection = 'up' | 'still' | 'down';

export interface SpillSight {
  /** Of the region itself, as estimated; null: unknown. */
  readonly queueMs: number | null;
  /** Some receiver has credit left, or gives more. */
  readonly roomAbroad: boolean;
}

export class SpillGate {
  #share = 0;
  #steppedMs: number | null = null;
  #seenMs: number | null = null;
  #direction: SpillDirection = 'still';
  /** The last way it moved, and when it last did. */
  #moved: { readonly way: 'up' | 'down'; readonly atMs: number } | null = null;
  #turns = 0;
  #account = 0;
  #tokens: number | null = null;
  #tokensAtMs = 0;

  /** Of new conversations, 0 to the ceiling. */
  get share(): number {
    return this.#share;
  }

  get direction(): SpillDirection {
    return this.#direction;
  }

  /** How often it has turned round so far. */
  get turns(): number {
    return this.#turns;
  }

  /** Moves the share by what is seen and the time since the last step. */
  step(sight: SpillSight, settings: SpillSettings, nowMs: number): void {
    const sinceMs = this.#steppedMs === null ? 0 : Math.max(0, nowMs - this.#steppedMs);
    this.#steppedMs = nowMs;
    if (sight.queueMs !== null) this.#seenMs = nowMs;
    const wanted = this.#wanted(sight, settings, nowMs);
    this.#direction = this.#allowed(wanted, settings, nowMs);
    if (this.#direction !== 'still') {
      const by = (settings.spillRampRatio * sinceMs) / settings.spillIntervalMs;
      this.#move(this.#direction, by, nowMs);
    }
    this.#share = Math.min(this.#share, settings.spillCeilingRatio);
  }

  /**
   * Whether this new conversation may go abroad. Counts it either way; a conversation that may and stays all the same
   * has used its turn.
   */
  admits(asking: SpillAsking, settings: SpillSettings, nowMs: number): boolean {
    if (this.#share <= 0) {
      this.#account = 0;
      return false;
    }
    if (!asking.again) this.#account += this.#share;
    if (this.#account < 1) return false;
    const pays = this.#pays(asking.uncachedTokens, settings, nowMs);
    this.#account = pays ? this.#account - 1 : 1;
    return pays;
  }

  /** What `admits` would say. Changes nothing. */
  wouldAdmit(again: boolean, settings: SpillSettings, nowMs: number): boolean {
    const account = this.#account + (again ? 0 : this.#share);
    if (this.#share <= 0 || account < 1) return false;
    return this.#level(settings, nowMs) > 0;
  }

  #wanted(sight: SpillSight, settings: SpillSettings, nowMs: number): SpillDirection {
    if (sight.queueMs === null) {
      const blindMs = this.#seenMs === null ? Number.POSITIVE_INFINITY : nowMs - this.#seenMs;
      return blindMs < settings.spillBlindMs ? 'still' : 'down';
    }
    if (sight.queueMs <= settings.spillStopMs) return 'down';
    return sight.queueMs >= settings.spillStartMs && sight.roomAbroad ? 'up' : 'still';
  }

  #allowed(wanted: SpillDirection, settings: SpillSettings, nowMs: number): SpillDirection {
    if (wanted === 'still') return wanted;
    if (wanted === 'down' && this.#share <= 0) return 'still';
    if (wanted === 'up' && this.#share >= settings.spillCeilingRatio) return 'still';
    const moved = this.#moved;
    if (moved === null || moved.way === wanted) return wanted;
    return nowMs - moved.atMs < settings.spillDwellMs ? 'still' : wanted;
  }

  #move(way: 'up' | 'down', by: number, nowMs: number): void {
    if (this.#moved !== null && this.#moved.way !== way) this.#turns += 1;
    this.#moved = { way, atMs: nowMs };
    this.#share = Math.max(0, this.#share + (way === 'up' ? by : -by));
  }

  #pays(tokens: number, settings: SpillSettings, nowMs: number): boolean {
    if (settings.spillTokensPerS === null) return true;
    const level = this.#level(settings, nowMs);
    this.#tokensAtMs = nowMs;
    this.#tokens = level > 0 ? level - tokens : level;
    return level > 0;
  }

  /** Tokens that may go abroad now; one request may overdraw it. */
  #level(settings: SpillSettings, nowMs: number): number {
    if (settings.spillTokensPerS === null) return Number.POSITIVE_INFINITY;
    const perMs = settings.spillTokensPerS / 1_000;
    const most = perMs * CAP_BURST_MS;
    const earned = perMs * Math.max(0, nowMs - this.#tokensAtMs);
    return Math.min(most, (this.#tokens ?? most) + earned);
  }
}
