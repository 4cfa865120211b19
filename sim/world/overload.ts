// More work than a pool can do, in several routers at once, and what an observer who sees all queues says of the order
// in which it is released. Single requests, so that nothing but the queue decides who goes first.

import type { Random } from '../../shared/lib/random.ts';
import type { RequestId } from '../../shared/model/ids.ts';
import type { RequestWork as WorkKind } from '../../router/policy/request-work.ts';
import { chainOf, segmentOf } from '../workloads/synthetic-prompt.ts';
import type { Range } from '../workloads/conversations.ts';
import type { RequestEnd } from './attempts.ts';
import type { RouterHost } from './router-host.ts';
import { WORLD_MODEL, type World } from './world.ts';

/** Requests of one kind that come whether or not earlier ones are answered. */
export interface Flow {
  readonly name: string;
  readonly perS: number;
  readonly promptTokens: Range;
  readonly answerTokens: Range;
  readonly priority?: number;
  readonly tenant?: string;
  readonly streamed?: boolean;
  readonly work?: WorkKind;
  readonly clientDeadlineMs?: number;
  /** Of these the request's is drawn; all of the world's unless given. */
  readonly routers?: readonly RouterHost[];
  /** Tries, the first included: a refused one comes back exactly after its `Retry-After`. */
  readonly tries?: number;
  /** Its clients do not say that they come again. */
  readonly unmarked?: boolean;
}

export interface FlowRow {
  readonly flow: Flow;
  readonly router: string;
  readonly promptTokens: number;
  readonly arrivedMs: number;
  /** 1 for the first. */
  readonly tryNumber: number;
  prefillMs: number | null;
  sentMs: number | null;
  firstTokenMs: number | null;
  endedMs: number | null;
  end: RequestEnd | null;
}

export class FlowClients {
  readonly rows: FlowRow[] = [];
  readonly #world: World;
  readonly #random: Random;
  #sent = 0;
  #stopped = false;

  constructor(world: World) {
    this.#world = world;
    this.#random = world.context.stream('flows');
  }

  start(...flows: readonly Flow[]): void {
    for (const flow of flows) this.#next(flow);
  }

  /** `count` of them now. */
  burst(flow: Flow, count: number): void {
    for (let k = 0; k < count; k += 1) this.#draw(flow);
  }

  /** Nothing more comes, not even those that were told to come back. */
  stop(): void {
    this.#stopped = true;
  }

  #next(flow: Flow): void {
    const gapMs = (-Math.log(1 - this.#random.next()) * 1_000) / flow.perS;
    this.#world.context.timeline.after(gapMs, () => {
      if (this.#stopped) return;
      this.#draw(flow);
      this.#next(flow);
    });
  }

  #draw(flow: Flow): void {
    const tokens = this.#between(flow.promptTokens);
    const answer = this.#between(flow.answerTokens);
    const seed = Math.floor(this.#random.next() * 2 ** 32);
    this.#send(flow, { tokens, answer, seed, tryNumber: 1 });
  }

