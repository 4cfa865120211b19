// A hint: where a conversation lives, as its client carries it from one turn to the next. It is what a global router would
// remember of the conversation, signed, so that any other one knows it that never heard of it.
//
//   form   h1.<claims, base64url of JSON>.<the first 128 bits of HMAC-SHA-256(secret, tenant, claims)>
//   good   for one tenant, one conversation (by the keys that `conversation-key.ts` makes), and `lifeMs` from its turn on
//   not    an order: it is used as what is remembered is, where the tenant's list lets it
//
// It holds no content. Its secret is derived from that of the keys, and rotated with it: the first signs, all are good.

import { createHmac, timingSafeEqual } from 'node:crypto';
import type { RegionId } from '../model/ids.ts';

/** A longer one is none of ours, and is not read. */
export const MAX_HINT_LENGTH = 1_024;
const FORM = 'h1';
const MAC_LENGTH = 22;
/** Wall clocks of two routers may be so far apart, ms. */
const CLOCK_MS = 5_000;

export interface Placement {
  /** Names the conversation at the end of its turn; null: not by its text. */
  readonly turnKey: string | null;
  /** Names it by its client's id; null: it has none. */
  readonly idKey: string | null;
  readonly region: RegionId;
  /** Of its history. */
  readonly tokens: number;
  /** When its turn was served, since when it lives there, and when it last moved for load: ms since 1970. */
  readonly atMs: number;
  readonly sinceMs: number;
  readonly movedMs: number | null;
}

export const HINT_REFUSALS = [
  'malformed',
  'signature', // forged, another tenant's, or signed with a secret that counts no more
  'expired',
  'clock_ahead', // made in our future
] as const;
export type HintRefusal = (typeof HINT_REFUSALS)[number];

export type HintVerdict =
  | { readonly kind: 'good'; readonly placement: Placement }
  | { readonly kind: 'refused'; readonly why: HintRefusal };

export class PlacementHints {
  #secrets: readonly Buffer[];

  constructor(...secrets: readonly [string, ...string[]]) {
    this.#secrets = secrets.map(derived);
  }

  configure(...secrets: readonly [string, ...string[]]): void {
    this.#secrets = secrets.map(derived);
  }

  /** The header's value. */
  sign(placement: Placement, tenant: string): string {
    const { turnKey, idKey, region, tokens, atMs, sinceMs, movedMs } = placement;
    const claims = [turnKey, idKey, region, Math.round(tokens), Math.round(atMs)];
    claims.push(Math.round(sinceMs), movedMs === null ? null : Math.round(movedMs));
    const text = Buffer.from(JSON.stringify(claims)).toString('base64url');
    return `${FORM}.${text}.${mac(this.#secrets[0] as Buffer, tenant, text).toString()}`;
  }

  /** `wallMs`: ms since 1970 by this machine's clock. */
  open(
    token: string,
    tenant: string,
    { wallMs, lifeMs }: { readonly wallMs: number; readonly lifeMs: number },
  ): HintVerdict {
    if (token.length > MAX_HINT_LENGTH) return refused('malformed');
    const [form, text, signature, ...rest] = token.split('.');
    if (form !== FORM || text === undefined || signature === undefined || rest.length > 0)
      return refused('malformed');
    const given = Buffer.from(signature);
    const isSigned = this.#secrets.some((secret) => {
      const wanted = mac(secret, tenant, text);
      return given.length === wanted.length && timingSafeEqual(given, wanted);
    });
    if (!isSigned) return refused('signature');
    const placement = placementOf(text);
    if (placement === null) return refused('malformed');
    if (placement.atMs > wallMs + CLOCK_MS) return refused('clock_ahead');
    if (wallMs - placement.atMs > lifeMs) return refused('expired');
    return { kind: 'good', placement };
  }
}

function refused(why: HintRefusal): HintVerdict {
  return { kind: 'refused', why };
}

/** Of its own, so that what signs hints signs nothing else. */
function derived(secret: string): Buffer {
  return createHmac('sha256', secret).update('spillway placement hint 1').digest();
}

function mac(secret: Buffer, tenant: string, text: string): Buffer {
  // A text has no colon: where the tenant's name ends is no matter of what it is.
  const whole = createHmac('sha256', secret).update(`${text}:${tenant}`).digest('base64url');
  return Buffer.from(whole.slice(0, MAC_LENGTH));
}

/** Signed, yet another version of us may have: checked member by member. */
function placementOf(text: string): Placement | null {
  let claims: unknown;
  try {
    claims = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
  } catch {
    return null;
  }
  if (!Array.isArray(claims)) return null;
  const [turnKey, idKey, region, tokens, atMs, sinceMs, movedMs] = claims as unknown[];
  if (!isKey(turnKey) || !isKey(idKey) || typeof region !== 'string') return null;
  if (!isFigure(tokens) || !isFigure(atMs) || !isFigure(sinceMs)) return null;
  if (movedMs !== null && !isFigure(movedMs)) return null;
  return { turnKey, idKey, region: region as RegionId, tokens, atMs, sinceMs, movedMs };
}

function isKey(value: unknown): value is string | null {
  return value === null || typeof value === 'string';
}

function isFigure(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
