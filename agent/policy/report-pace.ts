// When the next report about a target is due on one router's link.
//
//   another router has sent work there    at once, as long as the budget lasts: nothing else misleads this one
//   any other change                      an interval after the last report
//   work waits, and nothing changed       four intervals: the router lets it fall with time itself
//   nothing                               the longest interval
//   routers hold requests back            in turn: each link at its own instant of every interval, unless that is long
//
//   along with another one               half an interval early: what leaves at once is one write here and one wake there
//
// Budget: one report an interval over time, up to `BURST` of them ahead of it. In turn, a router that is told of room
// has it for itself until the next one is told, and what it sends meanwhile is in that one's report: so they do not all
// release into the same room.
//
// Where the interval is long and the budget is spent, each link has its instant (`lane`) always, another one for each
// target: told of a target at the same time, all routers would send to the idle one, and none hears of the others for
// an interval. So there is a target at any time of which this router alone has fresh news.

/** Reports ahead of the budget. */
const BURST = 4;
/** Two reports on one link are never closer than this share of the interval. */
const CLOSEST = 0.1;
/** Share of an interval by which what is due goes along with what leaves on the same link. */
export const ALONG = 0.5;
const FALLING_INTERVALS = 4;
/** No router waits longer for its turn: what it would wait for has changed by then, ms. */
export const TURN_INTERVAL_MAX_MS = 100;

/** This link's instant among all of the agent's. */
export interface Turn {
  readonly index: number;
  readonly count: number;
}

export interface PaceInput {
  /** The router's least interval, ms. */
  readonly intervalMs: number;
  readonly longestMs: number;
  readonly changed: boolean;
  /** Work waits: its figure falls. */
  readonly falling: boolean;
  /** Requests that other routers have ever sent there. */
  readonly othersSent: number;
  /** Set while routers hold requests back. */
  readonly turn: Turn | null;
  /** Set where the interval is long: when the link hears of the target once the budget is spent. */
  readonly lane: Lane | null;
}

/** An instant of every interval: the link's among all of the agent's, after the target's own. */
export interface Lane extends Turn {
  /** Share of the interval, from 0 to 1. */
  readonly phase: number;
}

const GOLDEN = (Math.sqrt(5) - 1) / 2;

/** Of a target: names that count up lie far apart, and all of them about evenly. */
export function phaseOf(name: string): number {
  let sum = 0;
  for (let k = 0; k < name.length; k += 1) sum += name.charCodeAt(k);
  return (sum * GOLDEN) % 1;
}

export class ReportPace {
  /** Of the last report. */
  private reportedMs = -Infinity;
  private othersSent = 0;
  /** When the budget is whole again. */
  private wholeMs = -Infinity;

  reported(input: PaceInput, nowMs: number): void {
    this.reportedMs = nowMs;
    this.othersSent = input.othersSent;
    this.wholeMs = Math.max(this.wholeMs, nowMs) + input.intervalMs;
  }

  /** `along`: another report leaves on the link. The budget is as it was: who goes early is early for the next one, too. */
  dueMs(input: PaceInput, along = false): number {
    const ordinary = input.changed && input.turn === null && input.lane === null;
    return this.ownMs(input) - (along && ordinary ? ALONG * input.intervalMs : 0);
  }

  private ownMs(input: PaceInput): number {
    const { reportedMs } = this;
    const longestMs = reportedMs + input.longestMs;
    const { changed, falling } = input;
    if (!changed && !falling) return longestMs;
    const intervalMs = Math.min(input.intervalMs, input.longestMs);
    if (input.turn !== null) return this.turnMs(input.turn, intervalMs);
    if (!changed) return Math.min(reportedMs + FALLING_INTERVALS * intervalMs, longestMs);
    const soonMs = reportedMs + intervalMs;
    if (input.othersSent === this.othersSent) return Math.max(soonMs, this.wholeMs - intervalMs);
    const budgetMs = this.wholeMs - (BURST - 1) * intervalMs;
    const closestMs = reportedMs + CLOSEST * intervalMs;
    const spent = budgetMs > closestMs;
    if (spent && input.lane !== null) return this.turnMs(input.lane, intervalMs, input.lane.phase);
    return Math.min(soonMs, Math.max(closestMs, budgetMs));
  }

  /** The first instant of the turn that is not the last report's own. */
  private turnMs({ index, count }: Turn, intervalMs: number, phase = 0): number {
    if (this.reportedMs === -Infinity) return this.reportedMs;
    const slotMs = turnLengthMs(count, intervalMs);
    const offsetMs = index * slotMs + phase * intervalMs;
    const past = Math.floor((this.reportedMs + slotMs / 2 - offsetMs) / intervalMs);
    return (past + 1) * intervalMs + offsetMs;
  }
}

/** How long a router has a target for itself, ms. */
export function turnLengthMs(count: number, intervalMs: number): number {
  return intervalMs / Math.max(1, count);
}
