// Is this still the same engine process?
//
// With a start time in the exposition, that is the identity, the same for every agent that looks. Without,
// a random one holds until the port was refused on two scrapes in a row, a counter went back, its KV events began
// anew or its process is another one. An agent that restarts beside a living engine takes the identity over from a
// router whose counters are not ahead.
//
// One restart is one new life, whichever of these signs comes first: the process is looked at less often than the port,
// so one that is first named within `SETTLING` good scrapes of a life is that life's own.

import type { Incarnation } from '../../shared/model/ids.ts';
import type { EngineCounters } from '../../shared/model/report.ts';
import type { ResumeState } from '../../shared/protocol/messages.ts';
import type { Random } from '../../shared/lib/random.ts';
import type { EngineProcess, EngineScrape } from '../events.ts';

/** Refused scrapes in a row that end a life. */
const REFUSALS = 2;
/** Good scrapes: more than there are between two looks at the process. */
const SETTLING = 15;

export class IncarnationTracker {
  private readonly random: Random;
  private startTimeSeconds: number | null = null;
  private counters = new Map<number, EngineCounters>();
  private refusals = 0;
  private beganAnew = false;
  private process: EngineProcess | null = null;
  /** Good scrapes of this life. */
  private seen = 0;
  private id: Incarnation | null = null;

  constructor(random: Random) {
    this.random = random;
  }

  get current(): Incarnation | null {
    return this.id;
  }

  refused(): void {
    this.refusals += 1;
  }

  /**
   * The engine's KV events have begun anew: its next good scrape is another life's, unless a start time that has
   * not changed says that it is the same process.
   */
  eventsBeganAnew(): void {
    this.beganAnew = true;
  }

  /** It says that it loads: whatever served before is gone. */
  loads(): void {
    this.refusals = REFUSALS;
  }

  /** The living process that evidence names: another one than before, from the same source, is another life. */
  sawProcess(process: EngineProcess | null): void {
    if (process === null) return;
    const before = this.process;
    this.process = process;
    const another = before?.source === process.source && before.pid !== process.pid;
    if (another && this.seen >= SETTLING) this.beganAnew = true;
  }

  /** Whether the engine of the last scrapes is certainly gone. */
  get gone(): boolean {
    return this.refusals >= REFUSALS;
  }

  /**
   * What a good scrape says: `same`; `new` (a life begins: `current` is its id); or `unsettled`: the first
   * life seen by this agent, without a start time. Then `resume` or `invent` settles it.
   */
  scraped(scrape: EngineScrape): 'same' | 'new' | 'unsettled' {
    const verdict = this.verdictOf(scrape);
    this.seen = verdict === 'same' ? this.seen + 1 : 0;
    return verdict;
  }

  /** The identity without a start time, when no router knows it. */
  invent(): Incarnation {
    this.id = `run-${this.randomText()}` as Incarnation;
    return this.id;
  }

  /** Whether a router's memory of a rank is of the engine that answers now. */
  matches(state: ResumeState): boolean {
    if (this.id !== null) return state.incarnation === this.id;
    const now = this.counters.get(state.rank);
    return now !== undefined && notAhead(state.counters, now);
  }

  /** Takes the identity over that a router remembers. */
  resume(incarnation: Incarnation): void {
    this.id = incarnation;
  }

  private verdictOf(scrape: EngineScrape): 'same' | 'new' | 'unsettled' {
    const { startTimeSeconds } = scrape;
    const wentBack = this.noteCounters(scrape);
    const wasGone = this.gone || this.beganAnew;
    this.refusals = 0;
    this.beganAnew = false;
    if (startTimeSeconds !== null) return this.byStartTime(startTimeSeconds, wentBack);
    if (this.id === null) return 'unsettled';
    if (!wasGone && !wentBack) return 'same';
    this.invent();
    return 'new';
  }

  private byStartTime(startTimeSeconds: number, wentBack: boolean): 'same' | 'new' {
    const same = this.startTimeSeconds === startTimeSeconds;
    this.startTimeSeconds = startTimeSeconds;
    if (same && !wentBack) return 'same';
    const text = `start-${startTimeSeconds.toFixed(3)}`;
    this.id = (same ? `${text}-${this.randomText()}` : text) as Incarnation;
    return 'new';
  }

  private noteCounters(scrape: EngineScrape): boolean {
    let wentBack = false;
    for (const rank of scrape.ranks) {
      const now: EngineCounters = {
        promptTokens: rank.promptTokensTotal,
        generationTokens: rank.generationTokensTotal,
      };
      const before = this.counters.get(rank.rank);
      if (before !== undefined) wentBack ||= below(now, before);
      this.counters.set(rank.rank, now);
    }
    return wentBack;
  }

  private randomText(): string {
    const word = () =>
      Math.floor(this.random.next() * 0x1_0000_0000)
        .toString(16)
        .padStart(8, '0');
    return word() + word();
  }
}

function below(now: EngineCounters, before: EngineCounters): boolean {
  return (
    less(now.promptTokens, before.promptTokens) ||
    less(now.generationTokens, before.generationTokens)
  );
}

function less(a: number | null, b: number | null): boolean {
  return a !== null && b !== null && a < b;
}

/** Known, and nowhere above `now`: counters only grow while an engine lives. */
function notAhead(remembered: EngineCounters, now: EngineCounters): boolean {
  if (remembered.promptTokens === null && remembered.generationTokens === null) return false;
  return !below(now, remembered);
}
