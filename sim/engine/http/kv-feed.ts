// The KV event publishers of a simulated process, one a data-parallel rank, over its incarnations.
//
// Sequence numbers, replay buffer and the seed of the hashes are an incarnation's own; a port that the system
// chose stays the same, so that a subscriber finds the next incarnation where the last one was.

import type { KvEvent } from '../kv-events.ts';
import { KvEndpointFault } from './kv-endpoint-fault.ts';
import { endpointOfRank, KvPublisher, type KvEventsConfig } from './kv-publisher.ts';
import type { KvEncoding } from './kv-wire.ts';
import type { EngineRuntime } from './surface.ts';

/** Where a rank's events can be had. */
export interface KvEndpoints {
  readonly publish: string;
  readonly replay: string | null;
}

interface Rank {
  readonly publisher: KvPublisher;
  readonly encoding: KvEncoding;
}

export class KvFeed {
  readonly #configs: KvEventsConfig[];
  readonly #runtime: EngineRuntime;
  #ranks: readonly Rank[] = [];
  #endpoints: KvEndpoints[] = [];
  #starting: Promise<void> = Promise.resolve();

  constructor(config: KvEventsConfig, ranks: number, runtime: EngineRuntime) {
    this.#runtime = runtime;
    this.#configs = Array.from({ length: ranks }, (_, rank) => ({
      ...config,
      endpoint: endpointOfRank(config.endpoint, rank),
      replayEndpoint:
        config.replayEndpoint === null ? null : endpointOfRank(config.replayEndpoint, rank),
    }));
  }

  get endpoints(): readonly KvEndpoints[] {
    return this.#endpoints;
  }

  /** Settles when every socket is bound. */
  whenStarted(): Promise<void> {
    return this.#starting;
  }

  /** A new incarnation publishes. */
  start(encodingOf: (rank: number) => KvEncoding): void {
    this.#ranks = this.#configs.map((config, rank) => {
      const encoding = encodingOf(rank);
      return { encoding, publisher: new KvPublisher(config, encoding) };
    });
    this.#starting = this.#bind(this.#ranks);
    // Whoever opens the port waits for it; until then nobody does.
    this.#starting.catch(() => {});
  }

  publish(rank: number, events: readonly KvEvent[]): void {
    const target = this.#ranks[rank];
    if (target === undefined) return;
    const atSeconds = this.#runtime.clock.wallMs() / 1000;
    target.publisher.publish(target.encoding.encode({ atSeconds, events, rank }));
  }

  /** The next `batches` of each rank are numbered but not sent. */
  drop(batches: number): void {
    for (const { publisher } of this.#ranks) publisher.drop(batches);
  }

  close(): void {
    for (const { publisher } of this.#ranks) publisher.close();
    this.#ranks = [];
  }

  async #bind(ranks: readonly Rank[]): Promise<void> {
    await Promise.all(ranks.map(({ publisher }) => startOf(publisher)));
    if (ranks !== this.#ranks) return;
    this.#endpoints = ranks.map(({ publisher }) => ({
      publish: publisher.endpoint,
      replay: publisher.replayEndpoint,
    }));
    ranks.forEach(({ publisher }, rank) => {
      const config = this.#configs[rank];
      if (config === undefined) return;
      const { replayEndpoint } = publisher;
      this.#configs[rank] = {
        ...config,
        endpoint: samePort(config.endpoint, publisher.endpoint),
        replayEndpoint:
          config.replayEndpoint === null || replayEndpoint === null
            ? null
            : samePort(config.replayEndpoint, replayEndpoint),
      };
    });
  }
}

async function startOf(publisher: KvPublisher): Promise<void> {
  try {
    await publisher.start();
  } catch (cause) {
    throw new KvEndpointFault(publisher.wanted, cause);
  }
}

/** A port that the system chose becomes the one that it chose. */
function samePort(configured: string, bound: string): string {
  return configured.startsWith('tcp:') && configured.endsWith(':0')
    ? `${configured.slice(0, -2)}${bound.slice(bound.lastIndexOf(':'))}`
    : configured;
}
