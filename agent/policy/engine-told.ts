// Prefill work and rate where the engine itself tells them, against what the ledger and the observer make of it.
//
//   correction = engine's waiting prefill tokens − ledger's at that scrape, of the last two scrapes the one nearer to
//                0, and 0 where they disagree on the sign
//   rate       = Δ busy tokens ÷ Δ busy seconds, over as many scrapes as it takes to see MIN_SECONDS and MIN_TOKENS
//
// Above 0 a correction is work that no router told of; below, hits that were better than foretold. A message that is
// under way at one scrape is in the ledger at the next, so it never corrects for longer than it travels. Between
// scrapes the ledger goes on from there. An idle engine keeps its rate.

import type { RankScrape } from '../events.ts';
import { BusyRate } from './busy-rate.ts';

/** Less is a prompt or two: fixed costs, not the rate. */
const MIN_SECONDS = 0.2;
const MIN_TOKENS = 512;

export interface ToldRate {
  readonly tps: number;
  /** The engine counts something else, of which this is a bound. */
  readonly derived: boolean;
}

interface Busy {
  readonly tokens: number;
  readonly seconds: number;
}

export class EngineTold {
  private readonly busy = new BusyRate();
  private derived = false;
  private from: Busy | null = null;
  private corrections: number[] = [];

  /** `ledgerTokens`: what the ledger has waiting now. */
  scraped(rank: RankScrape, ledgerTokens: number): void {
    this.noteBusy(rank);
    const { waitingPrefillTokens } = rank;
    if (waitingPrefillTokens === null) {
      this.corrections = [];
      return;
    }
    this.corrections.push(waitingPrefillTokens - ledgerTokens);
    if (this.corrections.length > 2) this.corrections.shift();
  }

  clear(): void {
    this.from = null;
    this.corrections = [];
  }

  /** Tokens to add to the ledger's; null where the engine does not tell. */
  correctionTokens(): number | null {
    const [a, b] = this.corrections;
    if (a === undefined || b === undefined) return null;
    if (a > 0 !== b > 0) return 0;
    return Math.abs(a) < Math.abs(b) ? a : b;
  }

  /** Null until measured. */
  rate(): ToldRate | null {
    const tps = this.busy.tps();
    return tps === null ? null : { tps, derived: this.derived };
  }

  private noteBusy({ prefillBusyTokens, prefillBusySeconds, derived }: RankScrape): void {
    if (prefillBusyTokens === null || prefillBusySeconds === null) return;
    const now = { tokens: prefillBusyTokens, seconds: prefillBusySeconds };
    this.derived = derived.includes('prefillBusyTokens');
    const { from } = this;
    if (from === null || now.tokens < from.tokens || now.seconds < from.seconds) {
      this.from = now;
      return;
    }
    const tokens = now.tokens - from.tokens;
    const seconds = now.seconds - from.seconds;
    if (seconds < MIN_SECONDS || tokens < MIN_TOKENS) return;
    this.busy.observe(tokens, seconds * 1_000);
    this.from = now;
  }
}
