// `POST /v1/route/explain`: what is asked, and how the answer reads.

import type { IncomingHttpHeaders } from 'node:http';
import type { RequestId } from '../../shared/model/ids.ts';
import type { BodyBudget } from './body-budget.ts';
import { readJsonBody, type BodyBounds } from './read-body.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import type { Call } from './http-listener.ts';

/** A request that somebody asks about. */
export interface Explainable {
  readonly id: RequestId;
  readonly headers: IncomingHttpHeaders;
  /** Which route it would go to; null: its members tell. */
  readonly route: string | null;
  /** Whose it would be, by name; null: nobody's in particular. */
  readonly tenant: string | null;
  readonly body: Buffer;
}

/** Reads what a call asks about; nothing stays held. `?route=` names the route, `?tenant=` the tenant. Rejects with `FleetError`. */
export async function explainable(
  call: Call,
  budget: BodyBudget,
  bounds: BodyBounds,
): Promise<Explainable> {
  const hold = budget.open();
  try {
    const body = await readJsonBody(call, { hold, bounds });
    const { id, query, request } = call;
    const { headers } = request;
    return { id, headers, route: query.get('route'), tenant: query.get('tenant'), body };
  } finally {
    hold.release();
  }
}

/** The decision, and the request as it was understood. */
export function explanation(request: RouteRequest, decision: object): object {
  const { prompts, ...asked } = request;
  const prompt = prompts.map(({ keySpace, bytes, hashes, turnEnds, parts, tokenIds }) => ({
    keySpace,
    bytes,
    chunks: hashes.length / 2,
    turnEnds: turnEnds.length,
    parts,
    tokenIds,
  }));
  return { request: { ...asked, prompts: prompt }, decision };
}
