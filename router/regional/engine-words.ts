// What a region says of an attempt: the pool and the replica it went to, and what was predicted there.

import type { Decision } from '../../shared/model/decision.ts';
import type { HttpPools, PeerTrust } from '../../shared/runtime/http-pool.ts';
import type { LabelValues } from '../../shared/runtime/metrics.ts';
import type { AnswerHeaders } from '../gateway/reply.ts';
import type { Outgoing, RoutedFacts, TierWords } from '../gateway/tier-words.ts';
import type { UpstreamOrder } from '../gateway/upstream.ts';
import { engineOrder } from './engine-order.ts';
import type { Attempt } from './events.ts';
import type { PoolOptions } from './options.ts';
import { replicaLabel, routedHeaders } from './routed-headers.ts';

export interface EngineWordsDeps {
  readonly pools: HttpPools;
  readonly engineTrust: (pool: string) => PeerTrust | null;
  /** True where agents report the name as a LoRA adapter. */
  readonly isLora: (model: string) => boolean;
}

/** Times in ms, sizes in tokens. */
export type AttemptFields = ReturnType<typeof attemptFields>;

export const NOWHERE: LabelValues = { pool: 'none' };

export class EngineWords implements TierWords<Attempt, Decision> {
  readonly interrupted = 'The replica failed while it was answering; the answer is incomplete.';
  private readonly deps: EngineWordsDeps;
  private poolOptions: ReadonlyMap<string, PoolOptions>;
  /** Labels of each pool, the same object every time: metrics find their rows by it. */
  private places: ReadonlyMap<string, LabelValues>;

  constructor(deps: EngineWordsDeps, pools: readonly PoolOptions[]) {
    this.deps = deps;
    this.poolOptions = byId(pools);
    this.places = placesOf(pools);
  }

  configure(pools: readonly PoolOptions[]): void {
    this.poolOptions = byId(pools);
    this.places = placesOf(pools);
  }

  poolOf(id: string): PoolOptions | undefined {
    return this.poolOptions.get(id);
  }

  place(attempt: Attempt | null): LabelValues {
    if (attempt === null) return NOWHERE;
    return this.places.get(attempt.pool) ?? { pool: attempt.pool };
  }

  logFields(attempt: Attempt | null): AttemptFields {
    return attemptFields(attempt);
  }

  headers(facts: RoutedFacts<Attempt, Decision>): AnswerHeaders {
    return routedHeaders(facts);
  }

  cachedTokens(attempt: Attempt): number {
    return attempt.predictedCachedTokens;
  }

  order(outgoing: Outgoing, attempt: Attempt): UpstreamOrder {
    const { pools, engineTrust } = this.deps;
    const pool = this.poolOptions.get(attempt.pool);
    return engineOrder(outgoing, attempt, { pools, trust: engineTrust(attempt.pool), pool });
  }

  loraOf(model: string): string | null {
    const { isLora } = this.deps;
    for (const { aliases } of this.poolOptions.values()) {
      const engineModel = Object.hasOwn(aliases, model) ? aliases[model] : undefined;
      if (engineModel !== undefined && isLora(engineModel)) return engineModel;
    }
    return isLora(model) ? model : null;
  }
}

function attemptFields(attempt: Attempt | null) {
  return {
    pool: attempt?.pool ?? null,
    replica: attempt === null ? null : replicaLabel(attempt),
    rank: attempt?.target.rank ?? null,
    waitMs: attempt?.waitMs ?? null,
    prefillMs: attempt?.prefillMs ?? null,
    predictedTtftMs: attempt?.predictedTtftMs ?? null,
    predictedPromptTokens: attempt?.predictedPromptTokens ?? null,
    predictedCachedTokens: attempt?.predictedCachedTokens ?? null,
  };
}

function placesOf(pools: readonly PoolOptions[]): ReadonlyMap<string, LabelValues> {
  return new Map(pools.map(({ id }) => [id, { pool: id }]));
}

function byId(pools: readonly PoolOptions[]): ReadonlyMap<string, PoolOptions> {
  return new Map(pools.map((pool) => [pool.id, pool]));
}
