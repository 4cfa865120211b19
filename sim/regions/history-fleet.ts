// The generated parts of a random history: what is drawn, fleets with tenants, reports, prompts.

import type { GlobalSettings } from '../../shared/model/global-settings.ts';
import type { PoolId, RegionId } from '../../shared/model/ids.ts';
import type { PromptChain, TurnEnd } from '../../shared/model/prompt.ts';
import type { Random } from '../../shared/lib/random.ts';
import type { RegionPoolReport } from '../../shared/protocol/region-messages.ts';
import type { GlobalCoreConfig, TenantFacts } from '../../router/global/events.ts';

export const REGIONS = ['a', 'b', 'c', 'd'] as const;
export const TENANTS = ['t', 'u', 'v'] as const;
export const MODELS = ['m', 'n'] as const;
const ROLLOUTS = ['off', 'failover', 'active', 'active', 'active'] as const;

export class Dice {
  readonly #random: Random;

  constructor(random: Random) {
    this.#random = random;
  }

  next(): number {
    return this.#random.next();
  }

  any<T>(of: readonly T[]): T {
    return of[Math.floor(this.next() * of.length)] as T;
  }

  chance(ratio: number): boolean {
    return this.next() < ratio;
  }
}

export function someConfig(dice: Dice, settings: GlobalSettings): GlobalCoreConfig {
  const regions = REGIONS.filter(() => dice.chance(0.95)).map((id) => ({
    ...{ id: id as RegionId, zone: id, tiers: [], costMs: dice.chance(0.3) ? 20 : 0 },
    certifications: dice.chance(0.8) ? ['iso'] : [],
    ...{ baseUrl: `http://${id}`, rollout: dice.any(ROLLOUTS) },
  }));
  const some = (ratio: number): RegionId[] =>
    REGIONS.filter(() => dice.chance(ratio)).map((id) => id as RegionId);
  const tenants = TENANTS.filter(() => dice.chance(0.97)).map((name): [string, TenantFacts] => [
    name,
    {
      residency: dice.chance(0.5) ? null : { allow: some(0.7), fallback: some(0.2) },
      ...{ saltGroup: name, models: dice.chance(0.9) ? null : ['m'], tier: null },
      certifications: dice.chance(0.2) ? ['iso'] : [],
    },
  ]);
  return { settings, zone: null, regions, tenants: new Map(tenants) };
}

/** `isHot`: its queue is long. */
export function somePool(
  dice: Dice,
  pool: string,
  { isHot, models }: { readonly isHot: boolean; readonly models: readonly string[] },
): RegionPoolReport {
  const isLie = dice.chance(0.01);
  return {
    ...{ pool: pool as PoolId, observedAgoMs: Math.floor(dice.next() * (isLie ? 1e18 : 500)) },
    readyReplicas: dice.chance(0.98) ? (isLie ? 1e15 : 2) : 0,
    waitingPrefillMs: dice.chance(0.98)
      ? (isHot ? 1_000 : 0) + dice.next() * (isLie ? 1e18 : isHot ? 4_000 : 200)
      : null,
    waitingPrefillTokens: null,
    prefillCost: isLie ? LIE : dice.chance(0.9) ? CURVE : null,
    ...{ prefillTps: null, slotWaitMs: null, kvUsageRatio: null, preemptionsPerS: null },
    pending: dice.chance(0.3) ? [{ replicas: 1, etaMs: null }] : [],
    ...{ kvLifetimeMs: isLie ? 0 : 60_000, kvRoomTokens: null, tiers: [], oldestQueuedMs: null },
    models: models.map((name) => ({ name, revision: 'unknown', maxModelLen: null })),
    queuedPrefillMs: isHot ? dice.next() * 2_000 : 0,
    ...{ queuedRequests: 0, kvRoomWaitMs: null, unacknowledgedMs: 0 },
  };
}

export function someChain(dice: Dice): PromptChain {
  const turns = 1 + Math.floor(dice.next() * 3);
  const hashLow = Math.floor(dice.next() * 6);
  const ends = Array.from({ length: turns }, (_, k): TurnEnd => {
    const offset = 4_000 * (k + 1);
    return { offset, chunks: Math.floor(offset / 512), hashLow, hashHigh: 0 };
  });
  const end = ends.at(-1) as TurnEnd;
  return {
    ...{ keySpace: 'text/1', bytes: end.offset, hashes: new Uint32Array(0) },
    ...{ turnEnds: ends.slice(0, -1), end, parts: {}, tokenIds: null },
  };
}

const CURVE = {
  ...{ baseMs: 5, frontMsPerToken: 0.001, linearMsPerToken: 0.1 },
  ...{ contextMsPerToken2: 0, stepTokens: 2_048 },
};

/** The greatest figures that a message may have. */
const LIE = {
  ...{ baseMs: 1e18, frontMsPerToken: 1e18, linearMsPerToken: 1e18 },
  ...{ contextMsPerToken2: 1e18, stepTokens: 1e18 },
};
