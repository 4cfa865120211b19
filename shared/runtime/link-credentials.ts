// Who may open a link. A secret or a certificate speaks for one pool (of agents) or region, several, or any; two secrets
// are valid while one replaces the other.
//
//   secret        as presented in the upgrade's header; comparing takes the same time whatever is presented
//   certificate   a valid one stands in for a secret, for those whose rule names it or that take any
//   required      where the listener demands certificates, nobody links without a valid one
//
// Without any secret and without certificates agents' links come from this machine only, and regions' from nowhere.

import { createHash, timingSafeEqual, type X509Certificate } from 'node:crypto';
import { isLoopback } from '../config/address.ts';
import { bearsName, type PeerCertificate } from './tls-peer.ts';
import type { ClientAuth } from './tls-server.ts';

export interface LinkCredential {
  readonly secret: string;
  /** Null = any. */
  readonly speaksFor: readonly string[] | null;
  /** Beside a valid certificate that bears one of these names alone. Absent or empty: whatever is shown. */
  readonly names?: readonly string[];
}

/** What a valid certificate alone may speak for. */
export interface CertificateRule {
  /** Names of which the certificate must bear one; null = any. */
  readonly names: readonly string[] | null;
  readonly speaksFor: readonly string[] | null;
}

/** What a listener goes by. */
export interface LinkRules {
  readonly credentials: readonly LinkCredential[];
  readonly certificates: readonly CertificateRule[];
  readonly clientAuth: ClientAuth;
  /** Without any credential there is, whoever dials from this machine speaks for all. Absent: so it is. */
  readonly openNearby?: boolean;
}

/** What whoever dials presents. */
export interface Presented {
  readonly authorization: string | undefined;
  readonly remoteAddress: string;
  readonly certificate: PeerCertificate;
}

/** What it may speak for: some, `any`, or nothing at all. */
export type LinkGrant =
  | { readonly kind: 'refused' }
  | { readonly kind: 'any' }
  | { readonly kind: 'some'; readonly speaksFor: ReadonlySet<string> };

export function grantFor(rules: LinkRules, presented: Presented): LinkGrant {
  const { credentials, certificates, clientAuth } = rules;
  const { certificate, remoteAddress } = presented;
  const certified = clientAuth !== 'none' && certificate.kind === 'valid';
  if (clientAuth === 'required' && !certified) return { kind: 'refused' };
  const named = certified ? ofCertificate(certificates, certificate.certificate) : [];
  if (named.length === 0 && credentials.length === 0) {
    const near = isLoopback(remoteAddress.replace(/^::ffff:/, ''));
    const open = rules.openNearby !== false && near && clientAuth !== 'required';
    return { kind: open ? 'any' : 'refused' };
  }
  const shown = certified ? certificate.certificate : null;
  const fitting = credentials.filter(({ names = [] }) => names.length === 0 || bears(shown, names));
  return together([...named, ...ofSecret(fitting, presented.authorization)]);
}

export function grants(grant: LinkGrant, name: string): boolean {
  if (grant.kind === 'refused') return false;
  return grant.kind === 'any' || grant.speaksFor.has(name);
}

type Names = readonly string[] | null;

function ofSecret(credentials: readonly LinkCredential[], authorization?: string): Names[] {
  const presented = digest(bearerOf(authorization) ?? '');
  return credentials
    .filter(({ secret }) => timingSafeEqual(digest(secret), presented))
    .map(({ speaksFor }) => speaksFor);
}

function bears(certificate: X509Certificate | null, names: readonly string[]): boolean {
  return certificate !== null && bearsName(certificate, names);
}

function ofCertificate(rules: readonly CertificateRule[], certificate: X509Certificate): Names[] {
  return rules
    .filter(({ names }) => names === null || bearsName(certificate, names))
    .map(({ speaksFor }) => speaksFor);
}

function together(granted: readonly Names[]): LinkGrant {
  if (granted.length === 0) return { kind: 'refused' };
  const speaksFor = new Set<string>();
  for (const each of granted) {
    if (each === null) return { kind: 'any' };
    for (const name of each) speaksFor.add(name);
  }
  return { kind: 'some', speaksFor };
}

function bearerOf(authorization: string | undefined): string | null {
  const match = /^bearer +(\S+)$/i.exec(authorization ?? '');
  return match?.[1] ?? null;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text, 'utf8').digest();
}
