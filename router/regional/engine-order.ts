// What an attempt looks like on the wire to an engine: the client's bytes with the few members exchanged, and
// headers of our own. Nothing of the client's credentials, cookies or connection goes with it.

import type { HttpPools, PeerTrust } from '../../shared/runtime/http-pool.ts';
import type { AnswerRoom } from '../gateway/answer-room.ts';
import { engineBody } from '../gateway/openai-request.ts';
import type { UpstreamOrder } from '../gateway/upstream.ts';
import type { Attempt } from './events.ts';
import type { Exchange } from '../gateway/exchange.ts';
import type { PoolOptions } from './options.ts';

export function engineOrder(
  exchange: Exchange,
  attempt: Attempt,
  deps: {
    readonly pools: HttpPools;
    readonly trust: PeerTrust | null;
    readonly room: AnswerRoom;
    readonly pool: PoolOptions | undefined;
  },
): UpstreamOrder {
  const { request } = exchange;
  if (request === null) throw new Error('an attempt after the answer had begun');
  const { pool } = deps;
  const connections = deps.pools.get(attempt.url, deps.trust);
  return {
    pool: connections,
    renew: () => deps.pools.renew(connections),
    path: exchange.facts.path,
    headers: engineHeaders(exchange, attempt, pool?.engineApiKey ?? null),
    body: engineBody(request, {
      engineModel: attempt.engineModel,
      cacheSalt: pool?.cacheSalt ?? null,
      enginePriority: pool?.enginePriority ?? false,
    }),
    room: deps.room,
    stream: request.stream,
    anyJson: request.work !== 'generation',
    dropUsage: !request.usageAsked,
    connectTimeoutMs: attempt.connectTimeoutMs,
    firstTokenTimeoutMs: attempt.firstTokenTimeoutMs,
    stallTimeoutMs: attempt.stallTimeoutMs,
  };
}

function engineHeaders(
  exchange: Exchange,
  attempt: Attempt,
  apiKey: string | null,
): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'x-request-id': attempt.lease,
    ...exchange.facts.passedHeaders,
  };
  if (apiKey !== null) headers['authorization'] = `Bearer ${apiKey}`;
  if (attempt.rankHeader !== null) headers['x-data-parallel-rank'] = String(attempt.rankHeader);
  return headers;
}
