// What the region's other routers have sent to one target, as they tell it themselves, and what of it no report includes.
//
//   open      sent and not past its prefill
//   unacked   of these, those that the agent's last report does not include: a report says for each router up to which
//             of its ledger events it does, so that nothing is counted in a report and beside it
//
//   growth    of a target's working set by the unacknowledged ones. One that is past its prefill before a report includes
//             it adds none meanwhile: reports that are so late are known to be (`sight.ts`)
//
// Each send is opened and ended once; what is told twice changes nothing. A router that is forgotten leaves nothing.

import {
  addSums,
  emptySums,
  resetSums,
  subtractSums,
  type PrefillSums,
} from '../../shared/model/cost-curve.ts';
import type { RouterId } from '../../shared/model/ids.ts';

/** Routers of which a target remembers what reports include; the one that was heard of longest ago goes first. */
const ROUTERS_MAX = 256;

export interface OthersSend {
  readonly router: RouterId;
  readonly sums: Readonly<PrefillSums>;
  /** Requests that an engine makes of it. */
  readonly requests: number;
  /** Of its target's working set; 0 where its router does not say. */
  readonly growthTokens: number;
  /** Of the ledger event that told its agent; null while none has. */
  seq: number | null;
  unacked: boolean;
}

export class OthersWork {
  readonly open: PrefillSums = emptySums();
  readonly unacked: PrefillSums = emptySums();
  /** Of the unacknowledged ones, as an engine counts them. */
  requests = 0;
  /** Of the unacknowledged ones. */
  growthTokens = 0;
  #count = 0;
  #unackedCount = 0;
  /** Up to which of its events the last report includes a router's. */
  readonly #acked = new Map<RouterId, number>();
  /** Unacknowledged sends of a router. */
  readonly #waiting = new Map<RouterId, Set<OthersSend>>();

  /** Of sends that are open. */
  get count(): number {
    return this.#count;
  }

  opened(
    router: RouterId,
    of: Pick<OthersSend, 'sums' | 'requests' | 'growthTokens' | 'seq'>,
  ): OthersSend {
    const send: OthersSend = { ...of, router, unacked: false };
    this.#count += 1;
    addSums(this.open, send.sums);
    if (!this.#includes(send)) this.#wait(send);
    return send;
  }

  /** Its agent was told of it anew, on a new link. */
  toldAnew(send: OthersSend, seq: number | null): void {
    send.seq = seq;
    const includes = this.#includes(send);
    if (includes && send.unacked) this.#waitNoMore(send);
    else if (!includes && !send.unacked) this.#wait(send);
  }

  ended(send: OthersSend): void {
    this.#count -= 1;
    subtractSums(this.open, send.sums);
    if (send.unacked) this.#waitNoMore(send);
    if (this.#count === 0) resetSums(this.open);
  }

  /** A report includes the router's events up to `seq`. */
  acknowledged(router: RouterId, seq: number): void {
    this.#acked.delete(router);
    this.#acked.set(router, seq);
    if (this.#acked.size > ROUTERS_MAX) this.#forgetOldest();
    for (const send of this.#waiting.get(router) ?? []) {
      if (this.#includes(send)) this.#waitNoMore(send);
    }
  }

  /** The agent has another link: what its reports include is told from the beginning. */
  forgetAcks(): void {
    this.#acked.clear();
  }

  #includes({ router, seq }: OthersSend): boolean {
    return seq !== null && seq <= (this.#acked.get(router) ?? -1);
  }

  #wait(send: OthersSend): void {
    send.unacked = true;
    this.#unackedCount += 1;
    this.requests += send.requests;
    this.growthTokens += send.growthTokens;
    addSums(this.unacked, send.sums);
    const waiting = this.#waiting.get(send.router);
    if (waiting === undefined) this.#waiting.set(send.router, new Set([send]));
    else waiting.add(send);
  }

  #waitNoMore(send: OthersSend): void {
    send.unacked = false;
    this.#unackedCount -= 1;
    this.requests -= send.requests;
    this.growthTokens -= send.growthTokens;
    subtractSums(this.unacked, send.sums);
    const waiting = this.#waiting.get(send.router);
    waiting?.delete(send);
    if (waiting?.size === 0) this.#waiting.delete(send.router);
    if (this.#unackedCount > 0) return;
    resetSums(this.unacked);
    this.growthTokens = 0;
  }

  #forgetOldest(): void {
    const [oldest] = this.#acked.keys();
    if (oldest !== undefined) this.#acked.delete(oldest);
  }
}
