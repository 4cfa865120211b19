// A whole region as global routers reach it: real regional cores, agents and simulated engines. And a global router as
// clients of such worlds see it, in the place of a regional one.

import { ERRORS, type ErrorCode } from '../../shared/errors.ts';
import type { RegionId, RequestId } from '../../shared/model/ids.ts';
import type { AttemptResult } from '../../router/policy/attempt-result.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import type { RequestEnd as RegionEnd, RequestWork } from '../world/attempts.ts';
import type { RequestListener } from '../world/router-host.ts';
import type { World } from '../world/world.ts';
import type { GlobalHost, ReachedRegion, RegionAsk, RequestEnd } from './global-host.ts';

export class WholeRegion implements ReachedRegion {
  readonly id: RegionId;
  readonly rttMs: number;
  readonly world: World;
  #turn = 0;

  constructor(id: RegionId, rttMs: number, world: World) {
    this.id = id;
    this.rttMs = rttMs;
    this.world = world;
  }

  take({ attempt, asked, from, ...ask }: RegionAsk): () => void {
    const { routers } = this.world;
    this.#turn += 1;
    const router = routers[this.#turn % routers.length];
    const { work, listener } = asked;
    if (router === undefined || work === undefined) throw new Error(`${this.id}: nothing to do`);
    const { seq, conversation, away, awayForMs, zones } = attempt;
    const request = { ...asked.route, tier: { from, seq, conversation, away, awayForMs, zones } };
    router.arrive(request, work, {
      attempt: (inRegion) => listener?.attempt(inRegion),
      firstToken: () => ask.firstToken(),
      end: (end) => {
        const result = resultOf(end);
        ask.ended(result, end.kind === 'complete' || end.kind === 'interrupted');
      },
    });
    return () => router.clientGone(request.id);
  }
}

export class GlobalFront {
  readonly name: string;
  readonly up = true;
  readonly #host: GlobalHost;

  constructor(name: string, host: GlobalHost) {
    this.name = name;
    this.#host = host;
  }

  arrive(route: RouteRequest, work: RequestWork, listener: RequestListener): void {
    this.#host.ask({
      ...{ route, work, conversation: 0, promptTokens: work.tokenIds.length, answerTokens: 0 },
      listener: { ...listener, firstToken: () => listener.firstToken() },
      ended: (end) => listener.end(clientEnd(end)),
    });
  }

  clientGone(request: RequestId): void {
    this.#host.clientGone(request);
  }
}

/** As the HTTP answer of a region would say it. */
function resultOf(end: RegionEnd): AttemptResult {
  switch (end.kind) {
    case 'complete':
      return { kind: 'complete', usage: end.usage };
    case 'clientGone':
      return { kind: 'clientGone' };
    case 'clientError':
      return { kind: 'clientError', status: end.status };
    case 'interrupted':
      return { kind: 'serverFault', cause: 'error_event', detail: end.cause };
    case 'lost':
      return { kind: 'connectFailed', detail: 'the router is gone' };
    case 'refused':
      return refusal(end.code, end.retryAfterMs);
  }
}

function refusal(code: string, retryAfterMs: number | null): AttemptResult {
  const status = code in ERRORS ? ERRORS[code as ErrorCode].status : 500;
  if (status === 429 || status === 503) return { kind: 'backPressure', status, retryAfterMs };
  if (status < 500) return { kind: 'clientError', status };
  return { kind: 'serverFault', cause: 'status', detail: code };
}

function clientEnd({ kind, result, code, retryAfterMs }: RequestEnd): RegionEnd {
  if (kind === 'refused') {
    if (result?.kind === 'clientGone') return { kind: 'clientGone' };
    if (result?.kind === 'clientError') return { kind: 'clientError', status: result.status };
    return { kind: 'refused', code: code ?? '', retryAfterMs };
  }
  if (result?.kind === 'complete') {
    const nothing = { promptTokens: 0, cachedTokens: null, completionTokens: 0 };
    return { kind: 'complete', usage: result.usage ?? nothing };
  }
  return { kind: 'interrupted', cause: result?.kind ?? '' };
}
