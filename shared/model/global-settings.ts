// Settings of the global tier, with their units and starting values: of a global router's core, and of what a region
// tells and grants it. The configuration schema uses these values as its defaults; the simulator uses them as they are.

export interface GlobalSettings {
  /** Spill: estimated queue of a region from which new conversations begin to go abroad, ms. */
  readonly spillStartMs: number;
  /** Spill: estimated queue below which they come back, ms. */
  readonly spillStopMs: number;
  /** Spill: share of new conversations by which it moves in one interval. */
  readonly spillRampRatio: number;
  readonly spillIntervalMs: number;
  /** Spill: least time between moving up and moving down, ms. */
  readonly spillDwellMs: number;
  /** Spill: share of new conversations that go abroad at most. */
  readonly spillCeilingRatio: number;
  /** Spill: uncached prompt tokens a second that go abroad at most; null: no cap but the credit. */
  readonly spillTokensPerS: number | null;
  /** Spill: the last estimate is believed for so long, ms. */
  readonly spillBlindMs: number;
  /** Spill: a region without a report for so long is not sent to, and its own share stays as it is, ms. */
  readonly spillSightMs: number;
  /** Choice: temperature of the draw among home and receivers, ms. */
  readonly temperatureMs: number;
  /** Estimate: half-life of what was, ms. */
  readonly smoothingHalfLifeMs: number;
  /** Estimate: a send that no region reports as arrived counts for so long, ms. */
  readonly unacknowledgedMs: number;
  /** A conversation moves for load when staying costs more by so many times `spillStartMs`. */
  readonly moveFactor: number;
  /** A conversation that has moved for load does not again for so long, ms. */
  readonly moveDwellMs: number;
  /** Conversations whose place is remembered, and as many that regions report as away from home. */
  readonly affinityMax: number;
  /** A conversation is forgotten after so long without a turn, ms. */
  readonly affinityLifeMs: number;
  /** Of a tenant's prompts with earlier turns, share that must be conversations for all of them to be taken for such. */
  readonly affinityMatchedRatio: number;
  /** Least time between two reports of a region's router, ms. */
  readonly reportIntervalMs: number;
  /** Link lost, or silent: how long a region's last report is still used, ms. */
  readonly staleGraceMs: number;
  /** Attempts per request, the first included, each in another region. */
  readonly maxAttempts: number;
  /** Retries as a share of requests, over a sliding window. */
  readonly retryBudgetRatio: number;
  /** Retries always allowed per second, however little traffic there is. */
  readonly retryBudgetMinPerS: number;
  readonly connectTimeoutMs: number;
  /** First token: base + 2·estimate. */
  readonly firstTokenBaseMs: number;
  /** First token: anybody's first token from there within this extends it, ms. */
  readonly firstTokenExtendWindowMs: number;
  /** First token: no extension beyond so long after sending, ms. */
  readonly firstTokenMaxMs: number;
  readonly stallMinMs: number;
  /** Not streamed and no max_tokens: tokens assumed for the deadline. */
  readonly assumedMaxTokens: number;
  /** Consecutive server faults that open a region's breaker. */
  readonly breakerFailures: number;
  readonly breakerOpenMs: number;
  /** Queue, where every eligible region asks for time. */
  readonly queueMaxRequests: number;
  readonly queueMaxBytes: number;
  /** Queue: longest wait that is still accepted, ms. */
  readonly queueMaxWaitMs: number;
  /** Queue: silence towards a streaming client before 200 and comments, ms. */
  readonly keepAliveAfterMs: number;
}

export const GLOBAL_DEFAULTS: GlobalSettings = {
  spillStartMs: 400,
  spillStopMs: 150,
  spillRampRatio: 0.1,
  spillIntervalMs: 60_000,
  spillDwellMs: 30_000,
  spillCeilingRatio: 0.5,
  spillTokensPerS: null,
  spillBlindMs: 10_000,
  spillSightMs: 3_000,
  temperatureMs: 150,
  smoothingHalfLifeMs: 2_000,
  unacknowledgedMs: 10_000,
  moveFactor: 2,
  moveDwellMs: 600_000,
  affinityMax: 200_000,
  affinityLifeMs: 3_600_000,
  affinityMatchedRatio: 0.3,
  reportIntervalMs: 1_000,
  staleGraceMs: 10_000,
  maxAttempts: 3,
  retryBudgetRatio: 0.2,
  retryBudgetMinPerS: 10,
  connectTimeoutMs: 2_000,
  firstTokenBaseMs: 10_000,
  firstTokenExtendWindowMs: 5_000,
  firstTokenMaxMs: 120_000,
  stallMinMs: 30_000,
  assumedMaxTokens: 4_096,
  breakerFailures: 3,
  breakerOpenMs: 5_000,
  queueMaxRequests: 10_000,
  queueMaxBytes: 256 * 1024 * 1024,
  queueMaxWaitMs: 10_000,
  keepAliveAfterMs: 10_000,
};

/** How a region appears to the global tier. */
export interface UplinkSettings {
  /** Own estimated queue up to which it grants credit, ms: as `spillStartMs` of global routers. */
  readonly spillStartMs: number;
  /** A grant that is not spent lapses after so long, ms. */
  readonly creditLifeMs: number;
  /** How long after its life a spend may still be on the way, ms. */
  readonly creditGraceMs: number;
  /** Conversations away from home that are remembered. */
  readonly awayMax: number;
}

export const UPLINK_DEFAULTS: UplinkSettings = {
  spillStartMs: 400,
  creditLifeMs: 5_000,
  creditGraceMs: 5_000,
  awayMax: 100_000,
};
