// When an engine is asked for its figures and for what it is: one question of each kind at a time. Figures every
// `scrapeIntervalMs`, sooner where something has happened; identity while it serves, again every minute.

import type { CoreContext } from './core-context.ts';
import type { ReplicaId } from '../shared/model/ids.ts';

const IDENTIFY_RETRY_MS = 1_000;
/** Models and adapters may change while an engine runs. */
const IDENTIFY_EVERY_MS = 60_000;
/** A shell that says nothing about a scrape for so long has lost it, ms. */
const LOST_MS = 10_000;

export class EngineQuestions {
  private readonly context: CoreContext;
  private readonly replica: ReplicaId;
  private scrapeDueMs: number;
  private scrapeSentMs: number | null = null;
  private identifyDueMs = -Infinity;
  private identifying = false;

  constructor(context: CoreContext, replica: ReplicaId, nowMs: number) {
    this.context = context;
    this.replica = replica;
    this.scrapeDueMs = nowMs;
  }

  scraped(): void {
    this.scrapeSentMs = null;
  }

  /** At this instant at the latest. */
  scrapeBy(atMs: number): void {
    this.scrapeDueMs = Math.min(this.scrapeDueMs, atMs);
  }

  identified(known: boolean, nowMs: number): void {
    this.identifying = false;
    this.identifyDueMs = nowMs + (known ? IDENTIFY_EVERY_MS : IDENTIFY_RETRY_MS);
  }

  /** It may be another engine now. */
  identifyAt(atMs: number): void {
    this.identifyDueMs = atMs;
  }

  /** `serves`: it may be asked what it is. */
  run(serves: boolean, nowMs: number): void {
    this.scrape(nowMs);
    if (!serves || this.identifying || nowMs < this.identifyDueMs) return;
    this.identifying = true;
    this.context.emit({ kind: 'identify', replica: this.replica });
  }

  nextWakeMs(serves: boolean): number {
    const next = this.scrapeSentMs === null ? this.scrapeDueMs : this.scrapeSentMs + LOST_MS;
    return serves && !this.identifying ? Math.min(next, this.identifyDueMs) : next;
  }

  private scrape(nowMs: number): void {
    if (this.scrapeSentMs !== null) {
      if (nowMs < this.scrapeSentMs + LOST_MS) return;
      this.scrapeSentMs = null;
    }
    if (nowMs < this.scrapeDueMs) return;
    this.scrapeSentMs = nowMs;
    this.scrapeDueMs = nowMs + this.context.settings.scrapeIntervalMs;
    this.context.emit({ kind: 'scrape', replica: this.replica });
  }
}
