// Links to the global routers: one to each process behind the configured names. What they mean is the core's business.

import type { LinkId } from '../../shared/model/ids.ts';
import type { RegionChildMessage } from '../../shared/protocol/region-messages.ts';
import type { CloseReason } from '../../shared/protocol/messages.ts';
import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import {
  startLinkClient,
  type LinkClient,
  type LinkClientStats,
} from '../../shared/runtime/link-client.ts';
import type { Resolve } from '../../shared/runtime/link-names.ts';
import type { LinkEnd } from '../../shared/runtime/link-socket.ts';
import { REGION_LINK_LIMITS, REGION_OF_ROUTERS } from '../../shared/runtime/region-link.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { RouterEvent } from './events.ts';
import type { UplinkOptions } from './options.ts';

export interface UplinkDeps {
  readonly options: UplinkOptions;
  readonly runtime: RoleRuntime;
  readonly trust: PeerTrust | null;
  readonly post: (event: RouterEvent) => void;
  readonly ended: (reason: LinkEnd) => void;
  /** Absent: as the system resolves. */
  readonly resolve?: Resolve | undefined;
}

export class Uplink {
  readonly #client: LinkClient<RegionChildMessage>;

  constructor(deps: UplinkDeps) {
    const { options, runtime, trust, post, ended, resolve } = deps;
    this.#client = startLinkClient({
      words: REGION_OF_ROUTERS,
      urls: options.urls,
      secret: options.secret,
      trust,
      runtime: { ...runtime, log: runtime.log.child({ tier: 'global' }) },
      limits: REGION_LINK_LIMITS,
      ...(resolve === undefined ? {} : { resolve }),
      onUp: (link) => post({ kind: 'globalUp', link }),
      onMessage: (link, message) => post({ kind: 'globalMessage', link, message }),
      onDown: (link, reason) => {
        ended(reason);
        post({ kind: 'globalDown', link, reason });
      },
    });
  }

  send(link: LinkId, message: RegionChildMessage): void {
    this.#client.send(link, message);
  }

  closeLink(link: LinkId, reason: CloseReason): void {
    this.#client.closeLink(link, reason);
  }

  stats(): LinkClientStats {
    return this.#client.stats();
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}
