// What never became an exchange: requests that were refused before they were understood, those that the router answered by
// itself, and bytes that were no request. Counted, and one line like any other where it was a request.

import { ERRORS, FleetError, type ErrorCode } from '../../shared/errors.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import { plainLog, type Logger } from '../../shared/runtime/log.ts';
import type { LabelValues, Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { GatewayMetric } from './gateway-metrics.ts';
import { routeLabel, type Call } from './http-listener.ts';
import { LimitError } from './read-body.ts';
import { answeredRecord, logRequest, refusedRecord } from './request-log.ts';

export interface UnservedDeps {
  readonly runtime: RoleRuntime;
  readonly metrics: Metrics<GatewayMetric>;
  /** Metric labels of what went nowhere. */
  readonly nowhere: LabelValues;
}

export class Unserved {
  private readonly deps: UnservedDeps;
  private readonly log: Logger;

  constructor(deps: UnservedDeps) {
    this.deps = deps;
    this.log = plainLog(deps.runtime.log);
  }

  /** A request that was refused before it was one for upstream. */
  refused(call: Call, error: unknown): void {
    const { runtime, metrics, nowhere } = this.deps;
    if (!(error instanceof FleetError)) this.bug(error);
    if (error instanceof LimitError) metrics.add('limit_hits_total', { limit: error.limit });
    const code = error instanceof FleetError ? error.code : 'internal';
    metrics.add('errors_total', { code });
    if (code === 'client_closed') metrics.add('client_aborts_total', { stage: 'arriving' });
    const outcome = code === 'client_closed' ? 'client_gone' : 'refused';
    metrics.add('requests_total', { route: routeLabel(call.path), ...nowhere, outcome });
    const durationMs = runtime.clock.nowMs() - call.arrivedMs;
    logRequest(this.log, ERRORS[code].level, refusedRecord(call, { outcome, code, durationMs }));
  }

  /** A request that needed nobody upstream. */
  answered(call: Call): void {
    const { runtime, metrics, nowhere } = this.deps;
    const route = routeLabel(call.path);
    metrics.add('requests_total', { route, ...nowhere, outcome: 'complete' });
    const durationMs = runtime.clock.nowMs() - call.arrivedMs;
    logRequest(this.log, 'debug', answeredRecord(call, durationMs));
  }

  /** What never was a request: no line in the log, which a flood of it would fill. */
  unparsed(code: ErrorCode | null, limit: LimitName | null): void {
    const { metrics } = this.deps;
    if (code !== null) metrics.add('errors_total', { code });
    if (limit !== null) metrics.add('limit_hits_total', { limit });
  }

  bug(error: unknown): void {
    this.deps.metrics.add('bugs_total');
    this.deps.runtime.log.error({ err: error }, 'bug');
  }
}
