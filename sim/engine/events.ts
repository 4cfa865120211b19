// What happens in an engine, as its owner hears of it.

import type { KvEvent } from './kv-events.ts';
import type { FinishReason } from './stats.ts';

/** Times in ms of the engine's clock. */
export type EngineEvent =
  | {
      readonly kind: 'token';
      readonly id: string;
      readonly atMs: number;
      readonly tokenId: number;
      /** 0 for the first. */
      readonly index: number;
      /** Set on the last, which a `finished` follows. */
      readonly finish: FinishReason | null;
      /** Prompt tokens found in the cache when it was admitted. */
      readonly cachedTokens: number;
    }
  | {
      readonly kind: 'finished';
      readonly id: string;
      readonly atMs: number;
      /** `abort`: the engine ended it itself (pause, sleep, shutdown), perhaps before its first token. */
      readonly reason: FinishReason;
      readonly promptTokens: number;
      readonly cachedTokens: number;
      readonly answerTokens: number;
    }
  /** The engine failed under it. */
  | { readonly kind: 'failed'; readonly id: string; readonly atMs: number }
  | { readonly kind: 'preempted'; readonly id: string; readonly atMs: number }
  /** One batch of an engine that publishes KV events, at the end of a step; never empty. */
  | { readonly kind: 'blocks'; readonly atMs: number; readonly events: readonly KvEvent[] }
  | { readonly kind: 'serving'; readonly atMs: number }
  /** A pause or a sleep has come to rest, or was ended before it could. */
  | { readonly kind: 'paused'; readonly atMs: number }
  /** A shutdown is through: the process is gone. */
  | { readonly kind: 'stopped'; readonly atMs: number };
