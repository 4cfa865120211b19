// How long what an idle conversation has in the KV cache lasts: until as many new tokens have been written as the cache
// holds, since engines evict what was used least recently.
//
//   life = KV capacity / tokens written per ms, by all routers        at most LIFE_MAX_MS
//   rate = Σ tokens · e^(−age/τ) / (τ · (1 − e^(−seen/τ)))            τ a minute; seen: since the first look

const MEMORY_MS = 60_000;
/** Younger than this a rate is an accident. */
const SEEN_MIN_MS = 10_000;
/** Beyond it nobody's conversation is worth a guess, ms. */
export const LIFE_MAX_MS = 3_600_000;

export class KvFill {
  #tokens = 0;
  #atMs: number | null = null;
  #sinceMs: number | null = null;

  /** Tokens that were not in the cache before. */
  wrote(tokens: number, nowMs: number): void {
    this.#sinceMs ??= nowMs;
    this.#tokens = this.#left(nowMs) + tokens;
    this.#atMs = nowMs;
  }

  /** Tokens per ms; 0 where nothing was ever written. */
  perMs(nowMs: number): number {
    if (this.#sinceMs === null) return 0;
    const seenMs = Math.max(SEEN_MIN_MS, nowMs - this.#sinceMs);
    return this.#left(nowMs) / (MEMORY_MS * -Math.expm1(-seenMs / MEMORY_MS));
  }

  #left(nowMs: number): number {
    const ageMs = Math.max(0, nowMs - (this.#atMs ?? nowMs));
    return this.#tokens * Math.exp(-ageMs / MEMORY_MS);
  }
}

/** Null where the capacity is unknown. `tokensPerMs`: of all routers together. */
export function kvLifetimeMs(capacityTokens: number | null, tokensPerMs: number): number | null {
  if (capacityTokens === null) return null;
  return Math.min(LIFE_MAX_MS, tokensPerMs > 0 ? capacityTokens / tokensPerMs : LIFE_MAX_MS);
}
