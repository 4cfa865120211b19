// Random faults for a world, each healed after a while, so that a run ends with everything up again.

import type { Random } from '../../shared/lib/random.ts';
import type { World } from './world.ts';

export type Fault =
  | 'engineCrash'
  | 'coreDeath'
  | 'engineFreeze'
  | 'engineSlow'
  | 'engineUnreachable'
  | 'linkCut'
  | 'linkHold'
  | 'agentRestart'
  | 'routerRestart';

export interface FaultPlan {
  readonly kinds: readonly Fault[];
  /** Mean ms between two. */
  readonly everyMs: number;
  /** ms until one is healed, drawn uniformly up to this. */
  readonly lastMs: number;
  /** Instant of the last one. */
  readonly untilMs: number;
}

const SLOWEST = 6;

export class Faults {
  /** How many of each kind there were. */
  readonly counts = new Map<Fault, number>();
  readonly #world: World;
  readonly #plan: FaultPlan;
  readonly #random: Random;

  constructor(world: World, plan: FaultPlan) {
    this.#world = world;
    this.#plan = plan;
    this.#random = world.context.stream('faults');
    this.#next();
  }

  #next(): void {
    const { timeline } = this.#world.context;
    timeline.after(2 * this.#plan.everyMs * this.#random.next(), () => {
      if (timeline.nowMs >= this.#plan.untilMs) return;
      const kind = this.#pick(this.#plan.kinds);
      this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1);
      this.#strike(kind, this.#plan.lastMs * this.#random.next());
      this.#next();
    });
  }

  #strike(kind: Fault, forMs: number): void {
    switch (kind) {
      case 'engineCrash':
      case 'coreDeath':
        return this.#down(kind, forMs);
      case 'engineFreeze':
        return this.#freeze(forMs);
      case 'engineSlow':
        return this.#slow(forMs);
      case 'engineUnreachable':
        return this.#cutOff(forMs);
      case 'linkCut':
      case 'linkHold':
        return this.#link(kind, forMs);
      case 'agentRestart':
      case 'routerRestart':
        return this.#restart(kind, forMs);
    }
  }

  #down(kind: 'engineCrash' | 'coreDeath', forMs: number): void {
    const engine = this.#pick(this.#world.engines);
    if (engine.model.phase !== 'serving') return;
    if (kind === 'coreDeath') engine.killCore();
    else engine.crash();
    this.#heal(forMs, () => engine.restart());
  }

  #freeze(forMs: number): void {
    const engine = this.#pick(this.#world.engines);
    engine.freeze();
    this.#heal(forMs, () => engine.thaw());
  }

  #slow(forMs: number): void {
    const { models } = this.#pick(this.#world.engines);
    const factor = 1.5 + SLOWEST * this.#random.next();
    for (const model of models) model.slow(factor);
    this.#heal(forMs, () => {
      for (const model of models) model.slow(1);
    });
  }

  #cutOff(forMs: number): void {
    const engine = this.#pick(this.#world.engines);
    engine.unreachable = true;
    this.#heal(forMs, () => {
      engine.unreachable = false;
    });
  }

  #link(kind: 'linkCut' | 'linkHold', forMs: number): void {
    const { links } = this.#pick(this.#world.agents);
    if (links.length === 0) return;
    const link = this.#pick(links);
    if (kind === 'linkCut') return link.cut();
    link.hold(this.#random.next() < 0.5 ? 'up' : 'down');
    this.#heal(forMs, () => link.release());
  }

  #restart(kind: 'agentRestart' | 'routerRestart', forMs: number): void {
    const host = this.#pick<{ start(): void; stop(): void; readonly up: boolean }>(
      kind === 'agentRestart' ? this.#world.agents : this.#world.routers,
    );
    if (!host.up) return;
    host.stop();
    this.#heal(forMs, () => host.start());
  }

  #heal(forMs: number, task: () => void): void {
    this.#world.context.timeline.after(forMs, task);
  }

  #pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.#random.next() * items.length)]!;
  }
}
