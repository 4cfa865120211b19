// Where generation requests come in: body within limits, parsed once, told to the core, and kept as an open
// exchange until it ends. The core's effects on requests find their exchange here.

import type { ServerResponse } from 'node:http';
import { ChurnMap } from '../../shared/lib/churn.ts';
import { FleetError, type LogLevel } from '../../shared/errors.ts';
import type { LeaseId, RequestId } from '../../shared/model/ids.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import { plainLog, type Logger } from '../../shared/runtime/log.ts';
import { randomHex } from '../../shared/runtime/entropy.ts';
import { LinkSlices } from '../../shared/runtime/link-slices.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { AnswerRoom } from './answer-room.ts';
import { BodyBudget, type BodyHold } from './body-budget.ts';
import type { Canonicaliser } from './canonical.ts';
import { apiRouteNamed, type ApiRoute } from './api-routes.ts';
import { conversationIdOf, hintOf } from './conversation-ids.ts';
import { passedUpstream, wantsExplain } from './headers.ts';
import { clientPatience, type ClientPatience } from './patience.ts';
import { markOf, type LiftedBody } from './lifted-body.ts';
import {
  isLifted,
  parseLifted,
  parseOpenAiRequest,
  type OpenAiRequest,
  type ParseContext,
} from './openai-request.ts';
import { LimitError, readJsonBody, type Lifting } from './read-body.ts';
import { Deadlines } from './deadlines.ts';
import type {
  RequestAttempt,
  RequestEffect,
  RequestEvent,
  RouteRequest,
  TierFacts,
} from '../policy/request-events.ts';
import { Exchange, type ExchangeDeps } from './exchange.ts';
import type { Explainable } from './explanation.ts';
import type { Call } from './http-listener.ts';
import { logRequest, type RequestRecord } from './request-log.ts';
import type { GatewayMetric } from './gateway-metrics.ts';
import type { GatewayReloadable } from './gateway-options.ts';
import type { TierContext } from './tier-context.ts';
import type { TierCall } from './tier-door.ts';
import type { RoutedDecision, TierWords } from './tier-words.ts';
import { grantOf, type Tenant } from './tenants.ts';

export interface DeskDeps<Attempt extends RequestAttempt, Decision extends RoutedDecision> {
  readonly runtime: RoleRuntime;
  readonly metrics: Metrics<GatewayMetric>;
  readonly words: TierWords<Attempt, Decision>;
  readonly canonicaliser: Canonicaliser;
  readonly post: (event: RequestEvent) => void;
  /** Shared with other bulk work of the process; absent: large bodies have slices of their own. */
  readonly slices?: LinkSlices;
}

/** A smaller body takes far less than a millisecond. */
const LARGE_BODY_BYTES = 64 * 1024;
/** Bytes of the mark of what is lifted out of large bodies. */
const MARK_BYTES = 16;

interface Names {
  readonly id: string | null;
  readonly hint: string | null;
}

const NO_NAMES: Names = { id: null, hint: null };

/** What is known of a request beside its body. */
interface Asking extends Pick<Explainable, 'id' | 'headers'> {
  readonly patience: ClientPatience;
  /** ms since it arrived. */
  readonly spentMs: number;
  readonly tenant: Tenant;
  readonly tier: TierCall | null;
}

/** What an event says of whom it is about. */
interface AboutRequest {
  readonly kind: string;
  readonly lease?: LeaseId;
  readonly request?: RouteRequest | RequestId;
}

export class RequestDesk<
  Attempt extends RequestAttempt = RequestAttempt,
  Decision extends RoutedDecision = RoutedDecision,
