// What waits at one priority: by tenant, the one that has been given the fewest tokens first, and apart from that by the
// latest start that keeps a deadline. Its sums, of what is held back for KV room apart.

import { BinaryHeap } from '../../shared/lib/binary-heap.ts';
import {
  before,
  kindOf,
  latestStartMs,
  startsBefore,
  type Entry,
  type LookedPast,
  type QueueItem,
} from './queue-item.ts';
import { heldBefore, HeldLane, type HeldLook } from './queue-held.ts';
import { Lane, pruneDead, topOf } from './queue-lane.ts';

interface Tenant {
  tokens: number;
  readonly lane: Lane;
  /** Of those held back for KV room. */
  readonly held: HeldLane;
  waiting: number;
}

export interface PressingLook {
  readonly nowMs: number;
  readonly pressWithinMs: number;
  readonly past: LookedPast;
}

export class Level {
  readonly priority: number;
  requests = 0;
  bytes = 0;
  prefillMs = 0;
  /** Of those, held back for KV room. */
  heldRequests = 0;
  heldPrefillMs = 0;
  /** Of the held, conversations that go on. */
  returningRequests = 0;
  readonly #tenants = new Map<string, Tenant>();
  /** By the latest time at which a start still keeps the deadline. */
  readonly #pressing = new BinaryHeap<Entry>(startsBefore);
  #virtualTokens = 0;

  constructor(priority: number) {
    this.priority = priority;
  }

  /** Of those that wait for anything but KV room; null where none does. */
  get leastKey(): number | null {
    let least: number | null = null;
    for (const { lane } of this.#tenants.values()) {
      const key = lane.leastKey;
      if (key !== null) least = Math.min(least ?? key, key);
    }
    return least;
  }

  /** When the first of those held back may enter without room; null where none is. */
  get leastEntersMs(): number | null {
    let least: number | null = null;
    for (const { held } of this.#tenants.values()) {
      const key = held.leastKey;
      if (key !== null) least = Math.min(least ?? key, key);
    }
    return least;
  }

  push(entry: Entry): void {
    const { item } = entry;
    const tenant = this.#tenant(item.tenant);
    if (tenant.waiting === 0) tenant.tokens = Math.max(tenant.tokens, this.#virtualTokens);
    tenant.waiting += 1;
    laneOf(tenant, item).push(entry);
    if (item.deadlineMs !== null && item.held === undefined) this.#pressing.push(entry);
    this.#count(item, 1);
  }

  /** Of one that waits here and is not `live` any more. */
  remove(item: QueueItem): void {
    const tenant = this.#tenant(item.tenant);
    tenant.waiting -= 1;
    this.#count(item, -1);
    laneOf(tenant, item).sweep(kindOf(item), tenant.waiting);
    pruneDead(this.#pressing, this.requests);
    if (this.requests === 0) {
      this.#tenants.clear();
      this.#virtualTokens = 0;
    } else if (tenant.waiting === 0 && tenant.tokens <= this.#virtualTokens) {
      this.#tenants.delete(item.tenant);
    }
  }

  /** Its tenant is given it. */
  charge({ tenant: name, tokens }: QueueItem): void {
    const tenant = this.#tenant(name);
    this.#virtualTokens = Math.max(this.#virtualTokens, tenant.tokens);
    tenant.tokens += tokens;
  }

  /** One whose deadline can be kept only if it goes now. */
  pressing({ nowMs, pressWithinMs, past }: PressingLook): Entry | null {
    const top = topOf(this.#pressing);
    if (top === undefined || past.ids.has(top.item.id) || past.kinds.has(kindOf(top.item))) {
      return null;
    }
    const latest = latestStartMs(top);
    return latest >= nowMs && latest <= nowMs + pressWithinMs ? top : null;
  }

  /** The first of the tenant that has been given the fewest tokens. */
  fairest({ nowMs, past }: HeldLook, held: boolean): Entry | null {
    let best: Tenant | null = null;
    let bestEntry: Entry | null = null;
    const goesBefore = held ? (a: Entry, b: Entry) => heldBefore(a, b, nowMs) : before;
    for (const tenant of this.#tenants.values()) {
      if (tenant.waiting === 0 || (best !== null && tenant.tokens > best.tokens)) continue;
      const entry = held ? tenant.held.first({ nowMs, past }) : tenant.lane.first(past);
      if (entry === null) continue;
      const ahead =
        best === null || tenant.tokens < best.tokens || goesBefore(entry, bestEntry ?? entry);
      if (!ahead) continue;
      best = tenant;
      bestEntry = entry;
    }
    return bestEntry;
  }

  /** The last to be released, whoever's it is. */
  worst(): Entry | null {
    let worst: Entry | null = null;
    for (const { lane, held } of this.#tenants.values()) {
      for (const entries of [lane.entries(), held.entries()]) {
        for (const entry of entries) {
          if (worst === null || goesBefore(worst, entry)) worst = entry;
        }
      }
    }
    return worst;
  }

  #tenant(name: string): Tenant {
    let tenant = this.#tenants.get(name);
    if (tenant === undefined) {
      tenant = { tokens: this.#virtualTokens, lane: new Lane(), held: new HeldLane(), waiting: 0 };
      this.#tenants.set(name, tenant);
    }
    return tenant;
  }

  #count(item: QueueItem, by: 1 | -1): void {
    this.requests += by;
    this.bytes += by * item.bytes;
    this.prefillMs = this.requests === 0 ? 0 : this.prefillMs + by * item.prefillMs;
    if (item.held === undefined) return;
    this.heldRequests += by;
    if (item.held === 'returning') this.returningRequests += by;
    this.heldPrefillMs = this.heldRequests === 0 ? 0 : this.heldPrefillMs + by * item.prefillMs;
  }
}

function laneOf({ lane, held }: Tenant, item: QueueItem): Lane | HeldLane {
  return item.held === undefined ? lane : held;
}

/** Across all lanes of a level: those held back for KV room go last, of them those that begin. */
function goesBefore(a: Entry, b: Entry): boolean {
  const [laneA, laneB] = [LANES.indexOf(a.item.held), LANES.indexOf(b.item.held)];
  return laneA === laneB ? before(a, b) : laneA < laneB;
}

const LANES: readonly QueueItem['held'][] = [undefined, 'returning', 'new'];
