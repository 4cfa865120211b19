// Who gives way in a waiting place that is full, so that nobody fills it for all.
//
//   1. the least urgent priority that waits, where that is less urgent than the one who comes
//   2. there the tenant with most of what is short, requests or bytes
//   3. of that tenant's, the one who came last
//
// At its own priority one who comes displaces only a tenant that has more than its own would have with it. So a tenant that
// takes no more than an equal part of the place is displaced by nobody of its urgency, and one that is alone may fill it.

import { RecentMap } from '../../shared/lib/recent-map.ts';

export interface Waiting {
  readonly id: string;
  readonly tenant: string;
  /** Lower is more urgent. */
  readonly priority: number;
  readonly bytes: number;
}

export interface WaitingLimits {
  readonly requests: number;
  readonly bytes: number;
}

/** What waits of one tenant at one priority; in the order in which it came. */
interface Share {
  readonly priority: number;
  requests: number;
  bytes: number;
  readonly members: RecentMap<string, Waiting>;
}

export class WaitingShares {
  readonly #shares = new Map<string, Share>();
  #requests = 0;
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  add(member: Waiting): void {
    const key = keyOf(member);
    const { priority } = member;
    const share = this.#shares.get(key) ?? {
      ...{ priority, requests: 0, bytes: 0, members: new RecentMap() },
    };
    this.#shares.set(key, share);
    share.members.set(member.id, member);
    share.requests += 1;
    share.bytes += member.bytes;
    this.#requests += 1;
    this.#bytes += member.bytes;
  }

  remove(member: Waiting): void {
    const key = keyOf(member);
    const share = this.#shares.get(key);
    if (share?.members.delete(member.id) !== true) return;
    share.requests -= 1;
    share.bytes -= member.bytes;
    this.#requests -= 1;
    this.#bytes -= member.bytes;
    if (share.requests === 0) this.#shares.delete(key);
  }

  /** Those who give way to the one who comes, none where there is room; null: it finds none. Changes nothing. */
  givingWayTo(newcomer: Waiting, limits: WaitingLimits): readonly Waiting[] | null {
    if (newcomer.bytes > limits.bytes) return null;
    let requests = this.#requests + 1 - limits.requests;
    let bytes = this.#bytes + newcomer.bytes - limits.bytes;
    if (requests <= 0 && bytes <= 0) return [];
    const going: Waiting[] = [];
    const left = Array.from(this.#shares.values(), leftOf);
    const own = this.#shares.get(keyOf(newcomer)) ?? NOTHING;
    while (requests > 0 || bytes > 0) {
      const short = requests > 0 ? 'requests' : 'bytes';
      const most = own[short] + (short === 'requests' ? 1 : newcomer.bytes);
      const next = fullest(left, short, { priority: newcomer.priority, most });
      const last = next?.walk.next().value;
      if (next === null || last === undefined) return null;
      next.requests -= 1;
      next.bytes -= last.bytes;
      requests -= 1;
      bytes -= last.bytes;
      going.push(last);
    }
    return going;
  }
}

const NOTHING = { requests: 0, bytes: 0 };

/** What is left of a share while it is counted out who gives way. */
interface Left {
  readonly priority: number;
  requests: number;
  bytes: number;
  readonly walk: Iterator<Waiting, void, undefined>;
}

function leftOf({ priority, requests, bytes, members }: Share): Left {
  return { priority, requests, bytes, walk: members.newestFirst() };
}

function fullest(
  shares: Iterable<Left>,
  short: 'requests' | 'bytes',
  than: { readonly priority: number; readonly most: number },
): Left | null {
  let found: Left | null = null;
  for (const share of shares) {
    if (share.requests === 0 || share.priority < than.priority) continue;
    if (share.priority === than.priority && share[short] <= than.most) continue;
    const isLessUrgent = found === null || share.priority > found.priority;
    const isFuller = share.priority === found?.priority && share[short] > found[short];
    if (isLessUrgent || isFuller) found = share;
  }
  return found;
}

function keyOf({ tenant, priority }: Pick<Waiting, 'tenant' | 'priority'>): string {
  return `${priority} ${tenant}`;
}
