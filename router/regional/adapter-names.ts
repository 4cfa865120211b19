// Which model names are LoRA adapters, as agents report: a prompt for an adapter is hashed apart from those for its model.
//
// A replica's names are what its newest agent says, as for the core: an agent that a newer one has taken over from, or one
// of another pool beside the replica's own, says nothing of it. They stay while no agent is linked, since the replica may
// still be used.

import type { LinkId, ReplicaId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';

/** Replicas remembered at most, those without a link included. */
const MAX_REPLICAS = 16_384;

interface Owner {
  readonly link: LinkId;
  readonly pool: string;
}

export class AdapterNames {
  readonly #isLinked: (link: LinkId) => boolean;
  readonly #owners = new Map<ReplicaId, Owner>();
  /** Of replicas that have any. */
  readonly #names = new Map<ReplicaId, ReadonlySet<string>>();

  constructor(isLinked: (link: LinkId) => boolean) {
    this.#isLinked = isLinked;
  }

  has(model: string): boolean {
    for (const names of this.#names.values()) if (names.has(model)) return true;
    return false;
  }

  /** An agent of `pool` speaks for these from now on. */
  linked(link: LinkId, pool: string, replicas: readonly ReplicaId[]): void {
    for (const replica of replicas) {
      const owner = this.#owners.get(replica);
      if (owner !== undefined && owner.pool !== pool && this.#isLinked(owner.link)) continue;
      this.#owners.delete(replica);
      this.#owners.set(replica, { link, pool });
      const oldest = this.#owners.keys().next().value;
      if (this.#owners.size > MAX_REPLICAS && oldest !== undefined) this.#forget(oldest);
    }
  }

  reported(link: LinkId, { replica, models }: Pick<ReplicaReport, 'replica' | 'models'>): void {
    if (this.#owners.get(replica)?.link !== link) return;
    const names = models.flatMap((model) => model.loras);
    if (names.length === 0) this.#names.delete(replica);
    else this.#names.set(replica, new Set(names));
  }

  left(link: LinkId, replica: ReplicaId): void {
    if (this.#owners.get(replica)?.link === link) this.#forget(replica);
  }

  #forget(replica: ReplicaId): void {
    this.#owners.delete(replica);
    this.#names.delete(replica);
  }
}
