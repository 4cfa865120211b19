// What an attempt looks like on the wire to an engine: the client's bytes with the few members exchanged, and
// headers of our own. Nothing of the client's credentials, cookies or connection goes with it.

import type { HttpPools, PeerTrust } from '../../shared/runtime/http-pool.ts';
import { engineBody } from '../gateway/openai-request.ts';
import { ANYBODY, type Tenant } from '../gateway/tenants.ts';
import type { Outgoing } from '../gateway/tier-words.ts';
import type { UpstreamOrder } from '../gateway/upstream.ts';
import type { Attempt } from './events.ts';
import type { PoolOptions } from './options.ts';

export function engineOrder(
  { facts, request, room }: Outgoing,
  attempt: Attempt,
  deps: {
    readonly pools: HttpPools;
    readonly trust: PeerTrust | null;
    readonly pool: PoolOptions | undefined;
  },
): UpstreamOrder {
  const { pool } = deps;
  const connections = deps.pools.get(attempt.url, deps.trust);
  return {
    pool: connections,
    renew: () => deps.pools.renew(connections),
    path: facts.path,
    headers: engineHeaders(facts.passedHeaders, attempt, pool?.engineApiKey ?? null),
    body: engineBody(request, {
      engineModel: attempt.engineModel,
      cacheSalt: cacheSaltOf(pool?.cacheSalt ?? null, facts.tenant),
      enginePriority: pool?.enginePriority ?? false,
    }),
    room,
    stream: request.stream,
    anyJson: request.work !== 'generation',
    dropUsage: !request.usageAsked,
    connectTimeoutMs: attempt.connectTimeoutMs,
    firstTokenTimeoutMs: attempt.firstTokenTimeoutMs,
    stallTimeoutMs: attempt.stallTimeoutMs,
  };
}

/**
 * Keeps what the engine caches apart as the index of prefixes does: time to the first token would tell one tenant what
 * another has asked.
 */
function cacheSaltOf(ofPool: string | null, { saltGroup }: Tenant): string | null {
  if (saltGroup === ANYBODY.saltGroup) return ofPool;
  return ofPool === null ? saltGroup : `${ofPool}:${saltGroup}`;
}

function engineHeaders(
  passed: Readonly<Record<string, string>>,
  attempt: Attempt,
  apiKey: string | null,
): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'x-request-id': attempt.lease,
    ...passed,
  };
  if (apiKey !== null) headers['authorization'] = `Bearer ${apiKey}`;
  if (attempt.rankHeader !== null) headers['x-data-parallel-rank'] = String(attempt.rankHeader);
  return headers;
}
