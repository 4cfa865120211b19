// What is to be said of the other side's certificate: which it is, and why it is not accepted. One line with the peer,
// the certificate's subject and its date.
//
// Node verifies when the handshake is over and gives the reason as a code alone; the certificate is taken at that
// moment, before the connection is destroyed.

import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { errorCode } from '../lib/error-code.ts';
import { systemClock } from './clock.ts';
import { dateText, datesProblem, subjectOf } from './tls-files.ts';

/** What a client's connection presents to a listener that asks for certificates. */
export type PeerCertificate =
  | { readonly kind: 'none' }
  | { readonly kind: 'valid'; readonly subject: string; readonly certificate: X509Certificate }
  | { readonly kind: 'invalid'; readonly problem: string };

/** Why a TLS connection to a server was not used. */
export interface TlsFailure {
  readonly reason: 'certificate_untrusted' | 'certificate_name' | 'certificate_expired' | 'no_tls';
  readonly line: string;
}

export interface TlsTarget {
  /** As the operator wrote it: `wss://router:8081`. */
  readonly peer: string;
  /** The name that its certificate must be for. */
  readonly name: string;
  /** The file of CAs; null: the system's. */
  readonly ca: string | null;
}

const EXPIRED = new Set(['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID']);
/** What the handshake says of bytes that are no TLS; it comes as a plain EPROTO. */
const NOT_TLS = /wrong version number|packet length too long|record layer failure/;
const NAME = 'ERR_TLS_CERT_ALTNAME_INVALID';
const UNTRUSTED = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'CERT_SIGNATURE_FAILURE',
  'CERT_UNTRUSTED',
  'CERT_REJECTED',
  'CERT_CHAIN_TOO_LONG',
  'INVALID_CA',
  'INVALID_PURPOSE',
  'PATH_LENGTH_EXCEEDED',
]);

/** Remembers the certificate that `socket` is shown, for `failureOf`. */
export function watchPeer(socket: Socket): { certificate(): X509Certificate | null } {
  let seen: X509Certificate | null = null;
  if (socket instanceof TLSSocket) {
    // Before Node's own listener, which destroys the connection where it refuses.
    socket.prependOnceListener('secure', () => (seen = socket.getPeerX509Certificate() ?? null));
  }
  return { certificate: () => seen };
}

/** Null where `error` is none of TLS: a refused connection, a time-out. */
export function tlsFailure(
  error: unknown,
  certificate: X509Certificate | null,
  { peer, name, ca }: TlsTarget,
): TlsFailure | null {
  const code = errorCode(error);
  if (code === null) return null;
  const shown = certificate === null ? 'its certificate' : described(certificate);
  if (EXPIRED.has(code)) {
    const dates = certificate === null ? null : datesProblem(certificate, systemClock.wallMs());
    const line = dates ?? `${shown}, or one above it, is not valid at this date`;
    return { reason: 'certificate_expired', line: `${peer}: ${line}` };
  }
  if (code === NAME) {
    const names = certificate?.subjectAltName ?? 'no name';
    const line = `${peer}: ${shown} is for ${names}, not for ${name} (serverName names another)`;
    return { reason: 'certificate_name', line };
  }
  if (UNTRUSTED.has(code)) {
    const trusted = ca === null ? 'a CA that the system trusts' : `a CA of ${ca}`;
    return {
      reason: 'certificate_untrusted',
      line: `${peer}: ${shown} does not come from ${trusted}`,
    };
  }
  if (NOT_TLS.test(error instanceof Error ? error.message : '')) {
    return { reason: 'no_tls', line: `${peer}: does not speak TLS` };
  }
  return null;
}

/** For a listener that asks for certificates. */
export function peerCertificate(socket: Socket, wallMs: number): PeerCertificate {
  if (!(socket instanceof TLSSocket)) return { kind: 'none' };
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return { kind: 'none' };
  if (socket.authorized) return { kind: 'valid', subject: subjectOf(certificate), certificate };
  const dates = datesProblem(certificate, wallMs);
  const code = String(socket.authorizationError);
  const problem = dates ?? `${described(certificate)} does not come from a CA of ours (${code})`;
  return { kind: 'invalid', problem };
}

/** Whether a certificate is for one of `names`: its alternative names, or its common name where it has none. */
export function bearsName(certificate: X509Certificate, names: readonly string[]): boolean {
  return names.some((name) => {
    if (!name.startsWith('*.')) return certificate.checkHost(name) !== undefined;
    return alternativeNames(certificate).some((own) => own.endsWith(name.slice(1)));
  });
}

function alternativeNames(certificate: X509Certificate): string[] {
  const entries = certificate.subjectAltName?.split(', ') ?? [];
  return entries.flatMap((entry) => (entry.startsWith('DNS:') ? [entry.slice(4)] : []));
}

function described(certificate: X509Certificate): string {
  return `its certificate ${subjectOf(certificate)} (until ${dateText(certificate.validToDate)})`;
}
