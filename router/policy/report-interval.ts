// The least interval between two reports of an agent, so that a router hears about 1,000 a second
// at most.

/**
 * Agents up to which each may report at the configured interval; beyond, intervals grow with their
 * number.
 */
const AGENTS_AT_FULL_RATE = 50;
const INTERVAL_MAX_MS = 1_000;

export function reportIntervalMs(leastMs: number, agents: number): number {
  const grown = leastMs * Math.max(1, agents / AGENTS_AT_FULL_RATE);
  return Math.min(grown, Math.max(leastMs, INTERVAL_MAX_MS));
}
