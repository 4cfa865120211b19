// One request from its arrival to its last byte: the client's reply on one side, one attempt after the other
// on the other. The core decides, this carries out. It ends exactly once, and whatever it held (body
// bytes, its place in the maps) is given back then.
//
//   the client leaves        → core told, attempt aborted, nothing more is written
//   attempt fails unseen     → core told, which tries again or refuses
//   attempt fails when seen  → error event to the client, core told that it was seen

import { ERRORS, type ErrorCode, type LogLevel } from '../../shared/errors.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import type { Usage } from '../../shared/protocol/messages.ts';
import type { BodyHold } from './body-budget.ts';
import type { AnswerRoom } from './answer-room.ts';
import { engineErrorAnswer } from './error-envelope.ts';
import type { OpenAiRequest } from './openai-request.ts';
import { keepAliveAfter } from './patience.ts';
import type { Reply } from './reply.ts';
import { serverTiming } from './server-timing.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { GatewayMetric } from './gateway-metrics.ts';
import { Upstream, type ClientError, type CommittedHead, type UpstreamOwner } from './upstream.ts';
import type { LabelValues, Metrics } from '../../shared/runtime/metrics.ts';
import type {
  AbortReason,
  RequestAttempt,
  RequestEffect,
  RequestEvent,
} from '../policy/request-events.ts';
import type { Outcome, RequestRecord } from './request-log.ts';
import {
  countUsage,
  levelOf,
  type ExchangeFacts,
  type Progress,
  recordOf,
} from './exchange-record.ts';
import type { RoutedDecision, TierWords } from './tier-words.ts';

export interface ExchangeDeps<Attempt extends RequestAttempt, Decision extends RoutedDecision> {
  nowMs(): number;
  post(event: RequestEvent): void;
  readonly words: TierWords<Attempt, Decision>;
  readonly room: AnswerRoom;
  readonly metrics: Metrics<GatewayMetric>;
  keepAliveAfterMs(): number;
  /** A client that takes nothing for so long is cut off, ms: its answer waits in memory. */
  clientStallMs(): number;
  over(exchange: Exchange<Attempt, Decision>, record: RequestRecord, level: LogLevel): void;
}

const BROKEN_OFF = {
  internal: 'The router failed on this request.',
  draining: 'The router is shutting down.',
  residency_violation: 'The tenant may not be served in this region.',
} as const;
type BrokenOff = keyof typeof BROKEN_OFF;

export class Exchange<
  Attempt extends RequestAttempt = RequestAttempt,
  Decision extends RoutedDecision = RoutedDecision,
