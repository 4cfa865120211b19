// Settings of the cores, with their units and starting values. The configuration schema uses these values as
// its defaults; the simulator uses them as they are.

export interface AgentSettings {
  /** ms between scrapes of the engine's metrics. */
  readonly scrapeIntervalMs: number;
  /** ms between reports at most, also without change. */
  readonly reportMaxIntervalMs: number;
  /** ms without evidence of loading before a refused port is `dead`. */
  readonly startTimeoutMs: number;
  /** ms between probes of a replica that no user's first token has vouched for. */
  readonly probeIntervalMs: number;
  /** Consecutive good probes that bring `degraded` back to `ready`. */
  readonly probeRecoveries: number;
  /** ms that a closed link's leases are kept for its router to return. */
  readonly linkGraceMs: number;
  readonly calibration: boolean;
  /** Prompt tokens that calibration may spend per incarnation. */
  readonly calibrationBudgetTokens: number;
  /** ms that a silent replica may be so at least. */
  readonly silentMinMs: number;
  /** Prefills that take so many times what calibration had them take are slow; null switches the rule off. */
  readonly slowFactor: number | null;
  /** ms that prefills must have been slow before the replica is degraded for it. */
  readonly slowDwellMs: number;
  /** Batch slots, where the operator knows them; else learned. */
  readonly runningMax: number | null;
  /** Tokens per scheduler step, where the operator knows them; else learned or 2,048. */
  readonly stepTokens: number | null;
  readonly revision: string;
}

export const AGENT_DEFAULTS: AgentSettings = {
  scrapeIntervalMs: 1_000,
  reportMaxIntervalMs: 1_000,
  startTimeoutMs: 600_000,
  probeIntervalMs: 15_000,
  probeRecoveries: 3,
  linkGraceMs: 10_000,
  calibration: true,
  calibrationBudgetTokens: 64_000,
  silentMinMs: 10_000,
  slowFactor: 3,
  slowDwellMs: 10_000,
  runningMax: null,
  stepTokens: null,
  revision: 'unknown',
};

export interface RegionalSettings {
  /** Cost: weight of other requests' token time, per output token. */
  readonly outputWeight: number;
  /** Cost: ms of KV pressure, times K/(1−K). */
  readonly kvPressureMs: number;
  /** Cost: ms of preemption look-ahead. */
  readonly preemptionHorizonMs: number;
  /** Cost: how much what a prefill delays others weighs where work waits; 0 switches it off. */
  readonly crowdingWeight: number;
  /** Pick: a gap below this is a tie, ms. */
  readonly tieMs: number;
  /** Pick: or below this share of the least cost. */
  readonly tieRatio: number;
  readonly tieCandidates: number;
  /** Queue: a replica with this much prefill waiting is full, ms. */
  readonly holdMs: number;
  /** Queue: credit per ms of age against ms of predicted prefill. */
  readonly ageCredit: number;
  readonly queueMaxRequests: number;
  readonly queueMaxBytes: number;
  /** Queue: longest wait that is still accepted, ms. */
  readonly queueMaxWaitMs: number;
  /** Queue: silence towards a streaming client before 200 and comments, ms. */
  readonly keepAliveAfterMs: number;
  /**
   * Working set: share of a replica's KV capacity that live conversations may take at start, before new ones wait;
   * null switches the rule off.
   */
  readonly workingSetBound: number | null;
  /** Working set: the bound is tightened no further. */
  readonly workingSetBoundMin: number;
  /** Working set: the bound is eased no further. */
  readonly workingSetBoundMax: number;
  /** Working set: how long a new conversation waits for room before it enters anyway, ms. */
  readonly newConversationWaitMs: number;
  /** Requests in a replica whose waiting work is unknown, or whose pool has learned no cost curve. */
  readonly unknownConcurrency: number;
  /** Link lost: how long the last report is still used, ms. */
  readonly staleGraceMs: number;
  /** Window in which fewer than half as many fresh replicas make a pool static, ms. */
  readonly staticWindowMs: number;
  readonly minReportIntervalMs: number;
  /** Attempts per request, the first included. */
  readonly maxAttempts: number;
  /** Retries as a share of requests, over a sliding window. */
  readonly retryBudgetRatio: number;
  /** Retries always allowed per second, however little traffic there is. */
  readonly retryBudgetMinPerS: number;
  readonly connectTimeoutMs: number;
  /** First token: base + 2·(wait + prefill). */
  readonly firstTokenBaseMs: number;
  /** First token: anybody's first token within this extends it once, ms. */
  readonly firstTokenExtendWindowMs: number;
  readonly stallMinMs: number;
  /** Not streamed and no max_tokens: tokens assumed for the deadline. */
  readonly assumedMaxTokens: number;
  /** Consecutive server faults that open a replica's breaker. */
  readonly breakerFailures: number;
  readonly breakerOpenMs: number;
  /** Prefix index budget, bytes. */
  readonly prefixIndexBytes: number;
}

export const REGIONAL_DEFAULTS: RegionalSettings = {
  outputWeight: 0.1,
  kvPressureMs: 150,
  preemptionHorizonMs: 1_000,
  crowdingWeight: 1,
  tieMs: 5,
  tieRatio: 0.05,
  tieCandidates: 8,
  holdMs: 60,
  ageCredit: 0.25,
  queueMaxRequests: 10_000,
  queueMaxBytes: 256 * 1024 * 1024,
  queueMaxWaitMs: 60_000,
  keepAliveAfterMs: 10_000,
  workingSetBound: 0.9,
  workingSetBoundMin: 0.5,
  workingSetBoundMax: 1.2,
  newConversationWaitMs: 15_000,
  unknownConcurrency: 16,
  staleGraceMs: 30_000,
  staticWindowMs: 60_000,
  minReportIntervalMs: 50,
  maxAttempts: 3,
  retryBudgetRatio: 0.2,
  retryBudgetMinPerS: 10,
  connectTimeoutMs: 2_000,
  firstTokenBaseMs: 4_000,
  firstTokenExtendWindowMs: 5_000,
  stallMinMs: 10_000,
  assumedMaxTokens: 4_096,
  breakerFailures: 3,
  breakerOpenMs: 5_000,
  prefixIndexBytes: 64 * 1024 * 1024,
};
