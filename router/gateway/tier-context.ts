// What the global tier says of a request to a region, in place of the client's own credentials: signed, for one attempt.
//
//   form       a JWS in its compact form, HS256 and no other; `kid` names the key of the pair of tiers
//   good for   one region, one method and path, one body, one attempt, LIFE_MS from when it was made
//   clocks     wall clocks of two machines may be CLOCK_MS apart; further is refused, and which way is said
//   replay     an attempt that was seen is refused until it has expired
//
// The body is checked when it has come; all else before a byte of it is read.

import { hash, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { HmacSha256 } from '../../shared/lib/hmac-sha256.ts';
import type { RegionId, RouterId } from '../../shared/model/ids.ts';
import { MAX_CONTEXT_LENGTH } from '../../shared/model/signed-context.ts';
import { SeenAttempts } from './seen-attempts.ts';
import { tierClaims, type TierClaims } from './tier-claims.ts';

export const LIFE_MS = 30_000;
export const CLOCK_MS = 5_000;

export interface TierContext {
  /** The attempt's id: what the region logs and answers as. */
  readonly attempt: string;
  /** The global router that sends it. */
  readonly from: RouterId;
  /** Counted by that router and region: what the region's reports say has arrived. */
  readonly seq: number;
  readonly tenant: string;
  /** Tenants of one group may share prefixes. */
  readonly saltGroup: string;
  /** Region names; null: anywhere. */
  readonly residency: {
    readonly allow: readonly string[];
    readonly fallback: readonly string[];
  } | null;
  /** The conversation after this turn, without content; null: not to be remembered. */
  readonly conversation: string | null;
  /** The same by its client's id, one for all of its turns. Absent or null: it has none. */
  readonly byId?: string | null;
  /** Revisions of the model that will do. Absent or null: every one. */
  readonly revisions?: readonly string[] | null;
  /** It is served away from home. */
  readonly away: boolean;
  /** For so long already, ms; 0 where it is not, or comes here now. */
  readonly awayForMs: number;
  /** Zones in which global routers may be told of the conversation; null: everywhere. */
  readonly zones: readonly string[] | null;
  /** What is left for the first token, ms; null: the client set none. */
  readonly deadlineInMs: number | null;
}

/** What the context is bound to. */
export interface BoundTo {
  readonly method: string;
  readonly path: string;
  readonly body: Uint8Array;
}

export interface TierKey {
  readonly id: string;
  readonly secret: string;
}

export const CONTEXT_REFUSALS = [
  'malformed',
  'unknown_key',
  'signature',
  'audience',
  'expired',
  'clock_ahead', // made in our future: the other clock is ahead, or ours behind
  'replayed',
  'too_many', // more than are remembered
  'other_request', // made for another method or path
  'other_body',
] as const;
export type ContextRefusal = (typeof CONTEXT_REFUSALS)[number];

export type ContextVerdict =
  | { readonly kind: 'good'; readonly context: TierContext; readonly bodySha256: string }
  | { readonly kind: 'refused'; readonly why: ContextRefusal };

const HEADER = z.object({ alg: z.literal('HS256'), typ: z.literal('JWT'), kid: z.string() });

/** A key as it is used for every request: made ready once. */
interface ReadyKey {
  /** The token's first part. */
  readonly head: string;
  readonly secret: HmacSha256;
}

const READY = new WeakMap<TierKey, ReadyKey>();

/** The header's value. `wallMs`: ms since 1970 by this machine's clock. */
export function signContext(
  context: TierContext,
  to: { readonly region: RegionId; readonly key: TierKey; readonly bound: BoundTo },
  wallMs: number,
): string {
  const { bound, region } = to;
  const claims: TierClaims = {
    aud: region,
    iat: wallMs / 1_000,
    exp: (wallMs + LIFE_MS) / 1_000,
    jti: context.attempt,
    method: bound.method,
    path: bound.path,
    body: bodyDigest(bound.body),
    from: context.from,
    seq: context.seq,
    tenant: context.tenant,
    salt: context.saltGroup,
    residency: context.residency,
    conversation: context.conversation,
    byId: context.byId ?? undefined,
    revisions: context.revisions ?? undefined,
    away: context.away,
    awayForMs: context.awayForMs,
    zones: context.zones,
    deadlineInMs: context.deadlineInMs,
  };
  const { head, secret } = readyOf(to.key);
  const signed = `${head}.${encoded(claims)}`;
  return `${signed}.${secret.of(signed)}`;
}

/** The receiving side of one region. */
export class ContextDoor {
  readonly #region: RegionId;
  #keys: Keys;
  readonly #seen = new SeenAttempts();

  constructor(region: RegionId, keys: readonly TierKey[]) {
    this.#region = region;
    this.#keys = keysOf(keys);
  }

  /** What was seen stays seen. */
  configure(keys: readonly TierKey[]): void {
    this.#keys = keysOf(keys);
  }

  /** Everything but the body, which `isBody` checks. */
  open(
    token: string,
    asked: { readonly method: string; readonly path: string },
    wallMs: number,
  ): ContextVerdict {
    const claims = this.#verified(token);
    if (typeof claims === 'string') return { kind: 'refused', why: claims };
    const why = this.#unfit(claims, asked, wallMs);
    if (why !== null) return { kind: 'refused', why };
    const context: TierContext = {
      attempt: claims.jti,
      from: claims.from as RouterId,
      seq: claims.seq,
      tenant: claims.tenant,
      saltGroup: claims.salt,
      residency: claims.residency,
      conversation: claims.conversation,
      byId: claims.byId ?? null,
      revisions: claims.revisions ?? null,
      away: claims.away,
      awayForMs: claims.awayForMs,
      zones: claims.zones,
      deadlineInMs: claims.deadlineInMs,
    };
    return { kind: 'good', context, bodySha256: claims.body };
  }

  #verified(token: string): TierClaims | ContextRefusal {
    if (token.length > MAX_CONTEXT_LENGTH) return 'malformed';
    const first = token.indexOf('.');
    const second = token.indexOf('.', first + 1);
    if (second < 0 || token.includes('.', second + 1)) return 'malformed';
    const secret = this.#keyFor(token.slice(0, first));
    if (typeof secret === 'string') return secret;
    const wanted = Buffer.from(secret.of(token.slice(0, second)));
    const given = Buffer.from(token.slice(second + 1));
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return 'signature';
    return tierClaims(decoded(token.slice(first + 1, second))) ?? 'malformed';
  }

  /** A head of our own making is known by its text; another may say the same in other words. */
  #keyFor(head: string): HmacSha256 | ContextRefusal {
    const known = this.#keys.byHead.get(head);
    if (known !== undefined) return known;
    const header = HEADER.safeParse(decoded(head));
    if (!header.success) return 'malformed';
    return this.#keys.byId.get(header.data.kid) ?? 'unknown_key';
  }

  #unfit(
    claims: TierClaims,
    asked: { readonly method: string; readonly path: string },
    wallMs: number,
  ): ContextRefusal | null {
    if (claims.aud !== this.#region) return 'audience';
    const { iat, exp } = claims;
    if (exp * 1_000 + CLOCK_MS <= wallMs || exp - iat > LIFE_MS / 1_000 + 1e-6) return 'expired';
    if (iat * 1_000 - CLOCK_MS > wallMs) return 'clock_ahead';
    if (claims.method !== asked.method || claims.path !== asked.path) return 'other_request';
    return this.#seen.use(claims.jti, wallMs);
  }
}

/** Whether this is the body that the context was made for. */
export function isBody(body: Uint8Array, bodySha256: string): boolean {
  // No secret is compared: whoever sends the body can hash it.
  return bodyDigest(body) === bodySha256;
}

function bodyDigest(body: Uint8Array): string {
  return hash('sha256', body, 'base64url');
}

function encoded(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

/** Null where it is no JSON. */
function decoded(part: string): unknown {
  try {
    return JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));
  } catch {
    return null;
  }
}

interface Keys {
  readonly byHead: ReadonlyMap<string, HmacSha256>;
  readonly byId: ReadonlyMap<string, HmacSha256>;
}

function keysOf(keys: readonly TierKey[]): Keys {
  return {
    byHead: new Map(keys.map(readyOf).map(({ head, secret }) => [head, secret])),
    byId: new Map(keys.map((key) => [key.id, readyOf(key).secret])),
  };
}

function readyOf(key: TierKey): ReadyKey {
  let ready = READY.get(key);
  if (ready === undefined) {
    const head = encoded({ alg: 'HS256', typ: 'JWT', kid: key.id });
    ready = { head, secret: new HmacSha256(key.secret) };
    READY.set(key, ready);
  }
  return ready;
}
