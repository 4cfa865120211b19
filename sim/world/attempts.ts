// The attempts that a router's shell has open: calls to simulated engines, with the network's delay and the time-outs
// that the core asked for. Each attempt ends exactly once, at `ended`.

import type { LeaseId } from '../../shared/model/ids.ts';
import type { Usage } from '../../shared/protocol/messages.ts';
import type { AttemptResult } from '../../router/policy/attempt-result.ts';
import type { AbortReason } from '../../router/policy/request-events.ts';
import type { Attempt } from '../../router/regional/events.ts';
import type { WorldContext } from './context.ts';
import type { EngineEnd, EngineHost } from './engine-host.ts';
import type { Planned } from './timeline.ts';

/** What the engine is to compute for a request: routing never sees this. */
export interface RequestWork {
  readonly tokenIds: Uint32Array;
  /** The other prompts of a list: each is a request of its own to the engine, with an answer as long. */
  readonly others?: readonly Uint32Array[];
  /** One generated token each. */
  readonly answerIds: Uint32Array;
  readonly salt: string;
}

export interface AttemptEnd {
  readonly attempt: Attempt;
  readonly result: AttemptResult;
  readonly committed: boolean;
}

export interface AttemptsOptions {
  readonly context: WorldContext;
  /** ms from here to an engine. */
  readonly netMs: number;
  engineAt(url: string): EngineHost | null;
  firstToken(attempt: Attempt): void;
  firstTokenLate(lease: LeaseId): void;
  ended(end: AttemptEnd): void;
}

interface Running {
  readonly attempt: Attempt;
  readonly work: RequestWork;
  readonly streamed: boolean;
  readonly engine: EngineHost | null;
  committed: boolean;
  ended: boolean;
  timer: Planned | null;
}

export class Attempts {
  readonly #options: AttemptsOptions;
  readonly #running = new Map<LeaseId, Running>();

  constructor(options: AttemptsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#running.size;
  }

  begin(attempt: Attempt, request: { work: RequestWork; streamed: boolean }): void {
    const running: Running = {
      attempt,
      ...request,
      engine: this.#options.engineAt(attempt.url),
      committed: false,
      ended: false,
      timer: null,
    };
    this.#running.set(attempt.lease, running);
    this.extend(attempt.lease, attempt.firstTokenTimeoutMs);
    this.#travel(() => this.#dial(running));
  }

  /** The first token may take this much longer from now. */
  extend(lease: LeaseId, timeoutMs: number): void {
    const running = this.#running.get(lease);
    if (running === undefined || running.committed) return;
    const { timeline } = this.#options.context;
    timeline.cancel(running.timer);
    running.timer = timeline.after(timeoutMs, () => this.#options.firstTokenLate(lease));
  }

  abort(lease: LeaseId, reason: AbortReason): void {
    const running = this.#running.get(lease);
    if (running === undefined) throw new Error(`${lease}: an abort of nothing`);
    const result: AttemptResult =
      reason === 'client_gone'
        ? { kind: 'clientGone' }
        : { kind: 'serverFault', cause: reason, detail: 'given up' };
    this.#options.context.timeline.after(0, () => this.#end(running, result));
  }

  /** The router dies: engines see closed sockets, nobody hears of an end. */
  drop(): void {
    for (const running of this.#running.values()) this.#hangUp(running);
    this.#running.clear();
  }

  #dial(running: Running): void {
    if (running.ended) return;
    const { attempt, engine, work } = running;
    if (engine === null || engine.unreachable) {
      const waitMs = engine === null ? 0 : attempt.connectTimeoutMs;
      this.#options.context.timeline.after(waitMs, () =>
        this.#end(running, { kind: 'connectFailed', detail: 'no connection' }),
      );
      return;
    }
    const { answerIds, salt } = work;
    const ends: EngineEnd[] = [];
    for (const { id, tokenIds } of partsOf(running)) {
      engine.call({
        ...{ id, tokenIds, answerIds, salt },
        rank: attempt.target.rank,
        firstToken: () => this.#travel(() => this.#firstToken(running)),
        end: (end) => this.#travel(() => this.#partEnded(running, ends, end)),
      });
    }
  }

