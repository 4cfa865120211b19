// Who may open a link. A secret stands for one pool, several, or any; two are valid while one replaces the other.
//
// Without any secret links come from this machine only. Comparing takes the same time whatever is presented.

import { createHash, timingSafeEqual } from 'node:crypto';
import { isLoopback } from '../config/address.ts';

export interface LinkCredential {
  readonly secret: string;
  /** Pools that it may speak for; null = any. */
  readonly pools: readonly string[] | null;
}

/** What a presented header may speak for: pools, `any`, or nothing at all. */
export type LinkGrant =
  | { readonly kind: 'refused' }
  | { readonly kind: 'any' }
  | { readonly kind: 'pools'; readonly pools: ReadonlySet<string> };

export function grantFor(
  credentials: readonly LinkCredential[],
  authorization: string | undefined,
  remoteAddress: string,
): LinkGrant {
  if (credentials.length === 0) {
    return { kind: isLoopback(remoteAddress.replace(/^::ffff:/, '')) ? 'any' : 'refused' };
  }
  const presented = digest(bearerOf(authorization) ?? '');
  const pools = new Set<string>();
  let any = false;
  let matched = false;
  for (const credential of credentials) {
    if (!timingSafeEqual(digest(credential.secret), presented)) continue;
    matched = true;
    if (credential.pools === null) any = true;
    else for (const pool of credential.pools) pools.add(pool);
  }
  if (!matched) return { kind: 'refused' };
  return any ? { kind: 'any' } : { kind: 'pools', pools };
}

export function grantsPool(grant: LinkGrant, pool: string): boolean {
  if (grant.kind === 'refused') return false;
  return grant.kind === 'any' || grant.pools.has(pool);
}

function bearerOf(authorization: string | undefined): string | null {
  const match = /^bearer +(\S+)$/i.exec(authorization ?? '');
  return match?.[1] ?? null;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text, 'utf8').digest();
}
