// The KV events of one rank of a simulated engine, as its agent hears them: numbered from 0 in each life of the
// process, the last of them kept for a replay, some lost on the way where a test says so.

import type { KvBatch, KvEvent } from '../../agent/policy/kv-event.ts';
import type { KvEvent as ModelEvent } from '../engine/kv-events.ts';

/** Batches that are kept. */
const KEPT = 10_000;

export class KvFeed {
  /** Whoever hears it; null: nobody. */
  listener: ((batch: KvBatch) => void) | null = null;
  readonly #blockTokens: number;
  #kept: KvBatch[] = [];
  #incarnation = -1;
  #nextSeq = 0;
  #dropNext = 0;

  constructor(blockTokens: number) {
    this.#blockTokens = blockTokens;
  }

  publish(incarnation: number, events: readonly ModelEvent[]): void {
    if (incarnation !== this.#incarnation) {
      this.#incarnation = incarnation;
      this.#nextSeq = 0;
      this.#kept = [];
    }
    const batch = { seq: this.#nextSeq++, events: events.map((event) => this.#told(event)) };
    this.#kept.push(batch);
    if (this.#kept.length > KEPT) this.#kept.shift();
    if (this.#dropNext > 0) this.#dropNext -= 1;
    else this.listener?.(batch);
  }

  replay(fromSeq: number): KvBatch[] {
    return this.#kept.filter(({ seq }) => seq >= fromSeq);
  }

  /** The next batches are not heard, but can be replayed. */
  drop(batches: number): void {
    this.#dropNext += batches;
  }

  /** What was kept until now can no longer be replayed. */
  forget(): void {
    this.#kept = [];
  }

  #told(event: ModelEvent): KvEvent {
    const where = { medium: 'GPU', group: 0 } as const;
    if (event.kind === 'cleared') return event;
    if (event.kind === 'removed') return { ...event, ...where, keys: event.keys.map(hex) };
    const { tokenIds, salt, lora } = event;
    return {
      ...where,
      kind: 'stored',
      keys: event.keys.map(hex),
      parentKey: event.parentKey === null ? null : hex(event.parentKey),
      tokenIds,
      blockTokens: this.#blockTokens,
      lora,
      salt,
      groupKind: 'full_attention',
    };
  }
}

/** By halves: an engine prints the whole of such a number slowly. */
function hex(key: number): string {
  const half = (word: number): string => word.toString(16).padStart(8, '0');
  return half(Math.floor(key / 2 ** 32)) + half(key >>> 0);
}
