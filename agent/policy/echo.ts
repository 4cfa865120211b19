// How far one router has been heard. A report asks for an echo; the router answers in its turn, after everything it
// had sent before. So once the echo is here, all that the router sent until the report left has come, and nothing of
// it was longer on the way than the echo took.

import type { Heard } from './foreign.ts';

/** Echoes outstanding at once; the oldest is given up. */
const MAX_ASKED = 32;

export class Echo {
  private asked: { readonly seq: number; readonly atMs: number; readonly scrapeMs: number }[] = [];
  private state: Heard = { untilMs: -Infinity, lateMs: 0, sure: true };

  /** A report that says what the scrape of `scrapeMs` said: whether to ask with it. */
  wants(scrapeMs: number | null): boolean {
    return scrapeMs !== null && scrapeMs > (this.asked.at(-1)?.scrapeMs ?? this.state.untilMs);
  }

  ask(report: { readonly seq: number; readonly scrapeMs: number }, nowMs: number): void {
    this.asked.push({ ...report, atMs: nowMs });
    if (this.asked.length > MAX_ASKED) this.asked.shift();
  }

  answered(seq: number, nowMs: number): void {
    const at = this.asked.findIndex((each) => each.seq === seq);
    const asked = this.asked[at];
    if (asked === undefined) return;
    this.asked.splice(0, at + 1);
    this.state = { untilMs: asked.atMs, lateMs: nowMs - asked.atMs, sure: true };
  }

  /** For how long the oldest echo asked for has been outstanding, ms. */
  outstandingMs(nowMs: number): number {
    const [oldest] = this.asked;
    return oldest === undefined ? 0 : nowMs - oldest.atMs;
  }

  get heard(): Heard {
    return this.state;
  }
}
