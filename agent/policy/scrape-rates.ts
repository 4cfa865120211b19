// Rates from the engine's counters, one rank: token time, preemptions a minute, mean uncached prompt.
//
// Counters are totals; a rate needs two scrapes of one engine life. Figures hold while nothing moves, but the token
// time only for `ITL_HOLD_MS`: one that was measured over a hang would keep requests away, and without them nothing
// would ever correct it. `null` until there is something to say.

import type { RankScrape } from '../events.ts';

const PREEMPTION_WINDOW_MS = 60_000;
/** Prompts after which earlier ones count half in their mean. */
const HALF_PROMPTS = 50;
/** Of token times: engines with long prefills between their tokens need some seconds to show a mean. */
const HALF_LIFE_MS = 5_000;
/** Without a token a token time says nothing after this long. */
const ITL_HOLD_MS = 60_000;

export interface Prompts {
  readonly prompts: number;
  /** Uncached tokens of all of them. */
  readonly tokens: number;
}

/** Mean tokens of a prompt; earlier ones fade with the prompts seen. */
class PromptMean {
  private tokens = 0;
  private prompts = 0;

  get mean(): number | null {
    return this.prompts > 0 ? this.tokens / this.prompts : null;
  }

  observe({ tokens, prompts }: Prompts): void {
    if (prompts <= 0 || tokens <= 0) return;
    const keep = 0.5 ** (prompts / HALF_PROMPTS);
    this.tokens = this.tokens * keep + tokens;
    this.prompts = this.prompts * keep + prompts;
  }
}

export class ScrapeRates {
  private before: RankScrape | null = null;
  /** Token times and tokens, both fading with time. */
  private itlMsSum = 0;
  private itlTokens = 0;
  /** When tokens last told a time. */
  private itlAtMs = -Infinity;
  private readonly prompts = new PromptMean();
  private readonly strangers = new PromptMean();
  /** Preemption totals of the last minute, oldest first. */
  private preemptions: { readonly atMs: number; readonly total: number }[] = [];
  private moved = -Infinity;

  /** ms between tokens of a stream. */
  get itlMs(): number | null {
    return this.itlTokens > 0 ? this.itlMsSum / this.itlTokens : null;
  }

  /** Computed prompt tokens per request of those that no router told of; of all, where none was seen apart. */
  get meanForeignTokens(): number | null {
    return this.strangers.mean ?? this.prompts.mean;
  }

  /** When a counter was last seen to have moved. */
  get movedMs(): number {
    return this.moved;
  }

  clear(): void {
    this.before = null;
    this.forgetItl();
    this.preemptions = [];
    this.moved = -Infinity;
  }

  /**
   * `users`: users' requests were open since the last scrape; else token times are the agent's own. `own`: what the
   * ledger's requests were prefilled of since; null where there were no others.
   */
  scraped(
    scrape: RankScrape,
    since: { readonly users: boolean; readonly own: Prompts | null },
    atMs: number,
  ): void {
    const { users, own } = since;
    const { before } = this;
    this.before = scrape;
    this.notePreemptions(scrape.preemptionsTotal, atMs);
    if (before === null) return;
    if (COUNTERS.some((name) => (delta(scrape[name], before[name]) ?? 0) > 0)) this.moved = atMs;
    if (atMs - this.itlAtMs > ITL_HOLD_MS) this.forgetItl();
    if (!users) return;
    this.noteItl(scrape, before, atMs);
    const computed = delta(scrape.computedTokensTotal, before.computedTokensTotal);
    const prompts = delta(scrape.firstTokensTotal, before.firstTokensTotal);
    if (computed === null || prompts === null) return;
    this.prompts.observe({ tokens: computed, prompts });
    if (own === null) return;
    this.strangers.observe({ tokens: computed - own.tokens, prompts: prompts - own.prompts });
  }

  /** Null until two scrapes have told. */
  preemptionsPerMin(): number | null {
    const first = this.preemptions[0];
    const last = this.preemptions.at(-1);
    if (first === undefined || last === undefined || last.atMs <= first.atMs) return null;
    // Less than a minute of history is not stretched to one: two preemptions in a second are two.
    const minutes = Math.max(1, (last.atMs - first.atMs) / 60_000);
    return (last.total - first.total) / minutes;
  }

  private noteItl(scrape: RankScrape, before: RankScrape, atMs: number): void {
    const count = delta(scrape.itlCount, before.itlCount);
    const seconds = delta(scrape.itlSumSeconds, before.itlSumSeconds);
    if (count === null || seconds === null || count === 0) return;
    const keep = 0.5 ** (Math.max(0, atMs - this.itlAtMs) / HALF_LIFE_MS);
    this.itlMsSum = this.itlMsSum * keep + seconds * 1_000;
    this.itlTokens = this.itlTokens * keep + count;
    this.itlAtMs = atMs;
  }

  private forgetItl(): void {
    this.itlMsSum = 0;
    this.itlTokens = 0;
    this.itlAtMs = -Infinity;
  }

  private notePreemptions(total: number | null, atMs: number): void {
    if (total === null) return;
    if (total < (this.preemptions.at(-1)?.total ?? 0)) this.preemptions = [];
    this.preemptions.push({ atMs, total });
    while ((this.preemptions[1]?.atMs ?? Infinity) <= atMs - PREEMPTION_WINDOW_MS) {
      this.preemptions.shift();
    }
    if (this.preemptions.length > 1_024) this.preemptions.shift();
  }
}

const COUNTERS = [
  'promptTokensTotal',
  'computedTokensTotal',
  'generationTokensTotal',
  'firstTokensTotal',
  'itlCount',
  'stepsTotal',
] as const;

function delta(now: number | null, before: number | null): number | null {
  return now === null || before === null || now < before ? null : now - before;
}
