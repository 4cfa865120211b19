// What an exchange leaves behind: its line in the log and its usage in the metrics.

import { ERRORS, type ErrorCode, type LogLevel } from '../../shared/errors.ts';
import type { Decision } from '../../shared/model/decision.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import type { Usage } from '../../shared/protocol/messages.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { Attempt } from '../regional/events.ts';
import type { MetricName } from '../regional/metrics.ts';
import type { Outcome, RequestRecord } from './request-log.ts';
import { replicaLabel } from '../regional/routed-headers.ts';

export interface ExchangeFacts {
  readonly id: RequestId;
  readonly clientId: string | null;
  /** Who asks, by its key or certificate. */
  readonly client: string | null;
  /** The path that the client asked: the engine is asked the same. */
  readonly path: string;
  readonly arrivedMs: number;
  /** Its body had been read and understood. */
  readonly readMs: number;
  readonly bodyBytes: number;
  /** The client asks for the decision, and may. */
  readonly explain: boolean;
  /** Tries before this one, as its SDK counts; null when it does not. */
  readonly retries: number | null;
  /** ms without a byte of a stream after which the client leaves; null when unknown. */
  readonly silenceMs: number | null;
  readonly passedHeaders: Readonly<Record<string, string>>;
}

export interface Progress {
  readonly facts: ExchangeFacts;
  readonly route: string;
  readonly model: string;
  readonly stream: boolean;
  /** The last one. */
  readonly attempt: Attempt | null;
  readonly decision: Decision | null;
  readonly attempts: number;
  readonly attemptMs: number;
  readonly queueMs: number | null;
  readonly firstTokenMs: number | null;
  readonly lastCause: string | null;
  readonly nowMs: number;
}

export interface ExchangeEnd {
  readonly outcome: Outcome;
  readonly status?: number;
  readonly code?: string | null;
  readonly usage: Usage | null;
  /** The error had to be an event. */
  readonly late?: boolean;
}

export function recordOf(progress: Progress, end: ExchangeEnd): RequestRecord {
  const { facts, attempt, firstTokenMs, nowMs } = progress;
  return {
    id: facts.id,
    clientId: facts.clientId,
    client: facts.client,
    route: progress.route,
    outcome: end.outcome,
    status: end.status ?? null,
    code: end.code ?? null,
    cause: end.outcome === 'complete' ? null : progress.lastCause,
    model: progress.model,
    stream: progress.stream,
    retries: facts.retries === 0 ? null : facts.retries,
    attempts: progress.attempts,
    reason: progress.decision?.reason ?? null,
    bodyBytes: facts.bodyBytes,
    queueMs: progress.queueMs,
    ...attemptFields(attempt),
    attemptTtftMs: firstTokenMs === null ? null : firstTokenMs - progress.attemptMs,
    ttftMs: firstTokenMs === null ? null : firstTokenMs - facts.arrivedMs,
    durationMs: nowMs - facts.arrivedMs,
    promptTokens: end.usage?.promptTokens ?? null,
    cachedTokens: end.usage?.cachedTokens ?? null,
    completionTokens: end.usage?.completionTokens ?? null,
    lateError: end.late === true,
  };
}

function attemptFields(attempt: Attempt | null) {
  return {
    pool: attempt?.pool ?? null,
    replica: attempt === null ? null : replicaLabel(attempt),
    rank: attempt?.target.rank ?? null,
    waitMs: attempt?.waitMs ?? null,
    prefillMs: attempt?.prefillMs ?? null,
    predictedTtftMs: attempt?.predictedTtftMs ?? null,
    predictedPromptTokens: attempt?.predictedPromptTokens ?? null,
    predictedCachedTokens: attempt?.predictedCachedTokens ?? null,
  };
}

export function levelOf({ outcome, code }: RequestRecord): LogLevel {
  if (outcome === 'interrupted') return 'warn';
  return code !== null && Object.hasOwn(ERRORS, code) ? ERRORS[code as ErrorCode].level : 'info';
}

/** Predicted tokens are counted only beside reported ones, so that the two can be compared. */
export function countUsage(metrics: Metrics<MetricName>, attempt: Attempt, usage: Usage): void {
  const { pool } = attempt;
  metrics.add('prompt_tokens_total', { pool }, usage.promptTokens);
  metrics.add('completion_tokens_total', { pool }, usage.completionTokens);
  if (usage.cachedTokens === null) return;
  metrics.add('prefix_reported_tokens_total', { pool }, usage.cachedTokens);
  metrics.add('prefix_predicted_tokens_total', { pool }, attempt.predictedCachedTokens);
}
