// Where conversations live: what this router has sent itself, and what regions report as served away from home.
//
//   looked up   at the ends of earlier turns, which stand directly before an assistant message, the last one first. A
//               prompt without any is a new conversation, whatever system prompt it shares with others
//   one key     names one point of a conversation: a later turn has another, so the deepest one that is known is the newest
//   own         every turn that a region has begun to answer; the least recently noted go first
//   away        what regions say, by the region that says it. A snapshot of a region replaces what was there. Where it is too
//               much, the region that has told most forgets first, its own oldest: none makes room by what others told
//   unknown     a prompt with earlier turns that nobody knows lives at home: all that live elsewhere are told of. Unless
//               such prompts of its tenant hardly ever turn out to be conversations (examples given as turns)
//
// Nothing here knows a tenant's regions: what is found is used where the filter lets it.

import { RecentMap } from '../../shared/lib/recent-map.ts';
import type { RegionId } from '../../shared/model/ids.ts';

/** A conversation at the end of one of its turns. */
export interface Dwelling {
  readonly region: RegionId;
  /** Of its whole history, answer included. */
  readonly tokens: number;
  /** When its last turn was served. */
  readonly atMs: number;
  /** Since when it lives there. */
  readonly sinceMs: number;
  /** When it last moved for load; null: never, as far as is known. */
  readonly movedMs: number | null;
  /**
   * Known by its client's id alone: the last answer under that id found most of its history in the cache, as far as this
   * router has seen, or as another one had before it told of it. Absent: nothing of the kind is known.
   */
  readonly vouched?: boolean;
}

/** Ends of turns that are looked up, from the last on: a client that edits its history keeps its beginning. */
export const TURNS_LOOKED_UP = 8;

/** A conversation that is said to be away for longer is so for so long, a hundred days: it goes into signed contexts. */
const AWAY_FOR_MAX_MS = 8.64e9;

/** Routers of a region of which is known what they told: each process has a name of its own. */
const REPORTERS_MAX = 1_024;

/** `reporter` told of it last: that one alone takes it back. */
interface Told {
  readonly dwelling: Dwelling;
  readonly reporter: string;
  readonly by: RegionTold;
}

/** What one region has told that nobody has told of since. */
interface RegionTold {
  readonly keys: RecentMap<string, true>;
  /** Of each of its routers the keys that it told of last; the one that has spoken last is last. */
  readonly reporters: Map<string, Set<string>>;
}

export interface AwayReport {
  readonly snapshot: boolean;
  readonly here: readonly {
    readonly key: string;
    readonly tokens: number;
    readonly idleMs: number;
    readonly awayForMs: number;
  }[];
  readonly gone: readonly string[];
}

export interface AffinityLimits {
  readonly affinityMax: number;
  readonly affinityLifeMs: number;
}

export class ConversationMemory {
  readonly #own = new RecentMap<string, Dwelling>();
  readonly #away = new Map<string, Told>();
  readonly #regions = new Map<RegionId, RegionTold>();

