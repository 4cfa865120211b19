// Who may use a listener, and whose request it is, before any of its routes does anything.
//
//   keys         where there are any, a request needs one
//   certificate  `optional`: a valid one stands in for a key, unless there are tenants, whom only keys tell; `required`:
//                without a valid one nothing is served, and a key is needed beside it where there are keys
//   tenant       who is not served here at all is told so on headers alone, and where to go where that is known; clients'
//                routes alone: what operators ask is of no tenant
//   operators    on a listener of their own, by its address and certificates; on the one for clients, where there are tenants,
//                only with a key of a tenant that is an operator: what is asked there shows everybody's
//   open routes  liveness and readiness, which tell nothing and are asked by machines that have no key
//
// What is refused says what to present, and nothing of what would have been right.

import { FleetError } from '../../shared/errors.ts';
import { peerCertificate } from '../../shared/runtime/tls-peer.ts';
import type { ClientAuth } from '../../shared/runtime/tls-server.ts';
import type { Call, Route } from './http-listener.ts';
import { NOBODY, type Caller, type Tenant, type Tenants } from './tenants.ts';

export const REFUSED_CREDENTIALS = ['missing', 'unknown', 'certificate'] as const;
export type RefusedCredential = (typeof REFUSED_CREDENTIALS)[number];

export interface CertificateRules {
  readonly clientAuth: ClientAuth;
  readonly wallMs: () => number;
  readonly onRefused: (credential: RefusedCredential) => void;
}

export interface DoorOptions extends CertificateRules {
  /** Null: this listener goes by certificates alone. */
  readonly tenants: Tenants | null;
}

/** Who asks. Throws `FleetError`. */
export type Door = (call: Call, route: Route) => Caller;

export function openDoor(options: DoorOptions): Door {
  return (call, route) => {
    const caller = callerOf(options, call);
    if (route.audience === 'clients') refuseElsewhere(caller.tenant, call);
    else if (route.open !== true) refuseStrangers(options, caller.tenant);
    return caller;
  };
}

function callerOf(options: DoorOptions, call: Call): Caller {
  const subject = certified(options, call);
  const { tenants, clientAuth } = options;
  const standsIn = subject !== null && clientAuth === 'optional' && tenants?.any !== true;
  if (tenants?.keyed !== true || standsIn) {
    return subject === null ? NOBODY : { ...NOBODY, client: subject };
  }
  const verdict = tenants.check(call.request.headers, call.request.socket);
  if (verdict.kind === 'known') return verdict.owner;
  options.onRefused(verdict.kind);
  call.response.setHeader('www-authenticate', 'Bearer');
  const message =
    verdict.kind === 'missing'
      ? 'An API key is needed: Authorization: Bearer … (or x-api-key).'
      : 'The API key is not valid.';
  throw new FleetError('invalid_api_key', message);
}

/** Before its body is read. */
function refuseElsewhere({ refusal }: Tenant, call: Call): void {
  if (refusal === null) return;
  if (refusal.ingress !== null) call.response.setHeader('x-spillway-ingress', refusal.ingress);
  throw new FleetError(refusal.code, refusal.message);
}

function refuseStrangers({ tenants }: DoorOptions, { operator }: Tenant): void {
  if (tenants?.any !== true || operator) return;
  const message =
    'Operators alone ask this: at the admin listener, or with a key of a tenant with `operator: true`.';
  throw new FleetError('operators_only', message);
}

/** The subject of a valid certificate; null where none was shown and none is required. Throws `FleetError`. */
export function certified(
  { clientAuth, wallMs, onRefused }: CertificateRules,
  call: Call,
): string | null {
  if (clientAuth === 'none') return null;
  const shown = peerCertificate(call.request.socket, wallMs());
  if (shown.kind === 'valid') return shown.subject;
  if (clientAuth === 'optional') return null;
  onRefused('certificate');
  const message =
    shown.kind === 'none'
      ? 'A client certificate is needed.'
      : `The client certificate is not valid: ${shown.problem}.`;
  throw new FleetError('certificate_required', message);
}
