// Which data-parallel engine takes a request: the one that a header names, else the one with the least to do.
//
// vLLM's own balancer ignores prefixes (vllm/v1/engine/core_client.py):
//
//   score = max(in flight, waiting + running) + waiting · 6 · max(0, kv_usage − 0.5)

import type { EngineDriver } from '../driver.ts';
import { valueFault } from './validation.ts';
import type { Reply } from '../reply.ts';

const FULL_WEIGHT = 6;
const FULL_FROM = 0.5;

/** The rank that the header names; null where it names none, a refusal where there is no such rank. */
export function namedRank(header: string | undefined, ranks: number): number | Reply | null {
  if (header === undefined || !/^\s*[+-]?\d+\s*$/.test(header)) return null;
  const rank = Number(header);
  if (rank >= 0 && rank < ranks) return rank;
  return valueFault(`data_parallel_rank ${rank} is out of range [0, ${ranks}).`);
}

/** Equal ones take turns: `turn` grows with every request. */
export function leastLoaded(engines: readonly EngineDriver[], turn: number): number {
  let best = 0;
  let bestScore = Infinity;
  for (let step = 0; step < engines.length; step += 1) {
    const rank = (turn + step) % engines.length;
    const score = scoreOf(engines[rank]);
    if (score >= bestScore) continue;
    best = rank;
    bestScore = score;
  }
  return best;
}

function scoreOf(engine: EngineDriver | undefined): number {
  if (engine === undefined) return Infinity;
  const { running, waiting, kvUsageRatio } = engine.model.stats;
  const inFlight = Math.max(engine.model.openRequests, waiting + running);
  return inFlight + waiting * FULL_WEIGHT * Math.max(0, kvUsageRatio - FULL_FROM);
}