> {
  readonly budget: BodyBudget;
  /** Of answers that are held until they are whole. */
  readonly room: AnswerRoom;
  private readonly deps: DeskDeps<Attempt, Decision>;
  private readonly slices: LinkSlices;
  private readonly lifting: Lifting;
  private readonly deadlines: Deadlines;
  private readonly log: Logger;
  private readonly open = new ChurnMap<RequestId, Exchange<Attempt, Decision>>();
  private readonly leases = new ChurnMap<LeaseId, Exchange<Attempt, Decision>>();
  private readonly exchangeDeps: ExchangeDeps<Attempt, Decision>;
  private reloadable: GatewayReloadable;
  private arriving = 0;
  private idleTask: (() => void) | null = null;

  constructor(deps: DeskDeps<Attempt, Decision>, reloadable: GatewayReloadable) {
    this.deps = deps;
    this.reloadable = reloadable;
    this.budget = new BodyBudget(reloadable.limits);
    this.room = new AnswerRoom(reloadable.limits.answerBytesMax);
    this.slices = deps.slices ?? new LinkSlices(() => deps.runtime.clock.nowMs());
    this.lifting = { mark: markOf(randomHex(MARK_BYTES)), slices: this.slices };
    this.log = plainLog(deps.runtime.log);
    this.deadlines = new Deadlines(deps.runtime.clock, deps.runtime.timers);
    this.exchangeDeps = this.depsOfExchange();
  }

  /** Requests that have arrived and not ended. */
  get openRequests(): number {
    return this.open.size + this.arriving;
  }

  configure(reloadable: GatewayReloadable): void {
    this.reloadable = reloadable;
    this.budget.configure(reloadable.limits);
    this.room.configure(reloadable.limits.answerBytesMax);
  }

  /** Runs `task` once when nothing is open; at once when that is so. */
  whenIdle(task: () => void): void {
    if (this.openRequests === 0) return task();
    this.idleTask = task;
  }

  /** A bug met while this event was handled: its request would wait for ever. */
  breakOff({ request, lease }: AboutRequest): void {
    if (typeof request === 'object') this.open.get(request.id)?.breakOff('internal');
    else if (lease !== undefined) {
      const id = lease.slice(0, lease.lastIndexOf('.')) as RequestId;
      this.open.get(id)?.breakOff('internal');
    }
  }

  /** What waits of tenants that may no longer be served here is refused; what streams goes on to its end. */
  withdraw(keepsOut: (tenant: string) => boolean): void {
    for (const exchange of [...this.open.values()]) exchange.withdrawFrom(keepsOut);
  }

  /** Cuts off everything that is open. */
  cutOff(): void {
    for (const exchange of this.open.values()) exchange.breakOff('draining');
  }

  // ── from clients ─────────────────────────────────────────────────────────────────────────────────────

  /** A request for upstream. Rejects with `FleetError` before anything was written. */
  async forward(route: ApiRoute, call: Call): Promise<void> {
    if (this.openRequests >= this.reloadable.limits.openRequests) {
      throw new LimitError('open_requests', 'saturated', 'The router has too many open requests.');
    }
    const hold = this.budget.open();
    this.arriving += 1;
    try {
      const body = await this.read(route, call, hold);
      const large = Buffer.isBuffer(body) ? null : await this.parseLarge(route, body, call.tenant);
      const bytes = Buffer.isBuffer(body) ? body : body.bytes;
      const waits = this.inTurn(bytes.length, () => {
        this.begin(call, large ?? this.parse(route, bytes, call.tenant), hold);
      });
      if (waits !== null) await waits;
    } catch (error) {
      hold.release();
      throw error;
    } finally {
      this.arriving -= 1;
      this.tellIdle();
    }
  }

  /** A body as a request for upstream, for the router's own use: nothing is sent anywhere. */
  explainable(asked: Explainable, tenant: Tenant): RouteRequest {
    const { id, headers, route: named, body } = asked;
    const route = named === null ? null : apiRouteNamed(named);
    if (named !== null && route === null) {
      throw new FleetError('invalid_request', 'There is no such route.', { param: 'route' });
    }
    const request = this.parse(route, body, tenant);
    const patience = clientPatience(headers, request.stream);
    return this.routeRequest({ id, headers, patience, spentMs: 0, tenant, tier: null }, request);
  }

  // ── from the core ────────────────────────────────────────────────────────────────────────────────────

  /** Counted once it is on its way: the engine is not to wait for it. */
  attempt(attempt: Attempt, decision: Decision): void {
    try {
      this.send(attempt, decision);
    } finally {
      this.countDecision(decision);
    }
  }

  queued(effect: Extract<RequestEffect<Attempt, Decision>, { kind: 'queued' }>): void {
    this.countDecision(effect.decision);
    this.open.get(effect.request)?.queued(effect.decision);
  }

  refuse(effect: Extract<RequestEffect<Attempt, Decision>, { kind: 'refuse' }>): void {
    if (effect.decision !== null) this.countDecision(effect.decision);
    this.open.get(effect.request)?.refuse(effect);
  }

  abort(effect: Extract<RequestEffect<Attempt, Decision>, { kind: 'abort' }>): void {
    this.leases.get(effect.lease)?.abort(effect.reason);
  }

  extend(effect: Extract<RequestEffect<Attempt, Decision>, { kind: 'extend' }>): void {
    this.leases.get(effect.lease)?.extend(effect.timeoutMs);
  }

  // ── privates ─────────────────────────────────────────────────────────────────────────────────────────

  private send(attempt: Attempt, decision: Decision): void {
    const exchange = this.open.get(attempt.request);
    if (exchange === undefined) return this.endUnsent(attempt.lease);
    this.leases.set(attempt.lease, exchange);
    try {
      exchange.send(attempt, decision);
    } catch (error) {
      // A bug met on behalf of one request costs that request only, and what never left has nobody else to end it.
      exchange.breakOff('internal');
      if (this.leases.has(attempt.lease)) this.endUnsent(attempt.lease);
      throw error;
    }
  }

  private async read(route: ApiRoute, call: Call, hold: BodyHold): Promise<Buffer | LiftedBody> {
    const { limits, conversationIds } = this.reloadable;
    const lifting = isLifted(route, conversationIds?.members ?? null) ? this.lifting : null;
    const body = await readJsonBody(call, { hold, bounds: limits, lifting });
    if (call.tier !== null) await call.tier.settle(Buffer.isBuffer(body) ? body : body.bytes);
    return body;
  }

  /** As `parse`, with the rest of the router at work between its steps. */
  private async parseLarge(
    route: ApiRoute,
    body: LiftedBody,
    tenant: Tenant,
  ): Promise<OpenAiRequest> {
    const steps = parseLifted(route, body, this.parseContext(tenant));
    return granted(await this.slices.inSteps('bodies', steps), tenant);
  }

  /** Large bodies take their time of a turn as links do: two at once would hold up everybody's chunks. */
  private inTurn(bytes: number, work: () => void): Promise<void> | null {
    const { slices } = this;
    if (bytes >= LARGE_BODY_BYTES && slices.isOver('bodies')) {
      return new Promise((resolve, reject) => {
        const settle = (): void => {
          try {
            resolve(work());
          } catch (error) {
            reject(error as Error);
          }
        };
        slices.later('bodies', settle);
      });
    }
    if (bytes >= LARGE_BODY_BYTES) slices.run(work);
    else work();
    return null;
  }

  /** Without a route the body's own members say which it is. */
  private parse(route: ApiRoute | null, bytes: Buffer, tenant: Tenant): OpenAiRequest {
    return granted(parseOpenAiRequest(route, bytes, this.parseContext(tenant)), tenant);
  }

  private parseContext({ saltGroup }: Tenant): ParseContext {
    const { limits, conversationIds } = this.reloadable;
    return {
      canonicaliser: this.deps.canonicaliser,
      jsonDepth: limits.jsonDepth,
      idMembers: conversationIds?.members ?? null,
      seedOf: (model) => ({ saltGroup, lora: this.loraOf(model) }),
    };
  }

  /** Also of `name@revision`. */
  private loraOf(model: string): string | null {
    const { words } = this.deps;
    const at = model.lastIndexOf('@');
    return words.loraOf(model) ?? (at > 0 ? words.loraOf(model.slice(0, at)) : null);
  }

  private explains(headers: Explainable['headers']): boolean {
    return this.reloadable.surface.explain && wantsExplain(headers);
  }

  private begin(call: Call, request: OpenAiRequest, hold: BodyHold): void {
    const { request: asked, response } = call;
    if (response.destroyed || asked.socket.destroyed)
      throw new FleetError('client_closed', 'The client went away.');
    const { clock } = this.deps.runtime;
    const readMs = clock.nowMs();
    const patience = clientPatience(asked.headers, request.stream);
    const exchange = new Exchange(
      this.exchangeDeps,
      {
        id: call.id,
        clientId: call.clientId,
        client: call.client,
        tenant: call.tenant,
        path: call.path,
        arrivedMs: call.arrivedMs,
        readMs,
        explain: this.explains(asked.headers),
        fromTier: call.tier !== null,
        bodyBytes: request.bytes.length,
        retries: patience.retries,
        silenceMs: patience.silenceMs,
        passedHeaders: passedUpstream(asked.headers),
      },
      { request, reply: call.reply, hold },
    );
    this.open.set(call.id, exchange);
    const postedMs = clock.nowMs();
    const { id, tenant, tier } = call;
    const { headers } = asked;
    const spentMs = readMs - call.arrivedMs;
    const asking = { id, headers, patience, spentMs, tenant, tier };
    this.deps.post({ kind: 'arrived', request: this.routeRequest(asking, request) });
    exchange.decided(clock.nowMs() - postedMs);
    this.watch(exchange, response);
  }

  /** Once its request is on its way: the engine is not to wait for it. A refused one is over by now. */
  private watch(exchange: Exchange<Attempt, Decision>, response: ServerResponse): void {
    if (!this.open.has(exchange.id)) return;
    this.deadlines.add(exchange);
    response.on('close', () => {
      if (!response.writableFinished) exchange.clientGone();
    });
  }

  private routeRequest(
    { id, headers, patience, spentMs, tenant, tier }: Asking,
    request: OpenAiRequest,
  ): RouteRequest {
    const deadlineMs = tier === null ? patience.deadlineMs : tier.context.deadlineInMs;
    const { retries } = patience;
    const revisions = tier?.context.revisions ?? request.revisions;
    const names = this.namesOf(headers, request);
    // Every member in its place, said or not: the core meets objects of one kind.
    return {
      id,
      tenant: tenant.name,
      model: request.model,
      stream: request.stream,
      priority: request.priority,
      maxTokens: request.maxTokens,
      answers: request.answers,
      work: request.work,
      truncates: request.truncates,
      // The client's clock runs while its body is read.
      clientDeadlineMs: deadlineMs === null ? null : Math.max(1, deadlineMs - spentMs),
      comesAgain: retries !== null && retries > 0,
      explain: this.explains(headers),
      bodyBytes: request.bytes.length,
      prompts: request.prompts,
      tier: tier === null ? undefined : factsOf(tier.context),
      revisions: revisions ?? undefined,
      conversationId: names.id ?? undefined,
      hint: names.hint ?? undefined,
    };
  }

  /** What the client says of its conversation beside the text. */
  private namesOf(headers: Asking['headers'], { conversation }: OpenAiRequest): Names {
    const { conversationIds } = this.reloadable;
    if (conversationIds === null) return NO_NAMES;
    const { id, tooLong } = conversationIdOf(conversationIds, headers, conversation);
    if (tooLong) this.deps.metrics.add('limit_hits_total', { limit: 'conversation_id' });
    return { id, hint: hintOf(headers) };
  }

  private depsOfExchange(): ExchangeDeps<Attempt, Decision> {
    const { runtime, metrics, words } = this.deps;
    return {
      nowMs: () => runtime.clock.nowMs(),
      post: (event) => this.post(event),
      words,
      room: this.room,
      metrics,
      keepAliveAfterMs: () => this.reloadable.keepAliveAfterMs,
      clientStallMs: () => this.reloadable.limits.clientStallMs,
      over: (exchange, record, level) => this.over(exchange, record, level),
    };
  }

  private post(event: RequestEvent): void {
    if (event.kind === 'attemptEnded') this.leases.delete(event.lease);
    this.deps.post(event);
  }

  private over(
    exchange: Exchange<Attempt, Decision>,
    record: RequestRecord,
    level: LogLevel,
  ): void {
    this.open.delete(exchange.id);
    this.deadlines.remove(exchange);
    logRequest(this.log, level, record);
    this.tellIdle();
  }

  private tellIdle(): void {
    if (this.openRequests > 0) return;
    const task = this.idleTask;
    this.idleTask = null;
    task?.();
  }

  private endUnsent(lease: LeaseId): void {
    this.post({ kind: 'attemptEnded', lease, result: { kind: 'clientGone' }, committed: false });
  }

  private countDecision(decision: Decision): void {
    const { kind, reason } = decision;
    this.deps.metrics.add('decisions_total', { kind, reason });
  }
}

/** The request as its tenant may ask for it. */
function granted(request: OpenAiRequest, tenant: Tenant): OpenAiRequest {
  const grant = grantOf(tenant, request.model);
  if (grant !== null)
    return grant.revisions === null ? request : { ...request, revisions: grant.revisions };
  // The same words as for a name that nobody serves: whether it exists is not this tenant's to know.
  const message = `The model \`${request.model}\` does not exist.`;
  throw new FleetError('model_not_found', message, { param: 'model' });
}

function factsOf(context: TierContext): TierFacts {
  const { from, seq, conversation, byId = null, away, awayForMs, zones } = context;
  return { from, seq, conversation, byId, away, awayForMs, zones };
}
