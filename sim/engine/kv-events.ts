// What changed in the findable KV cache, in the words of vLLM's KV events.
//
// One batch for each step; a batch without events is published too, as the real engine does. Keys are those
// of `sequence.ts`: the key of a block covers everything before it, so equal keys mean equal prefixes. Two blocks
// may carry one key at a time: each is stored and removed by itself.

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
