// What an exchange leaves behind: its line in the log and its usage in the metrics.

import { ERRORS, type ErrorCode, type LogLevel } from '../../shared/errors.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import type { Usage } from '../../shared/protocol/messages.ts';
import type { LabelValues, Metrics } from '../../shared/runtime/metrics.ts';
import type { GatewayMetric } from './gateway-metrics.ts';
import { loggedTenant, type Outcome, type RequestRecord } from './request-log.ts';
import type { Tenant } from './tenants.ts';

export interface ExchangeFacts {
  readonly id: RequestId;
  readonly clientId: string | null;
  /** Who asks, by its key or certificate. */
  readonly client: string | null;
  readonly tenant: Tenant;
  /** The path that the client asked: upstream is asked the same. */
  readonly path: string;
  readonly arrivedMs: number;
  /** Its body had been read and understood. */
  readonly readMs: number;
  readonly bodyBytes: number;
  /** The client asks for the decision, and may. */
  readonly explain: boolean;
  /** It came from the tier before, which reads little of an answer's head. */
  readonly fromTier: boolean;
  /** Tries before this one, as its SDK counts; null when it does not. */
  readonly retries: number | null;
  /** ms without a byte of a stream after which the client leaves; null when unknown. */
  readonly silenceMs: number | null;
  readonly passedHeaders: Readonly<Record<string, string>>;
}

type PlaceFields = Readonly<Record<string, string | number | null>>;

export interface Progress {
  readonly facts: ExchangeFacts;
  readonly route: string;
  readonly model: string;
  readonly stream: boolean;
  readonly attempts: number;
  /** Of the last decision. */
  readonly reason: string | null;
  /** What the tier says of the last attempt. */
  readonly placeFields: PlaceFields;
  readonly attemptMs: number;
  readonly queueMs: number | null;
  readonly firstTokenMs: number | null;
  readonly lastCause: string | null;
  readonly nowMs: number;
}

export interface ExchangeEnd {
  readonly outcome: Outcome;
  readonly status: number | null;
  readonly code: string | null;
  readonly usage: Usage | null;
  /** The error had to be an event. */
  readonly late: boolean;
}

export function recordOf(progress: Progress, end: ExchangeEnd): RequestRecord {
  const { facts, firstTokenMs, nowMs } = progress;
  return {
    id: facts.id,
    clientId: facts.clientId,
    client: facts.client,
    tenant: loggedTenant(facts.tenant),
    route: progress.route,
    outcome: end.outcome,
    status: end.status,
    code: end.code,
    cause: end.outcome === 'complete' ? null : progress.lastCause,
    model: progress.model,
    stream: progress.stream,
    retries: facts.retries === 0 ? null : facts.retries,
    attempts: progress.attempts,
    reason: progress.reason,
    bodyBytes: facts.bodyBytes,
    queueMs: progress.queueMs,
    ...progress.placeFields,
    attemptTtftMs: firstTokenMs === null ? null : firstTokenMs - progress.attemptMs,
    ttftMs: firstTokenMs === null ? null : firstTokenMs - facts.arrivedMs,
    durationMs: nowMs - facts.arrivedMs,
    promptTokens: end.usage?.promptTokens ?? null,
    cachedTokens: end.usage?.cachedTokens ?? null,
    completionTokens: end.usage?.completionTokens ?? null,
    lateError: end.late,
  };
}

export function levelOf({ outcome, code }: RequestRecord): LogLevel {
  if (outcome === 'interrupted') return 'warn';
  return code !== null && Object.hasOwn(ERRORS, code) ? ERRORS[code as ErrorCode].level : 'info';
}

/** Predicted tokens are counted only beside reported ones, so that the two can be compared. */
export function countUsage(
  metrics: Metrics<GatewayMetric>,
  of: {
    readonly usage: Usage;
    /** As predicted; null: nothing was. */
    readonly cachedTokens: number | null;
    readonly place: LabelValues;
  },
): void {
  const { usage, cachedTokens, place } = of;
  metrics.add('prompt_tokens_total', place, usage.promptTokens);
  metrics.add('completion_tokens_total', place, usage.completionTokens);
  if (usage.cachedTokens === null || cachedTokens === null) return;
  metrics.add('prefix_reported_tokens_total', place, usage.cachedTokens);
  metrics.add('prefix_predicted_tokens_total', place, cachedTokens);
}
