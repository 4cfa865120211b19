// Clients that know an engine's own address: their requests pass no router, so no ledger hears of them.

import type { Random } from '../../shared/lib/random.ts';
import { segmentOf } from '../workloads/synthetic-prompt.ts';
import type { Range } from '../workloads/conversations.ts';
import type { WorldContext } from './context.ts';
import type { EngineHost } from './engine-host.ts';

export interface ForeignShape {
  /** Drawn uniformly between both. */
  readonly promptTokens: Range;
  readonly answerTokens: Range | number;
  readonly rank?: number;
}

export class ForeignClients {
  readonly #context: WorldContext;
  readonly #engine: EngineHost;
  readonly #shape: ForeignShape;
  readonly #random: Random;
  readonly #open = new Set<string>();
  #sent = 0;
  #stopped = false;

  constructor(context: WorldContext, engine: EngineHost, shape: ForeignShape) {
    this.#context = context;
    this.#engine = engine;
    this.#shape = shape;
    this.#random = context.stream(`foreign/${engine.replica}/${shape.rank ?? 0}`);
  }

  /** Requests inside the engine. */
  get open(): number {
    return this.#open.size;
  }

  /** `count` requests at any time, the first ones spread over `spreadMs`. */
  closedLoop(count: number, spreadMs: number): void {
    for (let index = 0; index < count; index++) {
      this.#context.timeline.after(this.#random.next() * spreadMs, () => this.#send());
    }
  }

  /** No further request; those under way go on. */
  stop(): void {
    this.#stopped = true;
  }

  /** Everybody hangs up. */
  leave(): void {
    this.stop();
    for (const id of this.#open) this.#engine.abort(id);
    this.#open.clear();
  }

  #between(range: Range | number): number {
    if (typeof range === 'number') return range;
    const [least, most] = range;
    return Math.floor(least + (most - least) * this.#random.next());
  }

  #send(): void {
    if (this.#stopped) return;
    const { promptTokens, answerTokens, rank } = this.#shape;
    const tokens = this.#between(promptTokens);
    const id = `foreign/${this.#engine.replica}/${rank ?? 0}/${this.#sent++}`;
    const seed = Math.floor(this.#random.next() * 2 ** 32);
    this.#open.add(id);
    this.#engine.call({
      id,
      tokenIds: segmentOf({ id: seed, tokens, bytesPerToken: 4, assistant: false }).tokenIds,
      answerIds: new Uint32Array(this.#between(answerTokens)),
      salt: 'foreign',
      rank: rank ?? 0,
      firstToken: () => {},
      end: () => {
        this.#open.delete(id);
        this.#context.timeline.after(1, () => this.#send());
      },
    });
  }
}
