// Clients that send lists of prompts in one request each: to a router one attempt, to the engine as many requests.

import type { RequestId } from '../../shared/model/ids.ts';
import type { Random } from '../../shared/lib/random.ts';
import { chainOf, segmentOf, type Segment } from '../workloads/synthetic-prompt.ts';
import type { WorldContext } from './context.ts';
import type { RouterHost } from './router-host.ts';

export interface BatchShape {
  readonly model: string;
  readonly prompts: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  readonly streamed: boolean;
}

export class BatchClients {
  readonly #context: WorldContext;
  readonly #routers: readonly RouterHost[];
  readonly #shape: BatchShape;
  readonly #random: Random;
  #sent = 0;

  constructor(context: WorldContext, routers: readonly RouterHost[], shape: BatchShape) {
    this.#context = context;
    this.#routers = routers;
    this.#shape = shape;
    this.#random = context.stream('batches');
  }

  /** `count` lists at any time, the first ones spread over `spreadMs`. */
  closedLoop(count: number, spreadMs: number): void {
    for (let index = 0; index < count; index++) {
      this.#context.timeline.after(this.#random.next() * spreadMs, () => this.#send());
    }
  }

  #send(): void {
    const { model, prompts, answerTokens, streamed } = this.#shape;
    const segments = Array.from({ length: prompts }, () => this.#prompt());
    const [first, ...others] = segments.map(({ tokenIds }) => tokenIds);
    const request = {
      id: `batch${this.#sent++}` as RequestId,
      tenant: 'batches',
      model,
      stream: streamed,
      priority: 0,
      maxTokens: answerTokens,
      clientDeadlineMs: null,
      bodyBytes: 0,
      prompts: segments.map((segment) => chainOf([segment], 7)),
    };
    const work = {
      tokenIds: first ?? new Uint32Array(1),
      others,
      answerIds: new Uint32Array(answerTokens),
      salt: 'batches',
    };
    const router = this.#routers[this.#sent % this.#routers.length];
    router?.arrive(request, work, {
      attempt: () => {},
      firstToken: () => {},
      end: () => this.#context.timeline.after(50, () => this.#send()),
    });
  }

  #prompt(): Segment {
    const id = Math.floor(this.#random.next() * 2 ** 32);
    const tokens = this.#shape.promptTokens;
    return segmentOf({ id, tokens, bytesPerToken: 4, assistant: false });
  }
}
