// Whether something on the way held a stream back, from when its events came.
//
//   together   events that came within TOGETHER_MS of each other came in one piece
//   all        nearly all in one or two pieces, and later than the region says that it began by LATE_MS and more: held to
//              its end. Without the region's word for it: unknown, a fast engine looks the same
//   blocks     pieces of several events each, with a gap of `gapMs` or more between them: held until a block was full
//
// Fewer than EVENTS_MIN events tell nothing.

const EVENTS_MIN = 6;
const TOGETHER_MS = 3;
/** More than a round trip across the world takes, and less than a score of tokens. */
const LATE_MS = 400;

export interface Spacing {
  /** Between two pieces, ms. */
  readonly gapMs: number;
  /** Of the first event behind what the region says of its first token, the way included, ms. NaN: it does not say. */
  readonly lateMs: number;
}

/** `arrivals`: of each event, ms, in order. Null: nothing can be said. */
export function isHeldBack(
  arrivals: readonly number[],
  { gapMs, lateMs }: Spacing,
): boolean | null {
  if (arrivals.length < EVENTS_MIN) return null;
  const gaps = arrivals.slice(1).map((atMs, k) => atMs - (arrivals[k] ?? atMs));
  const pieces = 1 + gaps.filter((gap) => gap > TOGETHER_MS).length;
  if (pieces <= 2) return Number.isNaN(lateMs) ? null : lateMs >= LATE_MS;
  return pieces * 3 <= arrivals.length && Math.max(...gaps) >= gapMs;
}

/** From a region's `Server-Timing`: from its receipt of the request to its first token, ms. NaN: it does not say. */
export function regionTtftMs(header: string | string[] | undefined): number {
  const found = typeof header === 'string' ? /(?:^|, *)ttft;dur=([\d.]+)/.exec(header) : null;
  return found?.[1] === undefined ? Number.NaN : Number(found[1]);
}
