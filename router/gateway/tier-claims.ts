// What a signed context claims, as it stands in the token, and whether what came in one is that: checked member by
// member, since it is done for every request between tiers. Members that are not known are left out.

import { MAX_KEY } from '../../shared/protocol/limits.ts';

const ZONES_MAX = 64;
const REVISIONS_MAX = 1_024;
/** A hundred years: no conversation is older. */
const AWAY_FOR_MAX_MS = 3.2e12;

export interface TierClaims {
  /** The region that it is for. */
  readonly aud: string;
  /** When it was made and until when it is good, seconds since 1970. */
  readonly iat: number;
  readonly exp: number;
  /** The attempt's id. */
  readonly jti: string;
  readonly method: string;
  readonly path: string;
  /** SHA-256 of the body's bytes, base64url. */
  readonly body: string;
  readonly from: string;
  readonly seq: number;
  readonly tenant: string;
  readonly salt: string;
  readonly residency: {
    readonly allow: readonly string[];
    readonly fallback: readonly string[];
  } | null;
  readonly conversation: string | null;
  /** Absent: none, or a global router before there were any. */
  readonly byId?: string | undefined;
  readonly revisions?: readonly string[] | undefined;
  readonly away: boolean;
  readonly awayForMs: number;
  readonly zones: readonly string[] | null;
  readonly deadlineInMs: number | null;
}

/** The claims of a token's JSON; null where they are none. */
export function tierClaims(value: unknown): TierClaims | null {
  if (!isRecord(value)) return null;
  const { aud, iat, exp, jti, method, path, body, from, seq, tenant, salt } = value;
  const { conversation, byId, revisions, away, awayForMs, zones, deadlineInMs } = value;
  if (!isText(aud) || !isText(method) || !isText(path) || !isText(body) || !isText(salt))
    return null;
  if (!isName(jti) || !isName(from) || !isName(tenant)) return null;
  if (!isFigure(iat) || !isFigure(exp) || typeof away !== 'boolean') return null;
  if (!Number.isSafeInteger(seq) || (seq as number) < 0) return null;
  if (!isFigure(awayForMs) || awayForMs < 0 || awayForMs > AWAY_FOR_MAX_MS) return null;
  if (deadlineInMs !== null && !isFigure(deadlineInMs)) return null;
  if (conversation !== null && !isKey(conversation)) return null;
  if (byId !== undefined && !isKey(byId)) return null;
  if (revisions !== undefined && !(isTexts(revisions) && revisions.length <= REVISIONS_MAX))
    return null;
  if (zones !== null && !(isTexts(zones) && zones.length <= ZONES_MAX)) return null;
  const residency = residencyOf(value['residency']);
  if (residency === undefined) return null;
  return {
    aud,
    iat,
    exp,
    jti,
    method,
    path,
    body,
    from,
    seq: seq as number,
    tenant,
    salt,
    residency,
    conversation,
    byId,
    revisions,
    away,
    awayForMs,
    zones,
    deadlineInMs,
  };
}

/** Undefined where it is none. */
function residencyOf(value: unknown): TierClaims['residency'] | undefined {
  if (value === null) return null;
  if (!isRecord(value)) return undefined;
  const { allow, fallback } = value;
  return isTexts(allow) && isTexts(fallback) ? { allow, fallback } : undefined;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function isKey(value: unknown): value is string {
  return isName(value) && value.length <= MAX_KEY;
}

function isFigure(value: unknown): value is number {
  return Number.isFinite(value);
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every(isText);
}
