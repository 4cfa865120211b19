// What the global tier says of a request to a region, in place of the client's own credentials: signed, for one attempt.
//
//   form       a JWS in its compact form, HS256 and no other; `kid` names the key of the pair of tiers
//   good for   one region, one method and path, one body, one attempt, LIFE_MS from when it was made
//   clocks     wall clocks of two machines may be CLOCK_MS apart; further is refused, and which way is said
//   replay     an attempt that was seen is refused until it has expired
//
// The body is checked when it has come; all else before a byte of it is read.

import { createHmac, hash, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { RegionId, RouterId } from '../../shared/model/ids.ts';
import { MAX_KEY } from '../../shared/protocol/limits.ts';
import { SeenAttempts } from './seen-attempts.ts';

export const LIFE_MS = 30_000;
export const CLOCK_MS = 5_000;
/** A longer token is none of ours, and is not read. */
const MAX_TOKEN_LENGTH = 8_192;
const ZONES_MAX = 64;
/** A hundred years: no conversation is older. */
const AWAY_FOR_MAX_MS = 3.2e12;

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
const REGIONS = z.array(z.string()).readonly();
const CLAIMS = z.object({
  aud: z.string(),
  iat: z.number(),
  exp: z.number(),
  jti: z.string().min(1),
  from: z.string().min(1),
  seq: z.int().min(0),
  method: z.string(),
  path: z.string(),
  body: z.string(),
  tenant: z.string().min(1),
  salt: z.string(),
  residency: z.object({ allow: REGIONS, fallback: REGIONS }).nullable(),
  conversation: z.string().min(1).max(MAX_KEY).nullable(),
  away: z.boolean(),
  awayForMs: z.number().min(0).max(AWAY_FOR_MAX_MS),
  zones: z.array(z.string()).max(ZONES_MAX).readonly().nullable(),
  deadlineInMs: z.number().nullable(),
});

/** The header's value. `wallMs`: ms since 1970 by this machine's clock. */
export function signContext(
  context: TierContext,
  to: { readonly region: RegionId; readonly key: TierKey; readonly bound: BoundTo },
  wallMs: number,
): string {
  const { key, bound, region } = to;
  const { attempt, from, seq, tenant, saltGroup, residency } = context;
  const { conversation, away, awayForMs, zones, deadlineInMs } = context;
  const claims: z.infer<typeof CLAIMS> = {
    ...{ aud: region, iat: wallMs / 1_000, exp: (wallMs + LIFE_MS) / 1_000, jti: attempt },
    ...{ method: bound.method, path: bound.path, body: bodyDigest(bound.body) },
    ...{ from, seq, tenant, salt: saltGroup, residency },
    ...{ conversation, away, awayForMs, zones, deadlineInMs },
  };
  const signed = `${encoded({ alg: 'HS256', typ: 'JWT', kid: key.id })}.${encoded(claims)}`;
  return `${signed}.${mac(signed, key.secret).toString('base64url')}`;
}

/** The receiving side of one region. */
export class ContextDoor {
  readonly #region: RegionId;
  #keys: ReadonlyMap<string, string>;
  readonly #seen = new SeenAttempts();

  constructor(region: RegionId, keys: readonly TierKey[]) {
    this.#region = region;
    this.#keys = tableOf(keys);
  }

  /** What was seen stays seen. */
  configure(keys: readonly TierKey[]): void {
    this.#keys = tableOf(keys);
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
    const { jti: attempt, salt: saltGroup, body: bodySha256 } = claims;
    const { seq, tenant, residency, conversation, away, awayForMs, zones, deadlineInMs } = claims;
    const context: TierContext = {
      ...{ attempt, from: claims.from as RouterId, seq, tenant, saltGroup, residency },
      ...{ conversation, away, awayForMs, zones, deadlineInMs },
    };
    return { kind: 'good', context, bodySha256 };
  }

  #verified(token: string): z.infer<typeof CLAIMS> | ContextRefusal {
    if (token.length > MAX_TOKEN_LENGTH) return 'malformed';
    const [head = '', claims = '', signature = '', ...more] = token.split('.');
    const header = HEADER.safeParse(decoded(head));
    if (!header.success || more.length > 0) return 'malformed';
    const secret = this.#keys.get(header.data.kid);
    if (secret === undefined) return 'unknown_key';
    const wanted = mac(`${head}.${claims}`, secret);
    const given = Buffer.from(signature, 'base64url');
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return 'signature';
    const parsed = CLAIMS.safeParse(decoded(claims));
    return parsed.success ? parsed.data : 'malformed';
  }

  #unfit(
    claims: z.infer<typeof CLAIMS>,
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
  const given = Buffer.from(bodySha256, 'base64url');
  const wanted = Buffer.from(bodyDigest(body), 'base64url');
  return given.length === wanted.length && timingSafeEqual(given, wanted);
}

function bodyDigest(body: Uint8Array): string {
  return hash('sha256', body, 'base64url');
}

function mac(text: string, secret: string): Buffer {
  return createHmac('sha256', secret).update(text).digest();
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

function tableOf(keys: readonly TierKey[]): ReadonlyMap<string, string> {
  return new Map(keys.map(({ id, secret }) => [id, secret]));
}
