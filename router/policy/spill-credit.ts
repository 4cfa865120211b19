// What a region lets others send it: credit in prefill ms, given by each of its routers and spent by global routers.
//
//   headroom    ready replicas · (spillStartMs − own estimate) + what they serve in one interval beyond what comes: what may
//               be added before the region is itself hot, and what goes on being served until the next grant
//   free        headroom / routers − what is granted and neither spent nor lapsed, shared by what senders ask for
//   small       where it is not a request for each, whole requests are given, first to who has got nothing for longest. What
//               is larger than a router's whole part keeps nobody waiting: its sender's part is saved for it, life by life
//   overdraw    a sender with any credit left may send one request more than it has; what it owes lessens what the next
//               grant is worth
//
// So all that is under way to a region exceeds its headroom by one request a sender at most, however many senders there
// are and however old their reports. An account is one link's: what is spent is told as its sum since the link began, so
// that a message which comes twice changes nothing. Life is told as a duration; the giver counts a grant for as much
// longer as messages may take, and so do those of a link that has closed.

export interface CreditSettings {
  /** A grant that is not spent lapses after so long, ms. */
  readonly creditLifeMs: number;
  /** How long after its life a spend may still be on the way to the giver, ms. */
  readonly creditGraceMs: number;
}

export const CREDIT_DEFAULTS: CreditSettings = { creditLifeMs: 5_000, creditGraceMs: 5_000 };

/** Links of which a giver keeps account. */
export const ACCOUNTS_MAX = 1_024;
/** Grants of one account that are open. */
const OPEN_MAX = 256;

export interface Grant {
  readonly prefillMs: number;
  readonly lifeMs: number;
}

export interface Demand {
  /** Prefill that it would send here until it says so again, ms: what it is given lessens it. */
  readonly wantsMs: number;
  /** Prefill of one of its requests, ms; more than 0. */
  readonly requestMs: number;
  /** All that it has spent of this account since the link began, ms. */
  readonly spentMs: number;
}

interface Slice {
  leftMs: number;
  readonly untilMs: number;
}

interface Account {
  wantsMs: number;
  requestMs: number;
  spentMs: number;
  owedMs: number;
  closed: boolean;
  readonly open: Slice[];
}

/** How far grants look ahead: until the next ones, ms. */
const INTERVAL_MS = 1_000;

/** Of a pool, as one of its routers sees it. */
export interface PoolLoad {
  readonly readyReplicas: number;
  /** Own estimate; null: unknown. */
  readonly queueMs: number | null;
  /** Prefill that comes, ms a ms, of the whole region; null: unknown. */
  readonly inflowPerMs: number | null;
}

/** Prefill ms that others may add until the next grant; null where the load is unknown. */
export function headroomMs(load: PoolLoad, spillStartMs: number): number | null {
  const { readyReplicas, queueMs, inflowPerMs } = load;
  if (queueMs === null) return null;
  if (queueMs >= spillStartMs) return 0;
  const spare = inflowPerMs === null ? 0 : Math.max(0, readyReplicas - inflowPerMs);
  return readyReplicas * (spillStartMs - queueMs) + spare * INTERVAL_MS;
}

type Asking<LinkId> = readonly [LinkId, Account];
type Given<LinkId> = readonly [LinkId, Grant];

/** The giving side: one a (router of a region, pool). */
export class CreditGiver<LinkId extends string> {
  /** The one that was given to last is last. */
  readonly #accounts = new Map<LinkId, Account>();
  #savedMs = 0;
  #steppedMs: number | null = null;

  /** False where there are too many to keep account of: it gets nothing. */
  demand(link: LinkId, demand: Demand, nowMs: number): boolean {
    const account = this.#accounts.get(link) ?? this.#open(link);
    if (account === null) return false;
    lapse(account.open, nowMs);
    account.wantsMs = Math.max(0, demand.wantsMs);
    account.requestMs = demand.requestMs;
    const spentMs = Math.max(0, demand.spentMs - account.spentMs);
    account.spentMs += spentMs;
    account.owedMs += take(account.open, spentMs);
    return true;
  }

