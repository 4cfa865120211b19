// Puts a rank's KV batches in order and finds what is missing.
//
// - The next number: taken. A greater one: what lies between is asked for; until it is there, later batches wait.
// - A live number that goes back: another engine process. (What a replay has brought already is only late.)
// - What no replay brings is `lost`: what was known of the cache is to be forgotten, and counting goes on behind.
// - The first batch seen with a number above 0: the beginning is asked for (`joined`), since it happened before.
//
// Invariants: what is taken has strictly growing numbers within one engine process; at most one replay is asked
// for at a time; at most `MAX_HELD` batches wait.

import type { KvBatch } from './kv-event.ts';

/** Published before the agent listened, replayed after a gap, or heard as it was published. */
export type KvSince = 'start' | 'gap' | 'live';

/** What to do, in order. */
export type KvStep =
  | { readonly kind: 'batch'; readonly batch: KvBatch; readonly since: KvSince }
  | { readonly kind: 'lost'; readonly since: KvSince }
  | { readonly kind: 'restarted' }
  | { readonly kind: 'replay'; readonly fromSeq: number; readonly since: 'start' | 'gap' };

/** More than any engine publishes while a replay is under way. */
const MAX_HELD = 4_096;

export class KvSequence {
  /** Null until a batch was seen. */
  private expected: number | null = null;
  private lastLive = -1;
  private asked: { readonly fromSeq: number; readonly since: 'start' | 'gap' } | null = null;
  private held: KvBatch[] = [];

  /** The number of the last batch taken; null before the first. */
  get lastSeq(): number | null {
    return this.expected === null || this.expected === 0 ? null : this.expected - 1;
  }

  /** A batch as it was published. */
  live(batch: KvBatch): KvStep[] {
    const { seq } = batch;
    if (seq <= this.lastLive) return this.anotherProcess(batch);
    this.lastLive = seq;
    if (this.asked !== null) return this.hold(batch);
    if (this.expected === null && seq > 0) {
      this.expected = 0;
      return this.ask('start', batch);
    }
    const expected = this.expected ?? 0;
    if (seq < expected) return [];
    if (seq > expected) return this.ask('gap', batch);
    return [this.take(batch, 'live')];
  }

  /** Batches that the replay from `fromSeq` brought, in order; `done` with the last of them. */
  replayed(fromSeq: number, batches: readonly KvBatch[], done: boolean): KvStep[] {
    const { asked } = this;
    // The answer to a question of an earlier life.
    if (asked === null || asked.fromSeq !== fromSeq) return [];
    const steps = batches.flatMap((batch) => this.next(batch, asked.since));
    if (!done) return steps;
    this.asked = null;
    const { held } = this;
    this.held = [];
    for (const batch of held) steps.push(...this.next(batch, 'live', asked.since));
    return steps;
  }

  /** The engine is another process, or its events are no longer heard: what is counted begins anew. */
  reset(): void {
    this.expected = null;
    this.lastLive = -1;
    this.asked = null;
    this.held = [];
  }

  private anotherProcess(batch: KvBatch): KvStep[] {
    this.reset();
    return [{ kind: 'restarted' }, ...this.live(batch)];
  }

  private ask(since: 'start' | 'gap', batch: KvBatch): KvStep[] {
    const fromSeq = this.expected ?? 0;
    this.asked = { fromSeq, since };
    this.held = [batch];
    return [{ kind: 'replay', fromSeq, since }];
  }

  private hold(batch: KvBatch): KvStep[] {
    this.held.push(batch);
    if (this.held.length <= MAX_HELD) return [];
    // A replay that takes so long will not bring it.
    return this.replayed(this.asked?.fromSeq ?? 0, [], true);
  }

  /** One of a replay, or one that waited for it: what is still missing before it is lost. */
  private next(batch: KvBatch, since: KvSince, missing: KvSince = since): KvStep[] {
    const expected = this.expected ?? 0;
    if (batch.seq < expected) return [];
    const taken = this.take(batch, since);
    return batch.seq > expected ? [{ kind: 'lost', since: missing }, taken] : [taken];
  }

  private take(batch: KvBatch, since: KvSince): KvStep {
    this.expected = batch.seq + 1;
    return { kind: 'batch', batch, since };
  }
}
