// One line per request, whatever became of it: where it went, why, how long it took, what was predicted and
// what came. Never content, never keys.

import { ERRORS, type ErrorCode, type LogLevel } from '../../shared/errors.ts';
import type { Logger } from '../../shared/runtime/log.ts';
import { routeLabel } from './http-listener.ts';
import { ANYBODY, type Tenant } from './tenants.ts';

export const OUTCOMES = [
  'complete',
  /** The engine refused the request itself (4xx). */
  'client_error',
  /** Refused by the router: malformed, unroutable, shed, or out of attempts. */
  'refused',
  /** Failed after the first data event. */
  'interrupted',
  'client_gone',
] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Where a request was when its client left. */
export const ABORT_STAGES = ['arriving', 'queued', 'waiting', 'streaming'] as const;

/**
 * Times in ms, sizes in tokens or bytes; null is unknown or did not come to it. What a tier says of the last attempt stands
 * between `queueMs` and `attemptTtftMs`.
 */
export interface RequestRecord {
  readonly id: string;
  readonly clientId: string | null;
  /** Name of the client's key, or subject of its certificate. */
  readonly client: string | null;
  /** Null where there are no tenants. */
  readonly tenant: string | null;
  /** Name of the route; the path, cut, where it is none. */
  readonly route: string;
  readonly outcome: Outcome;
  readonly status: number | null;
  /** Code of the error that ended it. */
  readonly code: string | null;
  readonly cause: string | null;
  readonly model: string | null;
  readonly stream: boolean | null;
  /** Tries before this one, as the client's SDK counts. */
  readonly retries: number | null;
  readonly attempts: number;
  readonly reason: string | null;
  readonly bodyBytes: number | null;
  readonly queueMs: number | null;
  /** From sending the last attempt to its first data event. */
  readonly attemptTtftMs: number | null;
  /** From arrival to the first data event. */
  readonly ttftMs: number | null;
  readonly durationMs: number;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly completionTokens: number | null;
  readonly lateError: boolean;
}

/** Writes the line. `log` is a plain one: there are no secrets. */
export function logRequest(log: Logger, level: LogLevel, record: RequestRecord): void {
  if (log.isLevelEnabled(level)) log[level](record, 'request');
}

interface Asked {
  readonly id: string;
  readonly clientId: string | null;
  readonly client: string | null;
  readonly tenant: Tenant;
  readonly path: string;
}

/** The tenant as the log names it. */
export function loggedTenant(tenant: Tenant): string | null {
  return tenant === ANYBODY ? null : tenant.name;
}

/** The line of a request that ended before it was understood. */
export function refusedRecord(
  call: Asked,
  end: { readonly outcome: Outcome; readonly code: ErrorCode; readonly durationMs: number },
): RequestRecord {
  return { ...plainRecord(call, end), status: ERRORS[end.code].status, code: end.code };
}

/** The line of a request that the router answered by itself. */
export function answeredRecord(call: Asked, durationMs: number): RequestRecord {
  return { ...plainRecord(call, { outcome: 'complete', durationMs }), status: 200 };
}

function plainRecord(
  call: Asked,
  { outcome, durationMs }: { readonly outcome: Outcome; readonly durationMs: number },
): RequestRecord {
  const { id, clientId, client, tenant } = call;
  const name = routeLabel(call.path);
  const route = name === 'other' ? call.path.slice(0, 80) : name;
  return {
    id,
    clientId,
    client,
    tenant: loggedTenant(tenant),
    route,
    outcome,
    durationMs,
    retries: null,
    attempts: 0,
    lateError: false,
    ...NOTHING_KNOWN,
  };
}

const NOTHING_KNOWN = {
  status: null,
  code: null,
  cause: null,
  model: null,
  stream: null,
  reason: null,
  bodyBytes: null,
  queueMs: null,
  attemptTtftMs: null,
  ttftMs: null,
  promptTokens: null,
  cachedTokens: null,
  completionTokens: null,
} as const;
