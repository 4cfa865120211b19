// The clients of a world: each conversation sends its turns one after the other, each turn's prompt extending the last
// turn's prompt and answer, with the user's time to think in between.

import type { RequestId } from '../../shared/model/ids.ts';
import type { Random } from '../../shared/lib/random.ts';
import type { Attempt } from '../../router/regional/events.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import type { ConversationPlan, Conversations, TurnPlan } from '../workloads/conversations.ts';
import { chainOf, tokenIdsOf, type Segment } from '../workloads/synthetic-prompt.ts';
import type { WorldContext } from './context.ts';
import type { Recorder, RequestRow } from './recorder.ts';
import type { RequestEnd } from './attempts.ts';
import type { RouterHost } from './router-host.ts';

export interface ClientsOptions {
  readonly name: string;
  readonly context: WorldContext;
  readonly recorder: Recorder;
  readonly routers: readonly RouterHost[];
  readonly conversations: Conversations;
  readonly model: string;
  readonly clientDeadlineMs: number | null;
  readonly priority: number;
  /** Tries of a turn that was refused or cut before the conversation is given up. */
  readonly tries: number;
}

interface Talk {
  readonly plan: ConversationPlan;
  readonly segments: Segment[];
  turn: number;
  tries: number;
  /** Tokens of the turn before, prompt and answer. */
  reusableTokens: number;
  readonly done: () => void;
}

export class Clients {
  readonly #options: ClientsOptions;
  readonly #random: Random;
  #requests = 0;
  #stopped = false;

  constructor(options: ClientsOptions) {
    this.#options = options;
    this.#random = options.context.stream(`${options.name}/clients`);
  }

  /** `count` conversations at any time: one that ends is replaced by a new one. */
  closedLoop(count: number, spreadMs: number): void {
    const { timeline } = this.#options.context;
    for (let index = 0; index < count; index++) {
      timeline.after(this.#random.next() * spreadMs, () => this.#another());
    }
  }

  /** Conversations that begin whether or not earlier ones are done; so many of them. */
  openLoop(conversationsPerS: number, count = Number.POSITIVE_INFINITY): void {
    if (count <= 0) return;
    const gapMs = this.#options.conversations.gapMs(conversationsPerS);
    this.#options.context.timeline.after(gapMs, () => {
      if (this.#stopped) return;
      this.#begin(() => {});
      this.openLoop(conversationsPerS, count - 1);
    });
  }

  /** `count` conversations that all begin now. */
  burst(count: number): void {
    for (let index = 0; index < count; index++) this.#begin(() => {});
  }

  /** No new conversation and no further turn begins. */
  stop(): void {
    this.#stopped = true;
  }

  #another(): void {
    if (!this.#stopped) this.#begin(() => this.#another());
  }

  #begin(done: () => void): void {
    const plan = this.#options.conversations.next();
    const segments = plan.system === null ? [] : [plan.system];
    this.#nextTurn({ plan, segments, turn: 0, tries: 0, reusableTokens: 0, done });
  }

  #nextTurn(talk: Talk): void {
    const turn = talk.plan.turns[talk.turn];
    if (this.#stopped || turn === undefined) return talk.done();
    talk.tries++;
    this.#send(talk, turn);
  }

  #send(talk: Talk, turn: TurnPlan): void {
    const { context, routers } = this.#options;
    const up = routers.filter((candidate) => candidate.up);
    const choices = up.length > 0 ? up : routers;
    const router = choices[Math.floor(this.#random.next() * choices.length)]!;
    const segments = [...talk.segments, turn.user];
    const tokenIds = tokenIdsOf(segments);
    const request = this.#request(talk, turn, segments);
    const row = this.#row(talk, router, tokenIds.length);
    let leaving: (() => void) | null = null;
    const listener = {
      attempt: (attempt: Attempt) => noteAttempt(row, attempt, context.timeline.nowMs),
      firstToken: () => {
        row.firstTokenMs = context.timeline.nowMs;
      },
      end: (end: RequestEnd) => {
        leaving?.();
        row.end = end;
        row.endedMs = context.timeline.nowMs;
        this.#ended(talk, turn, end);
      },
    };
    if (turn.abandonAfterMs !== null) {
      const planned = context.timeline.after(turn.abandonAfterMs, () =>
        router.clientGone(request.id),
      );
      leaving = () => context.timeline.cancel(planned);
    }
    const work = { tokenIds, answerIds: turn.answer.tokenIds, salt: talk.plan.tenant };
    router.arrive(request, work, listener);
  }

  #request(talk: Talk, turn: TurnPlan, segments: readonly Segment[]): RouteRequest {
    const { model, priority, clientDeadlineMs, name } = this.#options;
    const chain = chainOf(segments, Number(talk.plan.tenant.split('-')[1]));
    return {
      id: `${name}${this.#requests++}` as RequestId,
      tenant: talk.plan.tenant,
      model,
      stream: turn.streamed,
      priority,
      maxTokens: turn.answer.tokenIds.length,
      clientDeadlineMs,
      bodyBytes: chain.bytes,
      prompts: [chain],
    };
  }

  #row(talk: Talk, router: RouterHost, promptTokens: number): RequestRow {
    return this.#options.recorder.add({
      conversation: talk.plan.id,
      turn: talk.turn,
      router: router.name,
      arrivedMs: this.#options.context.timeline.nowMs,
      reusableTokens: talk.reusableTokens,
      promptTokens,
      replicas: [],
      queueMs: null,
      predictedTtftMs: null,
      predictedCachedTokens: null,
      predictedPromptTokens: null,
      sentMs: null,
      firstTokenMs: null,
      endedMs: null,
      end: null,
    });
  }

  #ended(talk: Talk, turn: TurnPlan, end: RequestEnd): void {
    const { timeline } = this.#options.context;
    if (end.kind === 'complete') {
      talk.segments.push(turn.user, turn.answer);
      talk.reusableTokens = end.usage.promptTokens + end.usage.completionTokens;
      talk.turn++;
      talk.tries = 0;
      timeline.after(turn.thinkMs, () => this.#nextTurn(talk));
      return;
    }
    const again = end.kind !== 'clientGone' && end.kind !== 'clientError';
    if (!again || talk.tries >= this.#options.tries) {
      timeline.after(turn.thinkMs, () => talk.done());
      return;
    }
    const waitMs = Math.max(500, (end.kind === 'refused' ? end.retryAfterMs : null) ?? 0);
    timeline.after(waitMs, () => this.#nextTurn(talk));
  }
}

function noteAttempt(row: RequestRow, attempt: Attempt, nowMs: number): void {
  row.replicas.push(attempt.target.replica);
  row.sentMs = nowMs;
  row.queueMs = attempt.queueMs;
  row.predictedTtftMs = attempt.predictedTtftMs;
  row.predictedCachedTokens = attempt.predictedCachedTokens;
  row.predictedPromptTokens = attempt.predictedPromptTokens;
}
