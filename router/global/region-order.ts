// What an attempt looks like on the wire to a region: the client's bytes as they came but for the usage that a stream is asked to
// end with, and in place of its credentials what we say of the request, signed for this one attempt. Nothing else of the
// client's goes with it but its trace and its count of tries.

import type { RouterId } from '../../shared/model/ids.ts';
import { tierBody } from '../gateway/openai-request.ts';
import { signContext, type TierContext, type TierKey } from '../gateway/tier-context.ts';
import { CONTEXT_HEADER } from '../gateway/tier-door.ts';
import type { Outgoing } from '../gateway/tier-words.ts';
import type { UpstreamOrder } from '../gateway/upstream.ts';
import type { RegionConnections } from './connections.ts';
import type { GlobalAttempt } from './events.ts';

/** Headers of a region's answer that go on to the client: who served it there. */
const PASSED: readonly string[] = [
  'x-spillway-pool',
  'x-spillway-replica',
  'x-spillway-prompt-tokens',
  'x-spillway-cached-tokens',
];

export interface RegionOrderDeps {
  readonly routerId: RouterId;
  readonly connections: RegionConnections;
  readonly keyOf: (region: string) => TierKey | null;
  readonly wallMs: () => number;
}

/** Throws where the region is configured no more: the attempt is then broken off. */
export function regionOrder(
  { facts, request, room }: Outgoing,
  attempt: GlobalAttempt,
  deps: RegionOrderDeps,
): UpstreamOrder {
  const { connections } = deps;
  const { region, lease } = attempt;
  const pool = connections.take(region, lease);
  const key = deps.keyOf(region);
  if (pool === null || key === null) throw new Error(`no region ${region}`);
  const { path } = facts;
  const body = tierBody(request);
  const bound = { method: 'POST', path, body };
  const token = signContext(
    contextOf(attempt, deps.routerId),
    { region, key, bound },
    deps.wallMs(),
  );
  return {
    pool,
    renew: () => connections.renew(pool),
    path,
    headers: {
      'content-type': 'application/json',
      'x-request-id': lease,
      [CONTEXT_HEADER]: token,
      ...(facts.retries === null ? {} : { 'x-stainless-retry-count': String(facts.retries) }),
      ...facts.passedHeaders,
    },
    body,
    room,
    stream: request.stream,
    anyJson: request.work !== 'generation',
    dropUsage: !request.usageAsked,
    judged: true,
    toRouter: true,
    passed: PASSED,
    connectTimeoutMs: attempt.connectTimeoutMs,
    firstTokenTimeoutMs: attempt.firstTokenTimeoutMs,
    stallTimeoutMs: attempt.stallTimeoutMs,
  };
}

function contextOf(attempt: GlobalAttempt, from: RouterId): TierContext {
  const { lease, seq, tenant, saltGroup, residency, zones } = attempt;
  const { conversation, byId, revisions, away, awayForMs, deadlineInMs } = attempt;
  return {
    attempt: lease,
    ...{ from, seq, tenant, saltGroup, residency, zones },
    ...{ conversation, byId, revisions, away, awayForMs, deadlineInMs },
  };
}
