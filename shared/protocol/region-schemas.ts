// What a decoded frame of the link between a region and the global tier must look like. Fields that are not named here
// are dropped.

import { z } from 'zod';
import type { PoolId, RegionId, RouterId } from '../model/ids.ts';
import { helloFields, welcomeFields } from './greeting.ts';
import { MAX_KEY, MAX_PENDING, MAX_POOLS, MAX_REGION_MODELS, MAX_TIERS } from './limits.ts';
import {
  MAX_ARRIVED,
  MAX_AWAY,
  type AwayMessage,
  type DemandMessage,
  type GrantMessage,
  type RegionHello,
  type RegionModelReport,
  type RegionPoolReport,
  type RegionReportMessage,
  type RegionWelcome,
} from './region-messages.ts';
import { amount, costCurve, count, idOf, text } from './schema-fields.ts';

const pool = idOf<PoolId>();
const region = idOf<RegionId>();
const key = z.string().min(1).max(MAX_KEY);

const model = z.object({
  name: text,
  revision: text,
  maxModelLen: amount.nullable(),
  longestModelLen: amount.nullable().optional(),
  // A divisor.
  bytesPerTokenMost: z.number().positive().max(1e9).nullable().optional(),
}) satisfies z.ZodType<RegionModelReport>;

const poolReport = z.object({
  pool,
  observedAgoMs: amount.nullable(),
  readyReplicas: count,
  waitingPrefillMs: amount.nullable(),
  waitingPrefillTokens: amount.nullable(),
  prefillCost: costCurve.nullable(),
  prefillTps: amount.nullable(),
  slotWaitMs: amount.nullable(),
  kvUsageRatio: amount.nullable(),
  preemptionsPerS: amount.nullable(),
  kvLifetimeMs: amount.nullable(),
  kvRoomTokens: amount.nullable(),
  pending: z.array(z.object({ replicas: count, etaMs: amount.nullable() })).max(MAX_PENDING),
  models: z.array(model).max(MAX_REGION_MODELS),
  tiers: z.array(text).max(MAX_TIERS),
  queuedPrefillMs: amount,
  queuedRequests: count,
  oldestQueuedMs: amount.nullable(),
  kvRoomWaitMs: amount.nullable(),
  unacknowledgedMs: amount,
}) satisfies z.ZodType<RegionPoolReport>;

const awayConversation = z.object({ key, tokens: amount, idleMs: amount, awayForMs: amount });

export const REGION_CHILD_SCHEMAS = {
  hello: z.object({
    ...helloFields,
    routerId: idOf<RouterId>(),
    region,
    wallMs: z.number(),
  }) satisfies z.ZodType<RegionHello>,
  report: z.object({
    kind: z.literal('report'),
    seq: count,
    pools: z
      .array(poolReport)
      .max(MAX_POOLS)
      .refine((pools) => rowsOf(pools) <= MAX_REGION_MODELS, 'too many models'),
    routers: count,
    draining: z.boolean(),
    arrived: z.array(count).max(MAX_ARRIVED),
  }) satisfies z.ZodType<RegionReportMessage>,
  grant: z.object({
    kind: z.literal('grant'),
    pool,
    prefillMs: amount,
    lifeMs: amount,
  }) satisfies z.ZodType<GrantMessage>,
  away: z.object({
    kind: z.literal('away'),
    snapshot: z.boolean(),
    here: z.array(awayConversation).max(MAX_AWAY),
    gone: z.array(key).max(MAX_AWAY),
  }) satisfies z.ZodType<AwayMessage>,
} as const;

export const REGION_PARENT_SCHEMAS = {
  welcome: z.object({
    ...welcomeFields,
    region,
    wallMs: z.number(),
    zone: text.nullable(),
    reportIntervalMs: amount,
  }) satisfies z.ZodType<RegionWelcome>,
  demand: z.object({
    kind: z.literal('demand'),
    pool,
    wantsMs: amount,
    // A divisor, and the least that is ever given.
    requestMs: z.number().positive().max(1e9),
    spentMs: amount,
  }) satisfies z.ZodType<DemandMessage>,
} as const;

function rowsOf(pools: readonly Pick<RegionPoolReport, 'models'>[]): number {
  return pools.reduce((rows, { models }) => rows + models.length, 0);
}
