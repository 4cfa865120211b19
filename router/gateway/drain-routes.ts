// How an operator takes a router out of its balancer, and puts it back. Offered by the admin listener alone: what clients
// reach, they reach through proxies too, which are on this machine.
//
//   GET /v1/drain      how it stands
//   POST /v1/drain     not ready from now on, connections end with their answers; whoever still comes is served
//   DELETE /v1/drain   ready again; not once it has been told to end (SIGTERM)

import { FleetError } from '../../shared/errors.ts';
import { OPERATOR_REFUSALS, operatorVerdict } from '../../shared/runtime/operator.ts';
import { sendJson } from './client-routes.ts';
import type { Call, Route } from './http-listener.ts';

export interface DrainState {
  readonly draining: boolean;
  /** It drains and nothing is open. */
  readonly drained: boolean;
  /** Requests. */
  readonly open: number;
}

export interface DrainSource {
  state(): DrainState;
  /** False where it is too late for it. */
  set(on: boolean): boolean;
  /** Of the links: one of them speaks for an operator on another machine. */
  secrets(): readonly string[];
}

const PATH = '/v1/drain';

export function drainRoutes(source: DrainSource): readonly Route[] {
  const operators = { path: PATH, audience: 'operators' } as const;
  return [
    { ...operators, method: 'GET', handle: (call) => sendJson(call, source.state()) },
    { ...operators, method: 'POST', handle: (call) => set(source, call, true) },
    { ...operators, method: 'DELETE', handle: (call) => set(source, call, false) },
  ];
}

function set(source: DrainSource, call: Call, on: boolean): void {
  // Without keys on this listener whoever is known is known by a certificate.
  const certified = call.client !== null;
  const verdict = operatorVerdict(call.request, { secrets: source.secrets(), certified });
  if (verdict === 'page') throw new FleetError('invalid_request', OPERATOR_REFUSALS.page);
  if (verdict === 'unknown') throw new FleetError('invalid_api_key', OPERATOR_REFUSALS.unknown);
  if (!source.set(on)) throw new FleetError('draining', 'The router has been told to end.');
  sendJson(call, source.state());
}
