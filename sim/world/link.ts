// One connection between an agent and a router in virtual time: each direction keeps its order, different
// connections reorder freely.
//
// A cut loses a random tail of what is on its way in each direction, and everything sent afterwards; each end hears of
// it after what still arrives. A held direction delivers nothing until it is released, and then all in order.

import type { Random } from '../../shared/lib/random.ts';
import type { LinkId } from '../../shared/model/ids.ts';
import type { AgentMessage, RouterMessage } from '../../shared/protocol/messages.ts';
import type { Timeline } from './timeline.ts';

export interface LinkTiming {
  readonly delayMs: number;
  /** Added uniformly from 0 to this. */
  readonly jitterMs: number;
  /** What an agent sends is so much later on top, ms: its reports are that old when they arrive. */
  readonly reportsLateMs?: number;
}

/** What a message becomes on its way: the identity, or there and back through the real codec. */
export interface Wire {
  agentMessage(message: AgentMessage): AgentMessage;
  routerMessage(message: RouterMessage): RouterMessage;
}

export interface LinkEnds {
  toAgent(message: RouterMessage): void;
  toRouter(message: AgentMessage): void;
  agentDown(): void;
  routerDown(): void;
}

export interface LinkOptions {
  readonly id: LinkId;
  readonly timeline: Timeline;
  readonly timing: LinkTiming;
  readonly random: Random;
  readonly wire: Wire | null;
  readonly ends: LinkEnds;
}

export class VirtualLink {
  readonly id: LinkId;
  readonly #down: Direction<RouterMessage>;
  readonly #up: Direction<AgentMessage>;
  readonly #wire: Wire | null;

  constructor(options: LinkOptions) {
    this.id = options.id;
    this.#wire = options.wire;
    const { ends, timing } = options;
    const upMs = timing.delayMs + (timing.reportsLateMs ?? 0);
    this.#up = new Direction(
      { ...options, timing: { ...timing, delayMs: upMs } },
      (m) => ends.toRouter(m),
      () => ends.routerDown(),
    );
    this.#down = new Direction(
      options,
      (m) => ends.toAgent(m),
      () => ends.agentDown(),
    );
  }

  get open(): boolean {
    return this.#up.open;
  }

  fromAgent(message: AgentMessage): void {
    this.#up.send(this.#wire === null ? message : this.#wire.agentMessage(message));
  }

  fromRouter(message: RouterMessage): void {
    this.#down.send(this.#wire === null ? message : this.#wire.routerMessage(message));
  }

  /** Both directions end; an end that closes in good order (`loses` false) loses nothing of what it has sent. */
  cut(loses = true): void {
    this.#up.cut(loses);
    this.#down.cut(loses);
  }

  hold(direction: 'up' | 'down'): void {
    if (direction === 'up') this.#up.hold();
    else this.#down.hold();
  }

  release(): void {
    this.#up.release();
    this.#down.release();
  }
}

/** Items leave in the order they came; an item that has arrived waits while the direction is held. */
class Direction<Message> {
  open = true;
  readonly #options: LinkOptions;
  readonly #deliver: (message: Message) => void;
  readonly #closed: () => void;
  /** Sent and not delivered, oldest first. */
  readonly #items: (() => void)[] = [];
  /** Of those, how many have arrived. */
  #arrived = 0;
  #held = false;
  #lastAtMs = 0;

  constructor(options: LinkOptions, deliver: (message: Message) => void, closed: () => void) {
    this.#options = options;
    this.#deliver = deliver;
    this.#closed = closed;
  }

  send(message: Message): void {
    if (this.open) this.#plan(() => this.#deliver(message));
  }

  cut(loses: boolean): void {
    if (!this.open) return;
    this.open = false;
    if (loses) {
      const flying = this.#items.length - this.#arrived;
      const kept = this.#arrived + Math.floor(this.#options.random.next() * (flying + 1));
      this.#items.length = kept;
    }
    this.release();
    this.#plan(() => this.#closed());
  }

  hold(): void {
    this.#held = true;
  }

  release(): void {
    this.#held = false;
    if (this.#arrived > 0) this.#options.timeline.after(0, () => this.#drain());
  }

  #plan(item: () => void): void {
    const { timeline, timing, random } = this.#options;
    const atMs = timeline.nowMs + timing.delayMs + timing.jitterMs * random.next();
    this.#lastAtMs = Math.max(this.#lastAtMs, atMs);
    this.#items.push(item);
    timeline.at(this.#lastAtMs, () => {
      this.#arrived = Math.min(this.#arrived + 1, this.#items.length);
      this.#drain();
    });
  }

  #drain(): void {
    while (!this.#held && this.#arrived > 0) {
      this.#arrived--;
      this.#items.shift()?.();
    }
  }
}
