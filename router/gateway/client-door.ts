// Who may use a listener, before any of its routes does anything.
//
//   keys         where there are any, a request needs one
//   certificate  `optional`: a valid one stands in for a key; `required`: without a valid one nothing is served, and a key
//                is needed beside it where there are keys
//   open routes  liveness and readiness, which tell nothing and are asked by machines that have no key
//
// What is refused says what to present, and nothing of what would have been right.

import { FleetError } from '../../shared/errors.ts';
import { peerCertificate } from '../../shared/runtime/tls-peer.ts';
import type { ClientAuth } from '../../shared/runtime/tls-server.ts';
import type { ClientKeys } from './client-keys.ts';
import type { Call } from './http-listener.ts';

export const REFUSED_CREDENTIALS = ['missing', 'unknown', 'certificate'] as const;
export type RefusedCredential = (typeof REFUSED_CREDENTIALS)[number];

export interface DoorOptions {
  readonly clientAuth: ClientAuth;
  /** Null: this listener goes by certificates alone. */
  readonly keys: ClientKeys | null;
  readonly wallMs: () => number;
  readonly onRefused: (credential: RefusedCredential) => void;
}

/** Who asks, for the log: the name of its key, or the subject of its certificate. Throws `FleetError`. */
export type Door = (call: Call) => string | null;

export function openDoor(options: DoorOptions): Door {
  return (call) => {
    const subject = bearer(options, call);
    const { keys, clientAuth } = options;
    if (keys?.any !== true || (subject !== null && clientAuth === 'optional')) return subject;
    const verdict = keys.check(call.request.headers, call.request.socket);
    if (verdict.kind === 'known') return verdict.name;
    options.onRefused(verdict.kind);
    call.response.setHeader('www-authenticate', 'Bearer');
    const message =
      verdict.kind === 'missing'
        ? 'An API key is needed: Authorization: Bearer … (or x-api-key).'
        : 'The API key is not valid.';
    throw new FleetError('invalid_api_key', message);
  };
}

/** The subject of a valid certificate; null where none was shown and none is required. */
function bearer({ clientAuth, wallMs, onRefused }: DoorOptions, call: Call): string | null {
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
