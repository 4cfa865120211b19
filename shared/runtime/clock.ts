// The only place where the process's clocks are read.

export interface Clock {
  /** Monotonic ms, for durations and every core's `nowMs`. */
  nowMs(): number;
  /** ms since 1970, for people and the wire's offset alarm. */
  wallMs(): number;
}

export const systemClock: Clock = {
  nowMs: () => performance.now(),
  wallMs: () => Date.now(),
};
