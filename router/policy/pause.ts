// Back-pressure: a target that answers 429, 503 or 529 is not asked again before the time it named.

export const PAUSE_DEFAULT_MS = 1_000;
export const PAUSE_MAX_MS = 60_000;

/** Until when a target is paused; a shorter wish never shortens a longer one. */
export function pauseUntilMs(before: number, retryAfterMs: number | null, nowMs: number): number {
  const wish = retryAfterMs === null || retryAfterMs <= 0 ? PAUSE_DEFAULT_MS : retryAfterMs;
  return Math.max(before, nowMs + Math.min(wish, PAUSE_MAX_MS));
}
