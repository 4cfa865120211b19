// One connection between an agent and a router in virtual time: each direction keeps its order, different
// connections reorder freely.
//
// A cut loses a random tail of what is on its way in each direction, and everything sent afterwards; each end hears of
// it after what still arrives. A held direction delivers nothing until it is released, and then all in order.

import type { Random } from '../../shared/lib/random.ts';
import type { LinkId } from '../../shared/model/ids.ts';
import type { AgentMessage, RouterMessage } from '../../shared/protocol/messages.ts';
import type { Planned, Timeline } from './timeline.ts';

export interface LinkTiming {
  readonly delayMs: number;
  /** Added uniformly from 0 to this. */
  readonly jitterMs: number;
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
    const { ends } = options;
    this.#up = new Direction(options, (m) => ends.toRouter(m), () => ends.routerDown());
    this.#down = new Direction(options, (m) => ends.toAgent(m), () => ends.agentDown());
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

class Direction<Message> {
  open = true;
  readonly #options: LinkOptions;
  readonly #deliver: (message: Message) => void;
  readonly #closed: () => void;
  /** On their way, oldest first. */
  #flying: Planned[] = [];
  /** Kept back while held. */
  #kept: (() => void)[] | null = null;
  #lastAtMs = 0;

  constructor(options: LinkOptions, deliver: (message: Message) => void, closed: () => void) {
    this.#options = options;
    this.#deliver = deliver;
    this.#closed = closed;
  }

  send(message: Message): void {
    if (!this.open) return;
    this.#plan(() => this.#deliver(message));
  }

  cut(loses: boolean): void {
    if (!this.open) return;
    this.open = false;
    this.release();
    this.#flying = this.#flying.filter((planned) => planned.task !== null);
    if (loses) {
      const kept = Math.floor(this.#options.random.next() * (this.#flying.length + 1));
      for (const lost of this.#flying.splice(kept)) this.#options.timeline.cancel(lost);
      this.#lastAtMs = this.#flying.at(-1)?.atMs ?? 0;
    }
    this.#plan(() => this.#closed());
  }

  hold(): void {
    this.#kept ??= [];
  }

  release(): void {
    const kept = this.#kept;
    this.#kept = null;
    for (const task of kept ?? []) this.#plan(task);
  }

  #plan(task: () => void): void {
    const { timeline, timing, random } = this.#options;
    const atMs = timeline.nowMs + timing.delayMs + timing.jitterMs * random.next();
    this.#lastAtMs = Math.max(this.#lastAtMs, atMs);
    const arrive = (): void => {
      if (this.#kept === null) task();
      else this.#kept.push(task);
    };
    this.#flying.push(timeline.at(this.#lastAtMs, arrive));
    if (this.#flying.length > 64) {
      this.#flying = this.#flying.filter((planned) => planned.task !== null);
    }
  }
}
