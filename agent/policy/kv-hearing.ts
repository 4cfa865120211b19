// What a rank's KV events say, in order: which blocks its cache holds, whether it was emptied, whether the engine
// is another process. Batches come as heard; the outcome says what is to be done about them.

import { KvBlocks } from './kv-blocks.ts';
import type { KvBatch } from './kv-event.ts';
import { KvSequence, type KvSince, type KvStep } from './kv-sequence.ts';

export interface KvOutcome {
  /** Nothing that was cached before is cached any more. */
  readonly emptied: boolean;
  /** Something was evicted that was stored later than anything evicted before. */
  readonly evicted: boolean;
  /** The events began anew: another engine process. */
  readonly restarted: boolean;
  /** Batches are missing for good that were published while the agent listened; said once in `LOST_SAID_MS`. */
  readonly lost: boolean;
  /** Ask for a replay from this number on. */
  readonly replayFrom: number | null;
}

/** Since the agent began to listen. */
export interface KvHeard {
  /** Number of the last batch in order; null before the first. */
  readonly lastSeq: number | null;
  readonly batches: number;
  /** Gaps that were asked for, and those of them that no replay filled. */
  readonly gaps: number;
  readonly lostGaps: number;
}

/** An agent that cannot keep up loses batches many times a second. */
const LOST_SAID_MS = 60_000;

export class KvHearing {
  readonly blocks = new KvBlocks();
  private readonly sequence = new KvSequence();
  private batches = 0;
  private gaps = 0;
  private lostGaps = 0;
  private lostSaidMs = -Infinity;
  /** The events have begun anew, and nothing else has said yet that the engine did. */
  private ahead = false;
  private impossibleSaid = false;

  get heard(): KvHeard {
    const { batches, gaps, lostGaps } = this;
    return { lastSeq: this.sequence.lastSeq, batches, gaps, lostGaps };
  }

  live(batches: readonly KvBatch[], nowMs: number): KvOutcome {
    return this.follow(
      batches.flatMap((batch) => this.sequence.live(batch)),
      nowMs,
    );
  }

  replayed(
    answer: {
      readonly fromSeq: number;
      readonly batches: readonly KvBatch[];
      readonly done: boolean;
    },
    nowMs: number,
  ): KvOutcome {
    const { fromSeq, batches, done } = answer;
    return this.follow(this.sequence.replayed(fromSeq, batches, done), nowMs);
  }

  /** The engine is another process. Its events may have said so before. */
  reborn(): void {
    if (!this.ahead) {
      this.sequence.reset();
      this.blocks.reset();
    }
    this.ahead = false;
  }

  /** The engine says by other means that its cache is empty. */
  emptied(nowMs: number): void {
    if (this.batches > 0) this.blocks.apply({ kind: 'cleared' }, nowMs);
  }

  /** True the first time that the events tell of more than `capacityTokens`. */
  turnsImpossible(capacityTokens: number | null): boolean {
    if (this.impossibleSaid || !this.blocks.exceeds(capacityTokens)) return false;
    this.impossibleSaid = true;
    return true;
  }

  /** A scrape says that the engine is the process that it was. */
  sameProcess(): void {
    this.ahead = false;
  }

  private follow(steps: readonly KvStep[], nowMs: number): KvOutcome {
    const before = this.blocks.horizonMs;
    let emptied = false;
    let restarted = false;
    let lost = false;
    let replayFrom: number | null = null;
    for (const step of steps) {
      if (step.kind === 'batch') emptied = this.take(step.batch, step.since, nowMs) || emptied;
      else if (step.kind === 'replay') {
        if (step.since === 'gap') this.gaps += 1;
        replayFrom = step.fromSeq;
      } else if (step.kind === 'lost') {
        this.blocks.lost();
        // An engine that has run for long no longer keeps its beginning: that is no loss of ours.
        if (step.since === 'start') continue;
        this.lostGaps += 1;
        if (nowMs - this.lostSaidMs < LOST_SAID_MS) continue;
        this.lostSaidMs = nowMs;
        lost = true;
      } else {
        this.blocks.reset();
        this.ahead = true;
        restarted = emptied = true;
        replayFrom = null;
      }
    }
    const evicted = this.blocks.horizonMs > before;
    return { emptied, evicted, restarted, lost, replayFrom };
  }

  /** Whether it says that the cache was emptied, after the agent began to listen. */
  private take(batch: KvBatch, since: KvSince, nowMs: number): boolean {
    this.batches += 1;
    let emptied = false;
    for (const event of batch.events) {
      this.blocks.apply(event, since === 'start' ? -Infinity : nowMs);
      emptied ||= event.kind === 'cleared';
    }
    return emptied && since !== 'start';
  }
}