  /** The link is closed: what it has may still be on the way. */
  closed(link: LinkId): void {
    const account = this.#accounts.get(link);
    if (account === undefined) return;
    account.closed = true;
    account.wantsMs = 0;
  }

  /** Granted and neither spent nor lapsed, ms. */
  outstandingMs(nowMs: number): number {
    let sum = 0;
    for (const [link, { open, closed }] of this.#accounts) {
      lapse(open, nowMs);
      sum += left(open);
      if (closed && open.length === 0) this.#accounts.delete(link);
    }
    return sum;
  }

  /** New grants. `headroomMs`: the region's, as this router sees it; null: unknown, and nothing is given. */
  grant(
    sight: { readonly headroomMs: number | null; readonly routers: number },
    settings: CreditSettings,
    nowMs: number,
  ): readonly Given<LinkId>[] {
    const sinceMs = Math.max(0, nowMs - (this.#steppedMs ?? nowMs));
    this.#steppedMs = nowMs;
    const outstanding = this.outstandingMs(nowMs);
    if (sight.headroomMs === null) return [];
    const share = Math.max(0, sight.headroomMs) / Math.max(1, sight.routers);
    const freeMs = Math.max(0, share - outstanding);
    const asking = [...this.#accounts].filter(([, { wantsMs }]) => wantsMs > 0);
    const by = { settings, nowMs };
    const oneEachMs = asking.reduce((sum, [, { requestMs }]) => sum + requestMs, 0);
    if (freeMs >= oneEachMs) return this.#split(asking, freeMs, by);
    const large = asking.find(([, { requestMs }]) => requestMs > share);
    if (large !== undefined) {
      const { requestMs } = large[1];
      const partMs = (share * sinceMs) / settings.creditLifeMs / asking.length;
      this.#savedMs = Math.min(requestMs, this.#savedMs + partMs);
      if (this.#savedMs >= requestMs && freeMs > 0) {
        this.#savedMs = 0;
        return this.#give(large, requestMs, by);
      }
    }
    return this.#inTurn(asking, { share, freeMs }, by);
  }

  #split(asking: readonly Asking<LinkId>[], freeMs: number, by: GivenBy): Given<LinkId>[] {
    this.#savedMs = 0;
    const wants = asking.reduce((sum, [, { wantsMs }]) => sum + wantsMs, 0);
    const ratio = Math.min(1, freeMs / wants);
    return asking.flatMap((one) => this.#give(one, one[1].wantsMs * ratio, by));
  }

  /** What is free is kept for the next in turn, unless that one could never have it. */
  #inTurn(
    asking: readonly Asking<LinkId>[],
    room: { readonly share: number; readonly freeMs: number },
    by: GivenBy,
  ): Given<LinkId>[] {
    const given: Given<LinkId>[] = [];
    let leftMs = room.freeMs;
    for (const next of asking) {
      const { requestMs } = next[1];
      if (requestMs > room.share) continue;
      if (requestMs > leftMs) break;
      leftMs -= requestMs;
      given.push(...this.#give(next, requestMs, by));
    }
    return given;
  }

  #give([link, account]: Asking<LinkId>, prefillMs: number, by: GivenBy): Given<LinkId>[] {
    if (!(prefillMs > 0) || account.open.length >= OPEN_MAX) return [];
    const paidMs = Math.min(account.owedMs, prefillMs);
    account.owedMs -= paidMs;
    account.wantsMs = Math.max(0, account.wantsMs - prefillMs);
    const { creditLifeMs: lifeMs, creditGraceMs } = by.settings;
    insert(account.open, {
      leftMs: prefillMs - paidMs,
      untilMs: by.nowMs + lifeMs + creditGraceMs,
    });
    // It is the others' turn now.
    this.#accounts.delete(link);
    this.#accounts.set(link, account);
    return [[link, { prefillMs, lifeMs }]];
  }

  #open(link: LinkId): Account | null {
    if (this.#accounts.size >= ACCOUNTS_MAX) return null;
    const account = { wantsMs: 0, requestMs: 0, spentMs: 0, owedMs: 0, closed: false, open: [] };
    this.#accounts.set(link, account);
    return account;
  }
}

interface GivenBy {
  readonly settings: CreditSettings;
  readonly nowMs: number;
}

interface Giver {
  spentMs: number;
  readonly open: Slice[];
}

/** The spending side: one a (global router, region, pool), over the links to all routers of the region. */
export class CreditPurse<LinkId extends string> {
  readonly #givers = new Map<LinkId, Giver>();
  #owedMs = 0;

  granted(link: LinkId, grant: Grant, nowMs: number): void {
    const giver = this.#giver(link);
    if (giver.open.length >= OPEN_MAX || !(grant.prefillMs > 0)) return;
    const paidMs = Math.min(this.#owedMs, grant.prefillMs);
    this.#owedMs -= paidMs;
    const leftMs = grant.prefillMs - paidMs;
    if (leftMs > 0) insert(giver.open, { leftMs, untilMs: nowMs + grant.lifeMs });
  }

  /** The link is closed: its grants are not spent, since that could not be told. */
  closed(link: LinkId): void {
    this.#givers.delete(link);
  }

  /** What may be spent, ms; below 0: what is owed. */
  balanceMs(nowMs: number): number {
    let sum = -this.#owedMs;
    for (const { open } of this.#givers.values()) {
      lapse(open, nowMs);
      sum += left(open);
    }
    return sum;
  }

  /** Sends one request on credit; false, and nothing spent, where there is none. */
  spend(prefillMs: number, nowMs: number): boolean {
    if (this.balanceMs(nowMs) <= 0) return false;
    let leftMs = prefillMs;
    let last: Giver | null = null;
    for (const giver of this.#bySoonest()) {
      if (leftMs <= 0) break;
      const rest = take(giver.open, leftMs);
      giver.spentMs += leftMs - rest;
      if (rest < leftMs) last = giver;
      leftMs = rest;
    }
    if (leftMs > 0 && last !== null) {
      last.spentMs += leftMs;
      this.#owedMs += leftMs;
    }
    return true;
  }

  /** All that was spent of a link's grants since it began, ms: what it is told. */
  spentMs(link: LinkId): number {
    return this.#givers.get(link)?.spentMs ?? 0;
  }

  /** Givers with credit left, the one whose grant lapses first before others. */
  #bySoonest(): Giver[] {
    const first = ({ open }: Giver): number => open[0]?.untilMs ?? Number.POSITIVE_INFINITY;
    return [...this.#givers.values()]
      .filter(({ open }) => open.length > 0)
      .toSorted((a, b) => first(a) - first(b));
  }

  #giver(link: LinkId): Giver {
    const giver = this.#givers.get(link) ?? { spentMs: 0, open: [] };
    this.#givers.set(link, giver);
    return giver;
  }
}

/** Whatever lives are given from now on: what lapses first stands first. */
function insert(open: Slice[], slice: Slice): void {
  const before = open.findLastIndex(({ untilMs }) => untilMs <= slice.untilMs);
  open.splice(before + 1, 0, slice);
}

/** What is past its life goes. */
function lapse(open: Slice[], nowMs: number): void {
  const kept = open.findIndex(({ untilMs, leftMs }) => untilMs > nowMs && leftMs > 0);
  if (kept === -1) open.length = 0;
  else if (kept > 0) open.splice(0, kept);
}

/** Takes what lapses first; returns what was not there. */
function take(open: Slice[], amountMs: number): number {
  let rest = amountMs;
  for (const slice of open) {
    const taken = Math.min(rest, slice.leftMs);
    slice.leftMs -= taken;
    rest -= taken;
    if (rest <= 0) break;
  }
  while ((open[0]?.leftMs ?? 1) <= 0) open.shift();
  return rest;
}

function left(open: readonly Slice[]): number {
  return open.reduce((sum, { leftMs }) => sum + leftMs, 0);
}
