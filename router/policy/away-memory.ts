// Conversations that live in this region and would not by distance, so that any global router knows where to send their
// next turn. Kept under keys without content, bounded, and forgotten when little of them can be left in a KV cache.
//
// Each reader is told what has changed since it was last told, or everything where that is further back than the journal
// goes. A conversation of a tenant that is bound to zones is told only to readers in one of them, and so is its end.

import { RecentMap } from '../../shared/lib/recent-map.ts';

/** Where a reader's last telling ended: opaque to it. */
export type AwayCursor = number;

export interface AwayNote {
  readonly key: string;
  /** Of its whole history. */
  readonly tokens: number;
  /** Since when it is here. */
  readonly sinceMs: number;
  /** Zones in which it may be told; null: everywhere. */
  readonly zones: readonly string[] | null;
}

export interface AwayTold {
  readonly snapshot: boolean;
  readonly here: readonly {
    readonly key: string;
    readonly tokens: number;
    readonly idleMs: number;
    readonly awayForMs: number;
  }[];
  readonly gone: readonly string[];
  readonly cursor: AwayCursor;
}

interface Entry extends AwayNote {
  readonly endedMs: number;
}

interface Change {
  readonly key: string;
  readonly zones: readonly string[] | null;
}

/** Changes that are remembered one by one. */
const JOURNAL_MAX = 16_384;

export class AwayMemory {
  /** Least recently ended first. */
  readonly #entries = new RecentMap<string, Entry>();
  readonly #journal: Change[] = [];
  /** Changes that have left the journal. */
  #dropped = 0;

  get size(): number {
    return this.#entries.size;
  }

  /** A turn of it has ended here. True where another had to be forgotten for it. */
  note(note: AwayNote, nowMs: number, max: number): boolean {
    if (max <= 0) return false;
    this.#entries.set(note.key, { ...note, endedMs: nowMs });
    this.#changed(note);
    let full = false;
    while (this.#entries.size > max) {
      full = true;
      this.#forgetOldest();
    }
    return full;
  }

  /** Forgets those that have been idle for `lifeMs`. */
  expire(nowMs: number, lifeMs: number): void {
    for (const { endedMs } of this.#entries.values()) {
      if (nowMs - endedMs < lifeMs) return;
      this.#forgetOldest();
    }
  }

  /** For a reader in `zone` (null: in none), who was last told up to `cursor` (null: of nothing). */
  tell(zone: string | null, cursor: AwayCursor | null, nowMs: number): AwayTold {
    const end = this.#dropped + this.#journal.length;
    if (cursor === null || cursor < this.#dropped) {
      const all = [...this.#entries.values()].filter((entry) => maySee(entry, zone));
      return {
        snapshot: true,
        here: all.map((each) => asTold(each, nowMs)),
        gone: [],
        cursor: end,
      };
    }
    const here: Entry[] = [];
    const gone: string[] = [];
    const seen = new Set<string>();
    for (const change of this.#journal.slice(cursor - this.#dropped)) {
      if (seen.has(change.key)) continue;
      seen.add(change.key);
      const entry = this.#entries.get(change.key);
      if (entry !== undefined && maySee(entry, zone)) here.push(entry);
      else if (entry === undefined && maySee(change, zone)) gone.push(change.key);
    }
    return { snapshot: false, here: here.map((each) => asTold(each, nowMs)), gone, cursor: end };
  }

  #forgetOldest(): void {
    const oldest = this.#entries.takeOldest();
    if (oldest !== null) this.#changed(oldest[1]);
  }

  #changed({ key, zones }: AwayNote): void {
    this.#journal.push({ key, zones });
    if (this.#journal.length < 2 * JOURNAL_MAX) return;
    this.#journal.splice(0, JOURNAL_MAX);
    this.#dropped += JOURNAL_MAX;
  }
}

function maySee({ zones }: Pick<AwayNote, 'zones'>, zone: string | null): boolean {
  return zones === null || (zone !== null && zones.includes(zone));
}

function asTold({ key, tokens, sinceMs, endedMs }: Entry, nowMs: number): AwayTold['here'][number] {
  const idleMs = Math.max(0, nowMs - endedMs);
  return { key, tokens, idleMs, awayForMs: Math.max(0, nowMs - sinceMs) };
}