> implements UpstreamOwner {
  readonly facts: ExchangeFacts;
  /** Null once the answer has begun: no other attempt will need the bytes. */
  request: OpenAiRequest | null;
  private readonly deps: ExchangeDeps<Attempt, Decision>;
  private readonly reply: Reply;
  private readonly hold: BodyHold;
  private readonly route: string;
  private readonly model: string;
  private readonly stream: boolean;
  /** Its answer begins with a first token, or comes when one would. */
  private readonly showsFirstToken: boolean;
  private upstream: Upstream | null = null;
  private attempt: Attempt | null = null;
  /** Metric labels of where it is. */
  private place: LabelValues;
  private decision: Decision | null = null;
  private attempts = 0;
  private attemptMs = 0;
  private firstAttemptMs: number | null = null;
  private decideMs: number | null = null;
  private queueMs: number | null = null;
  private firstTokenMs: number | null = null;
  /** Whose first token has come and has not been told yet. */
  private untold: Attempt | null = null;
  private lastDataMs = 0;
  private committedHead: CommittedHead | null = null;
  private slowSinceMs: number | null = null;
  private lastCause: string | null = null;
  private gone = false;
  private closed = false;

  constructor(
    deps: ExchangeDeps<Attempt, Decision>,
    facts: ExchangeFacts,
    parts: { readonly request: OpenAiRequest; readonly reply: Reply; readonly hold: BodyHold },
  ) {
    this.deps = deps;
    this.facts = facts;
    this.request = parts.request;
    this.reply = parts.reply;
    this.hold = parts.hold;
    this.route = parts.request.route;
    this.model = parts.request.model;
    this.stream = parts.request.stream;
    this.place = deps.words.place(null);
    this.showsFirstToken = this.stream || parts.request.work === 'prefill';
  }

  get id(): RequestId {
    return this.facts.id;
  }

  // ── from the core ────────────────────────────────────────────────────────────────────────────────────

  /** Sends the request where the core has decided. */
  send(attempt: Attempt, decision: Decision): void {
    const { deps, request } = this;
    this.decision = decision;
    if (this.closed || this.gone || request === null) {
      const result: AttemptResult = { kind: 'clientGone' };
      deps.post({ kind: 'attemptEnded', lease: attempt.lease, result, committed: false });
      return;
    }
    const now = deps.nowMs();
    this.attempt = attempt;
    this.place = deps.words.place(attempt);
    this.attempts += 1;
    this.attemptMs = now;
    this.firstAttemptMs ??= now;
    const isFirst = this.queueMs === null;
    this.queueMs ??= now - this.facts.arrivedMs;
    const { facts, place, queueMs, lastCause } = this;
    const order = deps.words.order({ facts, request, room: deps.room }, attempt);
    this.upstream = new Upstream(order, this);
    this.upstream.start();
    // Counted once it is on its way: the engine is not to wait for it.
    if (isFirst) deps.metrics.observe('queue_wait_seconds', queueMs / 1_000, place);
    else deps.metrics.add('retries_total', { ...place, cause: lastCause ?? 'unknown' });
  }

  /** How long the core took over its arrival. */
  decided(decideMs: number): void {
    this.decideMs = decideMs;
  }

  /** The request waits; nothing is written for now. */
  queued(decision: Decision): void {
    this.decision = decision;
  }

  refuse(effect: Extract<RequestEffect<Attempt, Decision>, { kind: 'refuse' }>): void {
    if (this.closed) return;
    this.decision = effect.decision ?? this.decision;
    const { code, message, retryAfterMs } = effect;
    if (effect.decision?.kind === 'shed') {
      this.deps.metrics.add('sheds_total', { reason: effect.decision.reason });
    }
    this.fail('refused', { code, message, retryAfterMs });
  }

  abort(reason: AbortReason): void {
    this.upstream?.abort(
      reason === 'client_gone'
        ? { kind: 'clientGone' }
        : { kind: 'serverFault', cause: reason, detail: 'given up' },
    );
  }

  extend(timeoutMs: number): void {
    this.upstream?.extend(timeoutMs);
  }

  // ── from the client ──────────────────────────────────────────────────────────────────────────────────

  clientGone(): void {
    if (this.closed || this.gone) return;
    // SDKs close at `[DONE]`, often before the body has ended: they have their whole answer.
    if (this.upstream?.whole === true && this.reply.flushed) return;
    this.gone = true;
    const stage =
      this.committedHead !== null ? 'streaming' : this.upstream !== null ? 'waiting' : 'queued';
    this.deps.metrics.add('client_aborts_total', { stage });
    this.deps.post({ kind: 'clientGone', request: this.id });
    if (this.upstream === null) this.finish('client_gone', null);
  }

  /** Deadlines and keep-alive comments. */
  check(nowMs: number): void {
    if (this.closed) return;
    this.upstream?.check(nowMs);
    if (this.slowSinceMs !== null) {
      if (nowMs - this.slowSinceMs >= this.deps.clientStallMs()) {
        this.deps.metrics.add('limit_hits_total', { limit: 'client_stall' });
        this.reply.destroy();
      }
      return;
    }
    const silentMs = nowMs - this.reply.lastWriteMs;
    const afterMs = keepAliveAfter(this.deps.keepAliveAfterMs(), this.facts.silenceMs);
    if (this.stream && !this.gone && silentMs >= afterMs) this.reply.keepAlive(nowMs);
  }

  /** Nothing of an answer has come, and its tenant is no longer to be served here: it ends. */
  withdrawFrom(keepsOut: (tenant: string) => boolean): void {
    if (this.committedHead !== null || !keepsOut(this.facts.tenant.name)) return;
    this.breakOff('residency_violation');
  }

  /** Ends it from this side: a bug met while it was handled, the router leaves, or may not serve it. */
  breakOff(code: BrokenOff): void {
    const message = BROKEN_OFF[code];
    this.fail(this.committedHead === null ? 'refused' : 'interrupted', { code, message });
    this.deps.post({ kind: 'clientGone', request: this.id });
    this.upstream?.abort({ kind: 'clientGone' });
  }

  // ── from the engine ──────────────────────────────────────────────────────────────────────────────────

  nowMs(): number {
    return this.deps.nowMs();
  }

  committed(head: CommittedHead): void {
    const { attempt } = this;
    if (attempt === null) return;
    const now = this.deps.nowMs();
    this.committedHead = head;
    this.request = null;
    this.hold.release();
    const routed = this.routed();
    if (head.stream) this.reply.beginStream(head.contentType, { ...head.passed, ...routed });
    else this.reply.beginAnswer(200, head, routed);
    if (!this.showsFirstToken) return;
    this.firstTokenMs = now;
    this.lastDataMs = now;
    this.untold = attempt;
  }

  /** Told once the client has it: what is noted of a first token takes longer than passing it on. */
  private tellFirstToken(): void {
    const { deps, place, untold: attempt, firstTokenMs: now } = this;
    if (attempt === null || now === null) return;
    this.untold = null;
    deps.metrics.observe('ttft_seconds', (now - this.facts.arrivedMs) / 1_000, place);
    if (attempt.predictedTtftMs !== null) {
      const measuredMs = now - this.attemptMs;
      const errorMs = measuredMs - attempt.predictedTtftMs;
      deps.metrics.observe('ttft_prediction_error_seconds', errorMs / 1_000, place);
      const ratio = attempt.predictedTtftMs / Math.max(1, measuredMs) - 1;
      deps.metrics.observe('ttft_prediction_error_ratio', ratio, place);
    }
    deps.post({ kind: 'firstToken', lease: attempt.lease });
  }

  pass(pieces: readonly Buffer[], dataEvents: number): boolean {
    const now = this.deps.nowMs();
    if (dataEvents > 0 && this.attempt !== null) {
      const gapMs = now - this.lastDataMs;
      if (gapMs > 0) {
        this.deps.metrics.observe('inter_token_seconds', gapMs / dataEvents / 1_000, this.place);
      }
      this.lastDataMs = now;
    }
    const [first] = pieces;
    const piece = pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces);
    const more = this.reply.write(piece, now, this.upstream?.whole);
    if (this.untold !== null) this.tellFirstToken();
    if (more) return true;
    if (this.slowSinceMs === null) {
      this.slowSinceMs = now;
      this.reply.onceDrained(() => {
        this.slowSinceMs = null;
        this.upstream?.resume();
      });
    }
    return false;
  }

  noRoom(): void {
    this.deps.metrics.add('limit_hits_total', { limit: 'answer_bytes_max' });
  }

  late(): void {
    if (this.attempt !== null) {
      this.deps.post({ kind: 'firstTokenLate', lease: this.attempt.lease });
    }
  }

  over(result: AttemptResult, committed: boolean, clientError: ClientError | null): void {
    const { attempt } = this;
    this.upstream = null;
    this.tellFirstToken();
    this.lastCause = causeOf(result);
    if (clientError !== null) this.passClientError(clientError);
    else if (result.kind === 'complete') this.complete(result.usage);
    else if (this.gone || result.kind === 'clientGone') this.finish('client_gone', null);
    else if (committed) this.interrupted();
    if (attempt !== null) {
      this.deps.post({ kind: 'attemptEnded', lease: attempt.lease, result, committed });
    }
  }

  // ── ends ─────────────────────────────────────────────────────────────────────────────────────────────

  private complete(usage: Usage | null): void {
    this.reply.end();
    this.finish('complete', { status: 200, code: null, usage });
  }

  private passClientError(clientError: ClientError): void {
    const answer = engineErrorAnswer(clientError.status, clientError.body);
    const late = this.reply.passError(answer, this.routed());
    if (late) this.deps.metrics.add('late_errors_total', { code: 'engine_error' });
    this.finish('client_error', { status: answer.status, code: 'engine_error', late });
  }

  private interrupted(): void {
    const cause = this.lastCause ?? 'unknown';
    this.deps.metrics.add('interrupted_streams_total', { ...this.place, cause });
    // Only an event stream has words for it; any other answer must not look whole.
    if (this.committedHead?.stream !== true) {
      this.reply.destroy();
      return this.finish('interrupted', { status: 200, code: 'stream_interrupted' });
    }
    const message = this.deps.words.interrupted;
    this.fail('interrupted', { code: 'stream_interrupted', message });
  }

  private fail(
    outcome: Outcome,
    facts: { code: ErrorCode; message: string; retryAfterMs?: number | null },
  ): void {
    if (this.closed) return;
    this.deps.metrics.add('errors_total', { code: facts.code });
    const param = facts.code === 'model_not_found' ? 'model' : null;
    const late = this.reply.fail({ ...facts, param }, this.routed());
    if (late && this.reply.keptAlive && this.committedHead === null) {
      this.deps.metrics.add('late_errors_total', { code: facts.code });
    }
    const status = late ? 200 : ERRORS[facts.code].status;
    this.finish(outcome, { status, code: facts.code, late });
  }

  private finish(
    outcome: Outcome,
    end: { status: number; code: string | null; usage?: Usage | null; late?: boolean } | null,
  ): void {
    if (this.closed) return;
    this.closed = true;
    this.request = null;
    this.hold.release();
    const { deps, attempt } = this;
    deps.metrics.add('requests_total', { route: this.route, ...this.place, outcome });
    const usage = end?.usage ?? null;
    if (usage !== null && attempt !== null) {
      const cachedTokens = deps.words.cachedTokens(attempt);
      countUsage(deps.metrics, { usage, cachedTokens, place: this.place });
    }
    const record = recordOf(this.progress(), {
      outcome,
      status: end?.status ?? null,
      code: end?.code ?? null,
      usage,
      late: end?.late === true,
    });
    deps.over(this, record, levelOf(record));
  }

  private routed() {
    return this.deps.words.headers({
      attempt: this.attempt,
      decision: this.decision,
      attempts: this.attempts,
      queueMs: this.queueMs,
      timing: this.timing(),
      explain: this.facts.explain,
      fromTier: this.facts.fromTier,
    });
  }

  private timing(): string {
    const { facts, decideMs, firstAttemptMs, attempts } = this;
    return serverTiming({
      arrivedMs: facts.arrivedMs,
      readMs: facts.readMs,
      decideMs,
      firstAttemptMs,
      lastAttemptMs: attempts === 0 ? null : this.attemptMs,
      attempts,
      nowMs: this.deps.nowMs(),
      firstToken: this.showsFirstToken && this.committedHead !== null,
    });
  }

  /** What there is to say of it so far. */
  private progress(): Progress {
    return {
      facts: this.facts,
      route: this.route,
      model: this.model,
      stream: this.stream,
      attempts: this.attempts,
      reason: this.decision?.reason ?? null,
      placeFields: this.deps.words.logFields(this.attempt, this.decision),
      attemptMs: this.attemptMs,
      queueMs: this.queueMs,
      firstTokenMs: this.firstTokenMs,
      lastCause: this.lastCause,
      nowMs: this.deps.nowMs(),
    };
  }
}

function causeOf(result: AttemptResult): string {
  return result.kind === 'serverFault' ? result.cause : result.kind;
}