  /** The answer is whole when all parts have ended; the first that fails fails it. */
  #partEnded(running: Running, ends: EngineEnd[], end: EngineEnd): void {
    ends.push(end);
    if (end.kind !== 'complete') this.#end(running, resultOf(end));
    else if (ends.length > (running.work.others?.length ?? 0)) this.#end(running, wholeOf(ends));
  }

  #firstToken(running: Running): void {
    if (running.ended || running.committed || !running.streamed) return;
    running.committed = true;
    this.#armStall(running, running.attempt.stallTimeoutMs);
    this.#options.firstToken(running.attempt);
  }

  /** Looks at the engine's progress when the time-out could first have passed. */
  #armStall(running: Running, inMs: number): void {
    const { timeline } = this.#options.context;
    timeline.cancel(running.timer);
    running.timer = timeline.after(inMs, () => {
      const quietMs = timeline.nowMs - lastTokenMs(running);
      const leftMs = running.attempt.stallTimeoutMs - quietMs;
      if (leftMs > 0.001) this.#armStall(running, leftMs);
      else this.#end(running, { kind: 'serverFault', cause: 'stall', detail: 'no token' });
    });
  }

  #end(running: Running, result: AttemptResult): void {
    if (running.ended) return;
    if (result.kind !== 'complete') this.#hangUp(running);
    running.ended = true;
    this.#options.context.timeline.cancel(running.timer);
    const { attempt, committed } = running;
    this.#running.delete(attempt.lease);
    this.#options.ended({ attempt, result, committed });
  }

  #hangUp(running: Running): void {
    running.ended = true;
    this.#options.context.timeline.cancel(running.timer);
    this.#travel(() => {
      for (const { id } of partsOf(running)) running.engine?.abort(id);
    });
  }

  #travel(task: () => void): void {
    this.#options.context.timeline.after(this.#options.netMs, task);
  }
}

/** The calls to the engine that an attempt is. */
function partsOf({ attempt, work }: Running): { id: string; tokenIds: Uint32Array }[] {
  const others = (work.others ?? []).map((tokenIds, k) => ({
    id: `${attempt.lease}/${k + 1}`,
    tokenIds,
  }));
  return [{ id: attempt.lease, tokenIds: work.tokenIds }, ...others];
}

function lastTokenMs(running: Running): number {
  return Math.max(...partsOf(running).map(({ id }) => running.engine?.lastTokenMs(id) ?? 0));
}

function wholeOf(ends: readonly EngineEnd[]): AttemptResult {
  const usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
  for (const end of ends) {
    if (end.kind !== 'complete') continue;
    usage.promptTokens += end.usage.promptTokens;
    usage.cachedTokens += end.usage.cachedTokens ?? 0;
    usage.completionTokens += end.usage.completionTokens;
  }
  return { kind: 'complete', usage };
}

function resultOf(end: EngineEnd): AttemptResult {
  switch (end.kind) {
    case 'complete':
      return { kind: 'complete', usage: end.usage };
    case 'refused':
      return { kind: 'connectFailed', detail: 'refused' };
    case 'clientError':
      return { kind: 'clientError', status: end.status };
    case 'failed':
      return { kind: 'serverFault', cause: end.cause, detail: 'by the engine' };
  }
}

export type RequestEnd =
  | { readonly kind: 'complete'; readonly usage: Usage }
  | { readonly kind: 'refused'; readonly code: string; readonly retryAfterMs: number | null }
  /** After the first token: the client sees an error event. */
  | { readonly kind: 'interrupted'; readonly cause: string }
  | { readonly kind: 'clientError'; readonly status: number }
  | { readonly kind: 'clientGone' }
  /** The router itself went away. */
  | { readonly kind: 'lost' };

/** How the request ends with this attempt; null where the core has to place it again. */
export function requestEndOf({ result, committed }: AttemptEnd): RequestEnd | null {
  if (result.kind === 'complete') {
    return {
      kind: 'complete',
      usage: result.usage ?? { promptTokens: 0, cachedTokens: null, completionTokens: 0 },
    };
  }
  if (result.kind === 'clientGone') return { kind: 'clientGone' };
  if (result.kind === 'clientError') return { kind: 'clientError', status: result.status };
  if (!committed) return null;
  return { kind: 'interrupted', cause: result.kind === 'serverFault' ? result.cause : result.kind };
}
