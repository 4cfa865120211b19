// An engine that an operator has marked: it is said to be `draining`, so that routers send nothing new, and goes on with what
// it has. It is drained when nothing can come any more and nothing is left:
//
//   every router has been heard of all that it sent before it read the first report that said so (policy/echo.ts)
//   no lease is open, and a scrape since then shows an empty engine, where it tells
//
// The mark is the operator's alone: it outlasts the engine's process, and ends with the undoing or with this agent. Behind
// a mark engines are restarted, and what was seen of one before the undoing may be of another life. So it is said to be
// `draining` until a scrape sent after the undoing has been answered, and then it generates before it is `ready`.

import type { LinkTable } from './core-links.ts';
import type { TargetState } from './core-target.ts';

export interface DrainView {
  /** ms since it was marked. */
  readonly forMs: number;
  /** It may be stopped: no request of any router is lost by it. */
  readonly drained: boolean;
}

/** How long a router that answers no echo may still send on the reports before, ms. */
const UNHEARD_MS = 2_000;

export class EngineDrain {
  private sinceMs: number | null = null;
  /** When the mark was taken off; null once the engine has been seen since. */
  private undoneMs: number | null = null;

  get on(): boolean {
    return this.sinceMs !== null;
  }

  /** It is not to be used: marked, or not seen since the mark is off. */
  get holds(): boolean {
    return this.on || this.undoneMs !== null;
  }

  /** False where it was so already. */
  set(on: boolean, nowMs: number): boolean {
    if (on === this.on) return false;
    this.sinceMs = on ? nowMs : null;
    this.undoneMs = on ? null : nowMs;
    return true;
  }

  /** The engine has answered a scrape of that instant; true for the first one since the undoing. */
  seen(sentMs: number): boolean {
    if (this.undoneMs === null || sentMs < this.undoneMs) return false;
    this.undoneMs = null;
    return true;
  }

  /** Since when a phase that began at `phaseMs` is said as `draining`. */
  sinceOr(phaseMs: number): number {
    return Math.max(phaseMs, this.sinceMs ?? this.undoneMs ?? phaseMs);
  }

  view(
    of: {
      readonly targets: readonly TargetState[];
      readonly links: LinkTable;
      /** Whether the engine answers at all. */
      readonly serves: boolean;
    },
    nowMs: number,
  ): DrainView | null {
    const { sinceMs } = this;
    if (sinceMs === null) return null;
    const drained = of.targets.every((target) => {
      const empty = !of.serves || isEmpty(target, sinceMs);
      return (
        target.ledger.openCount() === 0 && empty && isKnown(of.links, { target, sinceMs }, nowMs)
      );
    });
    return { forMs: nowMs - sinceMs, drained };
  }
}

/** Every router has read that it drains. */
function isKnown(
  links: LinkTable,
  { target, sinceMs }: { readonly target: TargetState; readonly sinceMs: number },
  nowMs: number,
): boolean {
  const { untilMs, sure } = links.heard(target);
  return untilMs >= sinceMs && (sure || nowMs >= sinceMs + UNHEARD_MS);
}

function isEmpty({ scrape }: TargetState, sinceMs: number): boolean {
  if (scrape === null || scrape.sentMs < sinceMs) return false;
  return (scrape.rank.running ?? 0) + (scrape.rank.waiting ?? 0) === 0;
}
