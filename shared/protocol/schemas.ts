// What a decoded frame must look like to become a message: types, finite numbers, closed sets, bounds. Fields that
// are not named here are dropped. Hash chains are raw bytes on the wire and words inside.

import { z } from 'zod';
import type { AgentId, Incarnation, LeaseId, PoolId, ReplicaId, RouterId } from '../model/ids.ts';
import { DEGRADED_REASONS, PHASES, type Phase } from '../model/phase.ts';
import type { ReplicaReport } from '../model/report.ts';
import { helloFields, welcomeFields } from './greeting.ts';
import {
  MAX_CHAIN_CHUNKS,
  MAX_CHAINS,
  MAX_ENGINES,
  MAX_LEASE_REQUESTS,
  MAX_LEAVES,
  MAX_LORAS,
  MAX_MODELS,
  MAX_NAMES,
  MAX_OPEN_LEASES,
  MAX_PART_KINDS,
  MAX_RANKS,
  MAX_RUNS,
  MAX_SIBLINGS,
} from './limits.ts';
import {
  ATTEMPT_OUTCOMES,
  BYE_REASONS,
  type AttemptOutcome,
  type Bye,
  type ByeReason,
  type Ended,
  type Fence,
  type FirstToken,
  type HeardReport,
  type Hello,
  type Leases,
  type Queued,
  type ReportMessage,
  type Pace,
  type Resync,
  type Sent,
  type Welcome,
} from './messages.ts';
import { amount, costCurve, count, idOf, text } from './schema-fields.ts';
import { bytesToWords } from './words.ts';

const replica = idOf<ReplicaId>();
const incarnation = idOf<Incarnation>();
const lease = idOf<LeaseId>();
const pool = idOf<PoolId>();
const rank = z
  .int()
  .min(0)
  .max(MAX_RANKS - 1);
const word = z.int().min(0).max(0xffff_ffff);
/** Of bytes that become tokens by it: a divisor. */
const ratio = z.number().min(0.001).max(1e6);

/** A member of a closed set, or what stands for one that only a newer peer knows: the most careful reading of it. */
const memberOf = <T extends string>(known: readonly [T, ...T[]], newer: T): z.ZodType<T> =>
  z.union([z.enum(known), text.transform(() => newer)]) as unknown as z.ZodType<T>;
/** Nothing is sent to what is in a phase of which nothing is known. */
const phase = memberOf<Phase>(PHASES, 'starting');
const outcome = memberOf<AttemptOutcome>(ATTEMPT_OUTCOMES, 'failed');
const byeReason = memberOf<ByeReason>(BYE_REASONS, 'removed');

const words = (maxHashes: number) =>
  z
    .instanceof(Uint8Array)
    .refine((bytes) => bytes.length % 8 === 0 && bytes.length <= maxHashes * 8, 'not a hash list')
    .transform(bytesToWords);

const parts = z
  .record(z.string().max(64), amount)
  .refine((record) => Object.keys(record).length <= MAX_PART_KINDS, 'too many part kinds');

const bytesPerToken = z.object({
  mean: ratio,
  p5: ratio,
  p95: ratio,
});

const counters = z.object({
  promptTokens: amount.nullable(),
  generationTokens: amount.nullable(),
});

const run = z.object({
  parentLow: word,
  parentHigh: word,
  depth: count.max(MAX_CHAIN_CHUNKS),
  hashes: words(MAX_CHAIN_CHUNKS),
});

const leaf = z.object({
  hashLow: word,
  hashHigh: word,
  promptTokens: count.nullable(),
  answerTokens: count,
});

const model = z.object({
  id: text,
  maxModelLen: amount.nullable(),
  loras: z.array(text).max(MAX_LORAS),
});

const namesOf = (models: readonly { readonly loras: readonly string[] }[]): number =>
  models.reduce((names, { loras }) => names + 1 + loras.length, 0);

const queuedWork = z.object({
  prefillMs: amount,
  requests: count,
  topPriority: z.number().nullable(),
  routersQueueing: count,
  place: z
    .object({
      othersTop: z.number().nullable(),
      othersAtTop: count,
      before: count,
      turnMs: amount.optional(),
      othersRequests: count.optional(),
      oldestAgeMs: z.number().optional(),
    })
    .optional(),
});

const progress = z.object({ stage: text, ratio: amount.nullable() });

const gpus = z.object({
  name: text.nullable(),
  count,
  lost: count,
  memoryTotalBytes: amount.nullable(),
  memoryUsedBytes: amount.nullable(),
  temperatureC: z.number().nullable(),
  utilisationRatio: amount.nullable(),
  throttled: z.boolean().nullable(),
});

const costError = z.object({ p50: amount, p90: amount, bias: z.number() });

