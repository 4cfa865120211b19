// Who may open a link. A secret or a certificate stands for one pool, several, or any; two secrets are valid while one
// replaces the other.
//
//   secret        as presented in the upgrade's header; comparing takes the same time whatever is presented
//   certificate   a valid one stands in for a secret, for pools whose rule names it or that take any
//   required      where the listener demands certificates, nobody links without a valid one
//
// Without any secret and without certificates links come from this machine only.

import { createHash, timingSafeEqual, type X509Certificate } from 'node:crypto';
import { isLoopback } from '../config/address.ts';
import { bearsName, type PeerCertificate } from './tls-peer.ts';
import type { ClientAuth } from './tls-server.ts';

export interface LinkCredential {
  readonly secret: string;
  /** Pools that it may speak for; null = any. */
  readonly pools: readonly string[] | null;
}

/** What a valid certificate alone may speak for. */
export interface CertificateRule {
  /** Names of which the certificate must bear one; null = any. */
  readonly names: readonly string[] | null;
  readonly pools: readonly string[] | null;
}

/** What a listener goes by. */
export interface LinkRules {
  readonly credentials: readonly LinkCredential[];
  readonly certificates: readonly CertificateRule[];
  readonly clientAuth: ClientAuth;
}

/** What whoever dials presents. */
export interface Presented {
  readonly authorization: string | undefined;
  readonly remoteAddress: string;
  readonly certificate: PeerCertificate;
}

/** What it may speak for: pools, `any`, or nothing at all. */
export type LinkGrant =
  | { readonly kind: 'refused' }
  | { readonly kind: 'any' }
  | { readonly kind: 'pools'; readonly pools: ReadonlySet<string> };

export function grantFor(rules: LinkRules, presented: Presented): LinkGrant {
  const { credentials, certificates, clientAuth } = rules;
  const { certificate, remoteAddress } = presented;
  const certified = clientAuth !== 'none' && certificate.kind === 'valid';
  if (clientAuth === 'required' && !certified) return { kind: 'refused' };
  const named = certified ? ofCertificate(certificates, certificate.certificate) : [];
  if (named.length === 0 && credentials.length === 0) {
    const near = isLoopback(remoteAddress.replace(/^::ffff:/, ''));
    return { kind: near && clientAuth !== 'required' ? 'any' : 'refused' };
  }
  return together([...named, ...ofSecret(credentials, presented.authorization)]);
}

export function grantsPool(grant: LinkGrant, pool: string): boolean {
  if (grant.kind === 'refused') return false;
  return grant.kind === 'any' || grant.pools.has(pool);
}

type Pools = readonly string[] | null;

function ofSecret(credentials: readonly LinkCredential[], authorization?: string): Pools[] {
  const presented = digest(bearerOf(authorization) ?? '');
  return credentials
    .filter(({ secret }) => timingSafeEqual(digest(secret), presented))
    .map(({ pools }) => pools);
}

function ofCertificate(rules: readonly CertificateRule[], certificate: X509Certificate): Pools[] {
  return rules
    .filter(({ names }) => names === null || bearsName(certificate, names))
    .map(({ pools }) => pools);
}

function together(granted: readonly Pools[]): LinkGrant {
  if (granted.length === 0) return { kind: 'refused' };
  const pools = new Set<string>();
  for (const each of granted) {
    if (each === null) return { kind: 'any' };
    for (const pool of each) pools.add(pool);
  }
  return { kind: 'pools', pools };
}

function bearerOf(authorization: string | undefined): string | null {
  const match = /^bearer +(\S+)$/i.exec(authorization ?? '');
  return match?.[1] ?? null;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text, 'utf8').digest();
}
