// What a regional router remembers of the global tier: its links, what it gave and told, what lives here from afar.

import type { LinkId, PoolId } from '../../shared/model/ids.ts';
import type { RegionModelReport, RegionWelcome } from '../../shared/protocol/region-messages.ts';
import { AwayMemory, type AwayCursor } from '../policy/away-memory.ts';
import type { CreditGiver } from '../policy/spill-credit.ts';

export interface GlobalLink {
  readonly id: LinkId;
  /** Null before it has come. */
  welcome: RegionWelcome | null;
  seq: number;
  readonly arrived: number[];
  awayTold: AwayCursor | null;
}

/** What the last report said of a pool. */
export interface Told {
  readonly ready: number;
  readonly queueMs: number | null;
}

export class RegionTier {
  readonly links = new Map<LinkId, GlobalLink>();
  readonly givers = new Map<PoolId, CreditGiver<LinkId>>();
  readonly away = new AwayMemory();
  readonly told = new Map<PoolId, Told>();
  readonly models = new Map<
    PoolId,
    { readonly atMs: number; readonly rows: readonly RegionModelReport[] }
  >();
  toldDraining = false;
  reportedMs = Number.NEGATIVE_INFINITY;
  lookedMs = Number.NEGATIVE_INFINITY;

  /** A pool that is no longer configured. */
  forget(pool: PoolId): void {
    this.givers.delete(pool);
    this.models.delete(pool);
  }
}
