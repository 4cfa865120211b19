// A simulated engine as whoever started it holds it.

import type { EngineTruth } from '../model.ts';
import type { KvEndpoints } from './kv-feed.ts';
import type { ReceivedRequest } from './received.ts';

export interface RunningEngine {
  readonly port: number;
  /** Base URL, no path. */
  readonly url: string;
  /** When it generates and the port is open; at once if so. */
  whenServing(): Promise<void>;
  /** Of all ranks together. */
  state(): EngineState;
  /** Where each rank's KV events can be had; empty where none are published, or not yet. */
  kvEndpoints(): readonly KvEndpoints[];
  /** The next `batches` of KV events of each rank are numbered but not sent. */
  dropKvEvents(batches: number): void;
  received(): readonly ReceivedRequest[];
  clearReceived(): void;
  /** Connections are cut and the port closes; loads again after `restartAfterMs`, or stays down. */
  crash(options: { readonly restartAfterMs?: number }): Promise<void>;
  /** A new process, now. Only of use while it is down. */
  restart(): void;
  /** The core dies while the server lives: what follows is the kind's. */
  killCore(): void;
  /** The device fails under the present batch; false where the kind does not survive that. */
  failBatch(): boolean;
  freeze(): void;
  thaw(): void;
  slow(factor: number): void;
  /** SIGTERM, as the kind takes it. Settles when the process is gone. */
  terminate(): Promise<void>;
  /** When the process is gone and nobody brings it back: its exit code. */
  whenGone(): Promise<number>;
  close(): Promise<void>;
}

export interface EngineState extends EngineTruth {
  readonly kind: string;
  readonly model: string;
  readonly profile: string;
  readonly maxModelLen: number;
  /** Each data-parallel rank by itself. */
  readonly ranks: readonly EngineTruth[];
}

/** Counts are summed; the wait is that of the rank that waits longest. */
export function sumOfRanks(ranks: readonly EngineTruth[]): EngineTruth {
  const [first, ...others] = ranks;
  if (first === undefined) throw new Error('an engine has a rank');
  return others.reduce(
    (sum, rank) => ({
      ...sum,
      waitingPrefillTokens: sum.waitingPrefillTokens + rank.waitingPrefillTokens,
      waitingPrefillMs: Math.max(sum.waitingPrefillMs, rank.waitingPrefillMs),
      openRequests: sum.openRequests + rank.openRequests,
      running: sum.running + rank.running,
      waiting: sum.waiting + rank.waiting,
      freeBlocks: sum.freeBlocks + rank.freeBlocks,
      heldBlocks: sum.heldBlocks + rank.heldBlocks,
      cachedBlocks: sum.cachedBlocks + rank.cachedBlocks,
    }),
    first,
  );
}