  /** Conversations of which this router knows: sent by itself, told by regions. */
  get sizes(): { readonly own: number; readonly away: number } {
    return { own: this.#own.size, away: this.#away.size };
  }

  /** What is known under one key; of two that know it, the one that served it last. */
  find(key: string, limits: AffinityLimits, nowMs: number): Dwelling | null {
    return newer(this.own(key, limits, nowMs), this.away(key, limits, nowMs));
  }

  /** What was noted here. */
  own(key: string, limits: AffinityLimits, nowMs: number): Dwelling | null {
    return living(this.#own.get(key) ?? null, limits, nowMs);
  }

  /** What a region has told. */
  away(key: string, limits: AffinityLimits, nowMs: number): Dwelling | null {
    if (this.#away.size === 0) return null;
    return living(this.#away.get(key)?.dwelling ?? null, limits, nowMs);
  }

  noted(key: string, dwelling: Dwelling, { affinityMax }: AffinityLimits): void {
    this.#own.set(key, dwelling);
    if (this.#own.size > affinityMax) this.#own.takeOldest();
  }

  /** What one reporter of a region says. */
  reported(
    by: { readonly reporter: string; readonly region: RegionId },
    report: AwayReport,
    at: { readonly limits: AffinityLimits; readonly nowMs: number },
  ): void {
    const { reporter, region } = by;
    const told = this.#toldBy(region);
    if (report.snapshot) {
      for (const key of told.reporters.get(reporter) ?? []) this.#forget(key);
    }
    const keys = keysOf(told, reporter);
    for (const key of report.gone) if (keys.has(key)) this.#forget(key);
    for (const { key, tokens, idleMs, awayForMs } of report.here) {
      const { nowMs, limits } = at;
      const sinceMs = nowMs - Math.min(awayForMs, AWAY_FOR_MAX_MS);
      const since = { sinceMs, movedMs: sinceMs, vouched: true };
      const dwelling = { region, tokens, atMs: nowMs - idleMs, ...since };
      const before = this.#away.get(key);
      if (before !== undefined && before.dwelling.atMs > dwelling.atMs) continue;
      this.#forget(key);
      keys.add(key);
      told.keys.set(key, true);
      this.#away.set(key, { dwelling, reporter, by: told });
      if (this.#away.size > limits.affinityMax) this.#forgetOne();
    }
  }

  #toldBy(region: RegionId): RegionTold {
    const told = this.#regions.get(region) ?? { keys: new RecentMap(), reporters: new Map() };
    this.#regions.set(region, told);
    return told;
  }

  #forget(key: string): void {
    const told = this.#away.get(key);
    if (told === undefined) return;
    this.#away.delete(key);
    told.by.keys.delete(key);
    told.by.reporters.get(told.reporter)?.delete(key);
  }

  /** The oldest of the region that has told most. */
  #forgetOne(): void {
    let most: RegionTold | null = null;
    for (const told of this.#regions.values()) {
      if (most === null || told.keys.size > most.keys.size) most = told;
    }
    const oldest = most?.keys.takeOldest() ?? null;
    if (oldest !== null) this.#forget(oldest[0]);
  }
}

/** Of a reporter that has long said nothing the list is closed: what it told lapses by itself. */
function keysOf({ reporters }: RegionTold, reporter: string): Set<string> {
  const keys = reporters.get(reporter) ?? new Set();
  reporters.delete(reporter);
  reporters.set(reporter, keys);
  if (reporters.size > REPORTERS_MAX) {
    const [silent] = reporters.keys();
    if (silent !== undefined) reporters.delete(silent);
  }
  return keys;
}

/** The first where both were served at once. */
export function newer(a: Dwelling | null, b: Dwelling | null): Dwelling | null {
  if (a === null || b === null) return a ?? b;
  return b.atMs > a.atMs ? b : a;
}

function living(
  dwelling: Dwelling | null,
  { affinityLifeMs }: AffinityLimits,
  nowMs: number,
): Dwelling | null {
  return dwelling === null || nowMs - dwelling.atMs > affinityLifeMs ? null : dwelling;
}

/** Weight of one prompt in a tenant's share. */
const SHARE_WEIGHT = 0.05;
const TENANTS_MAX = 10_000;

/** Of a tenant's prompts with earlier turns: how many turned out to be conversations. Starts from all. */
export class MatchedShare {
  readonly #shares = new Map<string, number>();

  of(tenant: string): number {
    return this.#shares.get(tenant) ?? 1;
  }

  note(tenant: string, matched: boolean): void {
    const before = this.of(tenant);
    if (!this.#shares.has(tenant) && this.#shares.size >= TENANTS_MAX) return;
    this.#shares.set(tenant, before + SHARE_WEIGHT * (Number(matched) - before));
  }
}