  #send(
    flow: Flow,
    drawn: { tokens: number; answer: number; seed: number; tryNumber: number },
  ): void {
    const { timeline } = this.#world.context;
    const up = (flow.routers ?? this.#world.routers).filter((router) => router.up);
    const router = up[Math.floor(this.#random.next() * up.length)];
    if (router === undefined) return;
    const { tokens, answer, seed, tryNumber } = drawn;
    const segment = segmentOf({ id: seed, tokens, bytesPerToken: 4, assistant: false });
    const tenant = flow.tenant ?? 'tenant';
    const row: FlowRow = {
      flow,
      router: router.name,
      promptTokens: tokens,
      arrivedMs: timeline.nowMs,
      tryNumber,
      prefillMs: null,
      sentMs: null,
      firstTokenMs: null,
      endedMs: null,
      end: null,
    };
    this.rows.push(row);
    const request = {
      id: `flow${this.#sent++}` as RequestId,
      tenant,
      model: WORLD_MODEL,
      stream: flow.streamed ?? true,
      priority: flow.priority ?? 0,
      maxTokens: answer,
      clientDeadlineMs: flow.clientDeadlineMs ?? null,
      comesAgain: tryNumber > 1 && flow.unmarked !== true,
      bodyBytes: 4 * tokens,
      prompts: [chainOf([segment], 7)],
      ...(flow.work === undefined ? {} : { work: flow.work }),
    };
    const work = { tokenIds: segment.tokenIds, answerIds: new Uint32Array(answer), salt: tenant };
    router.arrive(request, work, {
      attempt: ({ prefillMs }) => {
        row.sentMs ??= timeline.nowMs;
        row.prefillMs ??= prefillMs;
      },
      firstToken: () => {
        row.firstTokenMs = timeline.nowMs;
      },
      end: (end) => {
        row.end = end;
        row.endedMs = timeline.nowMs;
        if (end.kind !== 'refused' || tryNumber >= (flow.tries ?? 1)) return;
        timeline.after(end.retryAfterMs ?? 1_000, () => {
          if (!this.#stopped) this.#send(flow, { ...drawn, tryNumber: tryNumber + 1 });
        });
      },
    });
  }

  #between([least, most]: Range): number {
    return Math.floor(least + (most - least + 1) * this.#random.next());
  }
}

/** When a row left the queue, one way or another. */
function leftMs(row: FlowRow): number {
  return row.sentMs ?? row.endedMs ?? Number.POSITIVE_INFINITY;
}

export interface Inversion {
  readonly urgent: FlowRow;
  readonly other: FlowRow;
}

/**
 * Releases of less urgent requests while a more urgent one had been waiting in another router for longer than `knownMs`.
 */
export function inversions(rows: readonly FlowRow[], knownMs: number): Inversion[] {
  const found: Inversion[] = [];
  const released = rows.filter((row) => row.sentMs !== null);
  for (const urgent of rows) {
    const priority = urgent.flow.priority ?? 0;
    const until = leftMs(urgent);
    for (const other of released) {
      if ((other.flow.priority ?? 0) <= priority || other.router === urgent.router) continue;
      const at = other.sentMs as number;
      if (at > urgent.arrivedMs + knownMs && at < until) {
        found.push({ urgent, other });
        break;
      }
    }
  }
  return found;
}

/**
 * The longest time, beyond prefill / ageCredit, by which a request came later than one of its priority and tenant and
 * was released before it.
 */
export function overtakenByMs(rows: readonly FlowRow[], ageCredit: number): number {
  const released = rows
    .filter((row) => row.sentMs !== null)
    .sort((a, b) => (a.sentMs as number) - (b.sentMs as number));
  let worst = Number.NEGATIVE_INFINITY;
  for (const [at, row] of released.entries()) {
    for (const earlier of released.slice(Math.max(0, at - 400), at)) {
      if ((earlier.flow.priority ?? 0) !== (row.flow.priority ?? 0)) continue;
      if (earlier.flow.tenant !== row.flow.tenant) continue;
      const at = earlier.sentMs as number;
      if (at < row.arrivedMs || at === row.sentMs) continue;
      const mayMs = ((row.prefillMs ?? 0) - (earlier.prefillMs ?? 0)) / ageCredit;
      worst = Math.max(worst, earlier.arrivedMs - row.arrivedMs - mayMs);
    }
  }
  return worst;
}

export interface Watch {
  /** Looks, and of those with something queued and a replica without prefill for longer than `interval`. */
  looks: number;
  /** Share of looks × engines with nothing in prefill although something waited in a router. */
  idleLooks: number;
  /** Longest such time of one engine, ms. */
  longestIdleMs: number;
  /** Waiting prefill above the hold, ms, of each look and engine. */
  readonly overMs: number[];
}

/** Looks every `everyMs` at all engines and queues. */
export function watch(
  world: World,
  options: { everyMs: number; forMs: number; holdMs: number },
): Watch {
  const seen: Watch = { looks: 0, idleLooks: 0, longestIdleMs: 0, overMs: [] };
  const idleSince = world.engines.map(() => Number.POSITIVE_INFINITY);
  for (let left = options.forMs; left > 0; left -= options.everyMs) {
    world.run(options.everyMs);
    const queued = world.routers.some((router) => router.up && router.queued > 0);
    for (const [k, engine] of world.engines.entries()) {
      const { waitingPrefillMs } = engine.truth;
      seen.looks += 1;
      if (waitingPrefillMs > 0 || !queued) {
        idleSince[k] = Number.POSITIVE_INFINITY;
      } else {
        seen.idleLooks += 1;
        idleSince[k] = Math.min(idleSince[k] as number, world.nowMs);
        seen.longestIdleMs = Math.max(seen.longestIdleMs, world.nowMs - (idleSince[k] as number));
      }
      seen.overMs.push(waitingPrefillMs - options.holdMs);
    }
  }
  return seen;
}

export interface Return {
  readonly row: FlowRow;
  readonly toldMs: number;
  /**
   * Until it would have found room had all that came before it been taken in the order of its coming, ms: what a queue
   * without a limit would hold before it, less what may wait.
   */
  readonly neededMs: number;
}

/** Of the first tries that were turned away at once, what each was told, beside what would have done. */
export function returnsOf(
  rows: readonly FlowRow[],
  pool: { readonly tokensPerMs: number; readonly limitMs: number },
): Return[] {
  const found: Return[] = [];
  let waitMs = 0;
  let atMs = 0;
  for (const row of rows.filter(({ tryNumber }) => tryNumber === 1)) {
    waitMs = Math.max(0, waitMs - (row.arrivedMs - atMs));
    atMs = row.arrivedMs;
    if (row.end?.kind === 'refused' && row.endedMs === row.arrivedMs) {
      const neededMs = Math.max(1_000, waitMs - pool.limitMs);
      found.push({ row, toldMs: row.end.retryAfterMs ?? 0, neededMs });
    }
    waitMs += row.promptTokens / pool.tokensPerMs;
  }
  return found;
}
