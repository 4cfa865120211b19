// What changed in the findable KV cache, in the words of vLLM's KV events.
//
// One batch for each step in which anything changed, as vLLM 0.32 publishes them (`update_from_output`): evictions one by
// one and what a request stored in one piece, in the order in which the scheduler did it; a cache that was cleared
// while idle is told of with the next step. Keys are those of `sequence.ts`: the key of a block covers everything
// before it, so equal keys mean equal prefixes. Two blocks may carry one key at a time: each is stored and removed
// by itself.

import type { TokenSequence } from './sequence.ts';

export type KvEvent =
  | {
      readonly kind: 'stored';
      /** Blocks that follow each other, first to last; never empty. */
      readonly keys: readonly number[];
      /** Key of the block before the first; null at the start of a prompt. */
      readonly parentKey: number | null;
      /** Of all these blocks together; null where the prompt is known by its keys only. */
      readonly tokenIds: Uint32Array | null;
      /** On the first block of a prompt only: later ones differ through their parent. */
      readonly salt: string | null;
      /** Name of the adapter. */
      readonly lora: string | null;
    }
  | {
      readonly kind: 'removed';
      /** In order of removal; never empty. */
      readonly keys: readonly number[];
    }
  | { readonly kind: 'cleared' };

/** Collects what happens until the end of the step takes it. */
export class KvEventLog {
  #events: KvEvent[] = [];

  removed(key: number): void {
    this.#events.push({ kind: 'removed', keys: [key] });
  }

  /** Blocks `from` to before `to` of a sequence have become findable. */
  stored(sequence: TokenSequence, range: { from: number; to: number; blockTokens: number }): void {
    const keys: number[] = [];
    for (let index = range.from; index < range.to; index += 1) {
      const key = sequence.blockKey(index);
      if (key < 0) break;
      keys.push(key);
    }
    if (keys.length === 0) return;
    const { from, blockTokens } = range;
    this.#events.push({
      kind: 'stored',
      keys,
      parentKey: from === 0 ? null : sequence.blockKey(from - 1),
      tokenIds: sequence.tokenIds(from * blockTokens, (from + keys.length) * blockTokens),
      salt: from === 0 ? sequence.salt : null,
      lora: sequence.lora,
    });
  }

  cleared(): void {
    this.#events.push({ kind: 'cleared' });
  }

  /** All since the last call, in order. */
  take(): readonly KvEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }
}
