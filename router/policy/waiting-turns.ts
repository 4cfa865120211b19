// Conversations whose next turn waits in this router's queue: they live, however long they rest.
//
// An agent counts as live what was touched within τ (`shared/lib/turn-gaps.ts`), and knows of no turn before it is sent.
// Where engines are so busy that turns wait longer than that, whoever waits would count for nothing, new conversations
// would take their room, and what is computed at last would be computed anew.
//
//   tokens(target) = Σ of waiting turns that it holds more of than any other, and last touched longer than τ ago
//
// Those touched within τ are in the agent's count still. τ is asked for once in ASKED_EVERY_MS: it moves slowly.

import { BinaryHeap } from '../../shared/lib/binary-heap.ts';
import { ChurnMap } from '../../shared/lib/churn.ts';

const ASKED_EVERY_MS = 250;
/** What has left may stay in the heap until its turn; so much more than waits, and the heap is made anew. */
const SLACK = 64;

export interface WaitingTurn<Target> {
  /** It holds most of the conversation. */
  readonly target: Target;
  /** That it holds. */
  readonly tokens: number;
  /** When the conversation was last touched. */
  readonly touchedMs: number;
}

interface Entry<Target> extends WaitingTurn<Target> {
  counts: boolean;
  left: boolean;
}

export class WaitingTurns<Target> {
  readonly #turns = new ChurnMap<string, Entry<Target>>();
  /** Those that do not count yet, the least recently touched first; some have left. */
  #fresh = heapOf<Target>();
  readonly #tokens = new Map<Target, number>();
  #askedMs = Number.NEGATIVE_INFINITY;

  get size(): number {
    return this.#turns.size;
  }

  /** In memory: those that do not count yet, and some that have left. */
  get kept(): number {
    return this.#fresh.size;
  }

  waits(id: string, turn: WaitingTurn<Target>): void {
    this.left(id);
    const entry = { ...turn, counts: false, left: false };
    this.#turns.set(id, entry);
    this.#fresh.push(entry);
    if (this.#fresh.size > 2 * this.#turns.size + SLACK) this.#fresh.prune((each) => !each.left);
  }

  left(id: string): void {
    const entry = this.#turns.get(id);
    if (entry === undefined) return;
    this.#turns.delete(id);
    entry.left = true;
    if (entry.counts) this.#add(entry, -1);
    if (this.#turns.size > 0) return;
    this.#fresh = heapOf();
    this.#tokens.clear();
  }

  /** Null: unknown, nobody counts that did not before. */
  settle(nowMs: number, tauMs: () => number | null): void {
    if (this.#turns.size === 0 || nowMs < this.#askedMs + ASKED_EVERY_MS) return;
    this.#askedMs = nowMs;
    const restedMs = tauMs() ?? Number.POSITIVE_INFINITY;
    for (let entry = this.#fresh.peek(); entry !== undefined; entry = this.#fresh.peek()) {
      if (!entry.left && nowMs - entry.touchedMs <= restedMs) return;
      this.#fresh.pop();
      if (entry.left) continue;
      entry.counts = true;
      this.#add(entry, 1);
    }
  }

  tokens(target: Target): number {
    return this.#tokens.get(target) ?? 0;
  }

  #add({ target, tokens }: Entry<Target>, sign: 1 | -1): void {
    const sum = this.tokens(target) + sign * tokens;
    if (sum > 0) this.#tokens.set(target, sum);
    else this.#tokens.delete(target);
  }
}

function heapOf<Target>(): BinaryHeap<Entry<Target>> {
  return new BinaryHeap((a, b) => a.touchedMs < b.touchedMs);
}
