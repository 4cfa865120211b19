// What a report should say of one router's requests, by that router's own messages: the plainest possible ledger.
//
//   waiting tokens = Σ uncached tokens of the leases in the link's last `leases` and of each `sent` up to ackedSeq,
//                    without those that a `firstToken` or `ended` up to ackedSeq names

import type { LeaseId, LinkId, ReplicaId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { RouterMessage } from '../../shared/protocol/messages.ts';

type LedgerMessage = Extract<RouterMessage, { kind: 'leases' | 'sent' | 'firstToken' | 'ended' }>;

export class LedgerOracle {
  /** By link and replica, since the last `leases`. */
  readonly #told = new Map<string, LedgerMessage[]>();

  sent(link: LinkId, message: RouterMessage): void {
    if (!isLedger(message)) return;
    const key = `${link} ${message.replica}`;
    if (message.kind === 'leases') this.#told.set(key, [message]);
    else this.#told.get(key)?.push(message);
  }

  /** Waiting tokens that a report on this link should show; null where it acknowledges nothing. */
  reportedTokens(link: LinkId, report: ReplicaReport): number | null {
    if (report.ackedSeq < 0) return null;
    return total(this.#waiting(link, report.replica, report.ackedSeq));
  }

  /** The router's own picture: the report's, and each `sent` after it that has not ended or passed since. */
  viewTokens(link: LinkId, replica: ReplicaId, ackedSeq: number): number {
    const now = this.#waiting(link, replica, Infinity);
    const waiting = this.#waiting(link, replica, ackedSeq);
    for (const [lease, tokens] of now) waiting.set(lease, tokens);
    return total(waiting);
  }

  #waiting(link: LinkId, replica: ReplicaId, ackedSeq: number): Map<LeaseId, number> {
    const waiting = new Map<LeaseId, number>();
    for (const message of this.#told.get(`${link} ${replica}`) ?? []) {
      if (message.seq > ackedSeq) break;
      if (message.kind === 'leases') {
        for (const open of message.open) {
          if (open.firstTokenAgoMs === null) waiting.set(open.lease, open.uncachedTokens);
        }
      } else if (message.kind === 'sent') waiting.set(message.lease, message.uncachedTokens);
      else waiting.delete(message.lease);
    }
    return waiting;
  }
}

function isLedger(message: RouterMessage): message is LedgerMessage {
  const { kind } = message;
  return kind === 'leases' || kind === 'sent' || kind === 'firstToken' || kind === 'ended';
}

function total(waiting: ReadonlyMap<LeaseId, number>): number {
  return [...waiting.values()].reduce((sum, tokens) => sum + tokens, 0);
}