const report = z.object({
  replica,
  rank,
  incarnation: incarnation.nullable(),
  seq: count,
  phase,
  phaseForMs: amount,
  // A newer agent's reason, or none from an older one, is no reason that this router knows.
  degradedFor: z.enum(DEGRADED_REASONS).nullable().default(null).catch(null),
  slowRatio: amount.nullable().default(null),
  progress: progress.nullable().default(null),
  gpus: gpus.nullable().default(null),
  etaMs: amount.nullable(),
  prefillCost: costCurve.nullable(),
  costError: costError.nullable().default(null),
  waitingPrefillMs: amount.nullable(),
  waitingPrefillTokens: amount.nullable(),
  unattributedTokens: amount.nullable(),
  largestPrefillMs: amount.nullable(),
  prefillTps: amount.nullable(),
  slotWaitMs: amount.nullable(),
  workingSetTokens: amount.nullable(),
  itlMs: amount.nullable(),
  running: amount.nullable(),
  runningMax: amount.nullable(),
  kvUsageRatio: amount.nullable(),
  kvCapacityTokens: amount.nullable(),
  kvCachedTokens: amount.nullable().default(null),
  blockTokens: amount.nullable(),
  preemptionsTotal: amount.nullable(),
  preemptionsPerMin: amount.nullable(),
  bytesPerToken: bytesPerToken.nullable(),
  partTokens: parts,
  kappa: amount,
  probe: z.object({ ok: z.boolean(), ttftMs: amount.nullable(), consecutiveOk: count }).nullable(),
  models: z
    .array(model)
    .max(MAX_MODELS)
    .refine((models) => namesOf(models) <= MAX_NAMES, 'too many names'),
  revision: text,
  engine: z.object({ kind: text, version: text.nullable() }),
  routers: count,
  queued: queuedWork,
  ackedSeq: z.int().min(-1),
  scrapeAgoMs: amount.nullable(),
  counters,
  derived: z.array(text).max(64),
  absent: z.array(text).max(64).default([]),
}) satisfies z.ZodType<ReplicaReport>;

const chain = z.object({
  hashes: words(MAX_CHAIN_CHUNKS),
  endLow: word,
  endHigh: word,
  turnEnds: words(MAX_CHAIN_CHUNKS),
});

const leaseFacts = {
  lease,
  incarnation: incarnation.nullable(),
  promptTokens: amount,
  uncachedTokens: amount,
  matchedTokens: amount,
  promptBytes: amount,
  parts,
  streamed: z.boolean(),
  maxTokens: amount.nullable(),
  requests: z.int().min(1).max(MAX_LEASE_REQUESTS).optional(),
  restedMs: amount.optional(),
  chains: z.array(chain).max(MAX_CHAINS),
};

const ledgerEvent = { replica, rank, seq: count };

const resume = z.object({
  replica,
  rank,
  incarnation,
  prefillCost: costCurve.nullable(),
  prefillTps: amount.nullable(),
  bytesPerToken: bytesPerToken.nullable(),
  partTokens: parts,
  kappa: amount,
  runningMax: amount.nullable(),
  counters,
  runs: z.array(run).max(MAX_RUNS),
  leaves: z.array(leaf).max(MAX_LEAVES),
});

export const AGENT_SCHEMAS = {
  hello: z.object({
    ...helloFields,
    agentId: idOf<AgentId>(),
    pool,
    engines: z
      .array(z.object({ replica, advertiseUrl: text, ranks: z.int().min(1).max(MAX_RANKS) }))
      .max(MAX_ENGINES),
    proofPort: z.int().min(1).max(65_535).nullable(),
    wallMs: z.number(),
  }) satisfies z.ZodType<Hello>,
  report: z.object({
    kind: z.literal('report'),
    report,
    echo: z.boolean().optional(),
    othersAcked: z
      .array(z.object({ router: idOf<RouterId>(), seq: z.int().min(-1) }))
      .max(MAX_SIBLINGS)
      .optional(),
  }) satisfies z.ZodType<ReportMessage>,
  bye: z.object({
    kind: z.literal('bye'),
    replica,
    reason: byeReason,
  }) satisfies z.ZodType<Bye>,
} as const;

export const ROUTER_SCHEMAS = {
  welcome: z.object({
    ...welcomeFields,
    siblings: z.array(text).max(MAX_SIBLINGS),
    minReportIntervalMs: amount,
    resume: z.array(resume).max(MAX_ENGINES * 8),
    wallMs: z.number(),
  }) satisfies z.ZodType<Welcome>,
  leases: z.object({
    kind: z.literal('leases'),
    ...ledgerEvent,
    open: z
      .array(z.object({ ...leaseFacts, sentAgoMs: amount, firstTokenAgoMs: amount.nullable() }))
      .max(MAX_OPEN_LEASES),
  }) satisfies z.ZodType<Leases>,
  sent: z.object({
    kind: z.literal('sent'),
    ...ledgerEvent,
    ...leaseFacts,
    agoMs: amount,
  }) satisfies z.ZodType<Sent>,
  firstToken: z.object({
    kind: z.literal('firstToken'),
    ...ledgerEvent,
    lease,
    agoMs: amount,
  }) satisfies z.ZodType<FirstToken>,
  ended: z.object({
    kind: z.literal('ended'),
    ...ledgerEvent,
    lease,
    agoMs: amount,
    outcome,
    usage: z
      .object({
        promptTokens: amount,
        cachedTokens: amount.nullable(),
        completionTokens: amount,
      })
      .nullable(),
  }) satisfies z.ZodType<Ended>,
  queued: z.object({
    kind: z.literal('queued'),
    pool,
    prefillMs: amount,
    requests: count,
    topPriority: z.number().nullable(),
    headAgeMs: z.number().optional(),
  }) satisfies z.ZodType<Queued>,
  fence: z.object({ kind: z.literal('fence'), replica }) satisfies z.ZodType<Fence>,
  pace: z.object({
    kind: z.literal('pace'),
    minReportIntervalMs: amount,
  }) satisfies z.ZodType<Pace>,
  resync: z.object({ kind: z.literal('resync'), replica, rank }) satisfies z.ZodType<Resync>,
  heard: z.object({
    kind: z.literal('heard'),
    replica,
    rank,
    reportSeq: count,
  }) satisfies z.ZodType<HeardReport>,
} as const;
