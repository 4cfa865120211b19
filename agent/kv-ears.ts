// The KV-event listeners of an agent: one a rank of each engine whose events are to be heard.
//
// Where they are published is configured, or told by the engine itself (SGLang); the configuration holds. An engine that
// tells another place is heard there from then on: it was started anew.

import { KvListener, type KvCount } from './kv-events.ts';
import type { KvEventsOptions } from './policy/kv-event.ts';
import type { AgentEvent } from './events.ts';
import type { ReplicaId } from '../shared/model/ids.ts';
import type { Logger } from '../shared/runtime/log.ts';
import type { Timers } from '../shared/runtime/timers.ts';

export interface KvEarsDeps {
  readonly timers: Timers;
  readonly log: Logger;
  readonly post: (event: AgentEvent) => void;
  readonly count: (what: KvCount, by: number, labels: KvLabels) => void;
}

export interface KvLabels {
  readonly replica: ReplicaId;
  readonly rank: string;
}

interface HeardEngine {
  readonly options: KvEventsOptions;
  /** By rank. */
  readonly listeners: readonly KvListener[];
}

export class KvEars {
  private readonly deps: KvEarsDeps;
  private readonly engines = new Map<ReplicaId, HeardEngine>();

  constructor(deps: KvEarsDeps) {
    this.deps = deps;
  }

  /** Begins to hear an engine, unless it is heard there already. `url`: of the engine, as the agent reaches it. */
  listen(
    engine: { readonly replica: ReplicaId; readonly url: string; readonly ranks: number },
    options: KvEventsOptions,
  ): void {
    const before = this.engines.get(engine.replica);
    if (before !== undefined && isSame(before.options, options)) return;
    for (const listener of before?.listeners ?? []) listener.close();
    const host = new URL(engine.url).hostname;
    const listeners = Array.from({ length: engine.ranks }, (_, rank) =>
      this.listener(engine.replica, rank, { options, host }),
    );
    this.engines.set(engine.replica, { options, listeners });
    for (const listener of listeners) void listener.start();
  }

  /** Answers with `kvReplay` events, with an empty one where nobody listens. */
  replay(replica: ReplicaId, rank: number, fromSeq: number): void {
    const listener = this.engines.get(replica)?.listeners[rank];
    if (listener !== undefined) void listener.replay(fromSeq);
    else this.deps.post({ kind: 'kvReplay', replica, rank, fromSeq, batches: [], done: true });
  }

  close(): void {
    for (const { listeners } of this.engines.values())
      for (const listener of listeners) listener.close();
    this.engines.clear();
  }

  private listener(
    replica: ReplicaId,
    rank: number,
    where: { readonly options: KvEventsOptions; readonly host: string },
  ): KvListener {
    const { timers, log, post, count } = this.deps;
    const labels = { replica, rank: String(rank) };
    return new KvListener({
      ...where,
      rank,
      timers,
      log,
      heard: (batches) => post({ kind: 'kvEvents', replica, rank, batches }),
      replayed: (fromSeq, batches, done) =>
        post({ kind: 'kvReplay', replica, rank, fromSeq, batches, done }),
      count: (what, by) => count(what, by, labels),
    });
  }
}

function isSame(a: KvEventsOptions, b: KvEventsOptions): boolean {
  const places = ['endpoint', 'replay', 'topic', 'bind'] as const;
  return places.every((name) => a[name] === b[name]);
}
