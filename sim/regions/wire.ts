// A link between a router of a region and a global router in virtual time: both directions keep their order, each with
// its own delay; what is on the way when it is cut is lost, and both ends hear of the cut.

import type { LinkId } from '../../shared/model/ids.ts';
import type {
  RegionChildMessage,
  RegionParentMessage,
} from '../../shared/protocol/region-messages.ts';
import type { Timeline } from '../world/timeline.ts';

export interface WireDelays {
  /** From the region to the global router, ms: how late reports and grants are. */
  readonly upMs: number;
  readonly downMs: number;
  /** What each message up is late by beside that, ms; absent: nothing. */
  readonly spreadMs?: () => number;
}

export interface WireEnds {
  toGlobal(message: RegionChildMessage): void;
  toRegion(message: RegionParentMessage): void;
  globalDown(): void;
  regionDown(): void;
}

export class RegionWire {
  readonly id: LinkId;
  readonly #timeline: Timeline;
  readonly #delays: WireDelays;
  readonly #ends: WireEnds;
  #open = true;
  /** When the last message up is to arrive: none overtakes another. */
  #upAtMs = 0;

  constructor(
    id: LinkId,
    timeline: Timeline,
    parts: { readonly delays: WireDelays; readonly ends: WireEnds },
  ) {
    this.id = id;
    this.#timeline = timeline;
    this.#delays = parts.delays;
    this.#ends = parts.ends;
  }

  up(message: RegionChildMessage): void {
    const { upMs, spreadMs } = this.#delays;
    const { nowMs } = this.#timeline;
    this.#upAtMs = Math.max(this.#upAtMs, nowMs + upMs + (spreadMs?.() ?? 0));
    this.#later(this.#upAtMs - nowMs, () => this.#ends.toGlobal(message));
  }

  down(message: RegionParentMessage): void {
    this.#later(this.#delays.downMs, () => this.#ends.toRegion(message));
  }

  cut(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#ends.globalDown();
    this.#ends.regionDown();
  }

  #later(delayMs: number, deliver: () => void): void {
    this.#timeline.after(delayMs, () => {
      if (this.#open) deliver();
    });
  }
}
