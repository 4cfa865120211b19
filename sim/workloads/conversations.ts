// What clients say to a model: conversations whose turns extend one another, some behind a system prompt that many
// share. Everything is drawn from one seeded source, so a workload can be repeated beside another policy.

import type { Random } from '../../shared/lib/random.ts';
import { scramble, segmentOf, type Segment } from './synthetic-prompt.ts';

/** Drawn uniformly between both, inclusive where whole. */
export type Range = readonly [least: number, most: number];

export interface ConversationShape {
  /** Tokens of a system prompt that conversations share; 0 = none. */
  readonly systemTokens: number;
  /** Distinct system prompts. */
  readonly systemPrompts: number;
  /** Share of the conversations that begin with one. */
  readonly systemShare: number;
  readonly firstTokens: Range;
  readonly turnTokens: Range;
  readonly answerTokens: Range;
  readonly turns: Range;
  /** ms from the end of an answer to the next turn. */
  readonly thinkMs: Range;
  readonly streamShare: number;
  /** Share of the requests that the client leaves before they end. */
  readonly abandonShare: number;
  /** ms after which such a client leaves. */
  readonly abandonAfterMs: Range;
  readonly bytesPerToken: number;
  readonly tenants: number;
}

export const CHAT_SHAPE: ConversationShape = {
  systemTokens: 0,
  systemPrompts: 1,
  systemShare: 0,
  firstTokens: [200, 3_000],
  turnTokens: [30, 400],
  answerTokens: [20, 200],
  turns: [1, 8],
  thinkMs: [500, 8_000],
  streamShare: 1,
  abandonShare: 0,
  abandonAfterMs: [10, 2_000],
  bytesPerToken: 4.3,
  tenants: 1,
};

export interface TurnPlan {
  readonly user: Segment;
  readonly answer: Segment;
  readonly thinkMs: number;
  readonly streamed: boolean;
  readonly abandonAfterMs: number | null;
}

export interface ConversationPlan {
  readonly id: number;
  readonly tenant: string;
  /** The shared prompt it begins with. */
  readonly system: Segment | null;
  readonly turns: readonly TurnPlan[];
}

export class Conversations {
  readonly #shape: ConversationShape;
  readonly #random: Random;
  readonly #systems: readonly Segment[];
  readonly #salt: number;
  #count = 0;

  constructor(shape: ConversationShape, random: Random) {
    this.#shape = shape;
    this.#random = random;
    this.#salt = Math.floor(random.next() * 2 ** 32);
    const tokens = shape.systemTokens;
    this.#systems = Array.from({ length: tokens > 0 ? shape.systemPrompts : 0 }, () =>
      this.#segment(tokens, false),
    );
  }

  next(): ConversationPlan {
    const { systemShare, turns, tenants } = this.#shape;
    const shares = this.#random.next() < systemShare;
    const system = shares ? this.#systems[this.#below(this.#systems.length)] : undefined;
    const length = this.#whole(turns);
    return {
      id: this.#count++,
      tenant: `tenant-${this.#below(tenants)}`,
      system: system ?? null,
      turns: Array.from({ length }, (_, index) => this.#turn(index === 0)),
    };
  }

  /** ms to the next conversation of an open loop: exponential. */
  gapMs(conversationsPerS: number): number {
    return (-Math.log(1 - this.#random.next()) * 1_000) / conversationsPerS;
  }

  #turn(first: boolean): TurnPlan {
    const shape = this.#shape;
    const leaves = this.#random.next() < shape.abandonShare;
    return {
      user: this.#segment(this.#whole(first ? shape.firstTokens : shape.turnTokens), false),
      answer: this.#segment(this.#whole(shape.answerTokens), true),
      thinkMs: this.#between(shape.thinkMs),
      streamed: this.#random.next() < shape.streamShare,
      abandonAfterMs: leaves ? this.#between(shape.abandonAfterMs) : null,
    };
  }

  #segment(tokens: number, assistant: boolean): Segment {
    const id = scramble(this.#salt ^ Math.floor(this.#random.next() * 2 ** 32));
    return segmentOf({ id, tokens, bytesPerToken: this.#shape.bytesPerToken, assistant });
  }

  #between(range: Range): number {
    return range[0] + (range[1] - range[0]) * this.#random.next();
  }

  #whole(range: Range): number {
    return Math.floor(range[0] + (range[1] - range[0] + 1) * this.#random.next());
  }

  #below(count: number): number {
    return Math.floor(this.#random.next() * count);
  }
}
