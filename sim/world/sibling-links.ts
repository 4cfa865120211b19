// Links between the routers of one region in virtual time: each router that is up has one to every other, on which it
// tells what it sends. A link keeps its order; what is on its way when an end dies is lost.

import type { Random } from '../../shared/lib/random.ts';
import type { LinkId } from '../../shared/model/ids.ts';
import type { SiblingSends } from '../../shared/protocol/sibling-messages.ts';
import { decodeSiblingChild, encodeSiblingMessage } from '../../shared/protocol/sibling-codec.ts';
import type { WorldContext } from './context.ts';
import type { LinkTiming } from './link.ts';
import type { RouterHost } from './router-host.ts';

interface SiblingLink {
  readonly id: LinkId;
  readonly from: RouterHost;
  readonly to: RouterHost;
  readonly random: Random;
  /** When the last message arrives. */
  lastAtMs: number;
}

export class SiblingLinks {
  readonly #context: WorldContext;
  readonly #timing: LinkTiming;
  readonly #up: RouterHost[] = [];
  readonly #links = new Map<LinkId, SiblingLink>();
  #opened = 0;
  /** Since the beginning, over all links. */
  readonly sent = { messages: 0, bytes: 0 };

  constructor(context: WorldContext, timing: LinkTiming) {
    this.#context = context;
    this.#timing = timing;
  }

  started(router: RouterHost): void {
    for (const other of this.#up) {
      this.#open(router, other);
      this.#open(other, router);
    }
    this.#up.push(router);
  }

  stopped(router: RouterHost): void {
    const place = this.#up.indexOf(router);
    if (place >= 0) this.#up.splice(place, 1);
    for (const link of [...this.#links.values()]) {
      if (link.from === router || link.to === router) this.close(link.id);
    }
  }

  close(id: LinkId): void {
    const link = this.#links.get(id);
    if (link === undefined) return;
    this.#links.delete(id);
    const { timeline } = this.#context;
    timeline.after(0, () => {
      link.from.sibling({ kind: 'siblingDeaf', link: id });
      link.to.sibling({ kind: 'siblingDown', link: id });
    });
  }

  send(from: RouterHost, id: LinkId, message: SiblingSends): void {
    const link = this.#links.get(id);
    if (link?.from === from) this.#carry(link, encodeSiblingMessage(message));
  }

  tell(from: RouterHost, message: SiblingSends): void {
    const frame = encodeSiblingMessage(message);
    for (const link of this.#links.values()) if (link.from === from) this.#carry(link, frame);
  }

  #open(from: RouterHost, to: RouterHost): void {
    this.#opened += 1;
    const id = `${from.name}>${to.name}/${this.#opened}` as LinkId;
    const link: SiblingLink = { id, from, to, random: this.#context.stream(id), lastAtMs: 0 };
    this.#links.set(id, link);
    this.#later(link, () => {
      to.sibling({ kind: 'siblingUp', link: id, router: from.id });
      from.sibling({ kind: 'siblingListens', link: id });
    });
  }

  #carry(link: SiblingLink, frame: Uint8Array): void {
    this.sent.messages += 1;
    this.sent.bytes += frame.length;
    this.#later(link, () => {
      const decoded = decodeSiblingChild(frame);
      if (!decoded.ok || decoded.message.kind !== 'sends') throw new Error('a frame of ours');
      link.to.sibling({ kind: 'siblingMessage', link: link.id, message: decoded.message });
    });
  }

  /** In order, unless the link ends meanwhile. */
  #later(link: SiblingLink, task: () => void): void {
    const { timeline } = this.#context;
    const { delayMs, jitterMs } = this.#timing;
    const atMs = timeline.nowMs + delayMs + jitterMs * link.random.next();
    link.lastAtMs = Math.max(link.lastAtMs, atMs);
    timeline.at(link.lastAtMs, () => {
      if (this.#links.has(link.id)) task();
    });
  }
}
