// What happens to a regional router's core and what the core wants done. The shell and the simulator translate
// the world into these events and carry the effects out; neither decides anything.

import type { Decision } from '../../shared/model/decision.ts';
import type { UplinkSettings } from '../../shared/model/global-settings.ts';
import type {
  Incarnation,
  LinkId,
  PoolId,
  RegionId,
  ReplicaId,
  RouterId,
  Target,
} from '../../shared/model/ids.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import type { RequestAttempt, RequestEffect, RequestEvent } from '../policy/request-events.ts';
import type {
  AgentMessage,
  CloseReason,
  Hello,
  RouterMessage,
} from '../../shared/protocol/messages.ts';
import type { SiblingSends } from '../../shared/protocol/sibling-messages.ts';
import type {
  RegionChildMessage,
  RegionParentMessage,
} from '../../shared/protocol/region-messages.ts';

/** One try at one replica. Exactly one lease; the shell answers it with exactly one `attemptEnded`. */
export interface Attempt extends RequestAttempt {
  readonly target: Target;
  readonly incarnation: Incarnation | null;
  readonly pool: PoolId;
  /** Sent as `X-data-parallel-rank` where there are several. */
  readonly rankHeader: number | null;
  /** Name that the engine knows the model by: spliced in where it differs from the client's. */
  readonly engineModel: string;
  /** What the decision expected, for log and metrics. */
  readonly queueMs: number;
  readonly waitMs: number;
  readonly prefillMs: number;
  readonly predictedPromptTokens: number;
  readonly predictedCachedTokens: number;
}

export type RouterEvent =
  | RequestEvent
  | {
      readonly kind: 'linkUp';
      readonly link: LinkId;
      readonly hello: Hello;
      /** Link addresses of this router's workers, as the agent reaches them. Absent: it is one process. */
      readonly siblings?: readonly string[];
    }
  /** `reason` is for the log. */
  | { readonly kind: 'linkDown'; readonly link: LinkId; readonly reason?: string }
  | {
      readonly kind: 'message';
      readonly link: LinkId;
      readonly message: Exclude<AgentMessage, Hello>;
    }
  /** A link to a global router: this side says hello. */
  | { readonly kind: 'globalUp'; readonly link: LinkId }
  | { readonly kind: 'globalDown'; readonly link: LinkId; readonly reason?: string }
  | {
      readonly kind: 'globalMessage';
      readonly link: LinkId;
      readonly message: RegionParentMessage;
    }
  /** A link that another router of the region has dialled: it tells what it sends. */
  | { readonly kind: 'siblingUp'; readonly link: LinkId; readonly router: RouterId }
  | { readonly kind: 'siblingDown'; readonly link: LinkId }
  | { readonly kind: 'siblingMessage'; readonly link: LinkId; readonly message: SiblingSends }
  /** A link to another router of the region, which has welcomed this one: it is told what this one sends. */
  | { readonly kind: 'siblingListens'; readonly link: LinkId }
  | { readonly kind: 'siblingDeaf'; readonly link: LinkId }
  /** The shell's own probe of a replica whose agent is gone. */
  | { readonly kind: 'probed'; readonly replica: ReplicaId; readonly ok: boolean }
  /** A new configuration generation. */
  | { readonly kind: 'configured'; readonly config: RegionalCoreConfig };

export type RouterEffect =
  | RequestEffect<Attempt, Decision>
  | { readonly kind: 'send'; readonly link: LinkId; readonly message: RouterMessage }
  | { readonly kind: 'close'; readonly link: LinkId; readonly reason: CloseReason }
  | { readonly kind: 'sendGlobal'; readonly link: LinkId; readonly message: RegionChildMessage }
  | { readonly kind: 'closeGlobal'; readonly link: LinkId; readonly reason: CloseReason }
  /** To one sibling that listens, and to all of them. */
  | { readonly kind: 'sendSibling'; readonly link: LinkId; readonly message: SiblingSends }
  | { readonly kind: 'tellSiblings'; readonly message: SiblingSends }
  /** A link that a sibling has dialled. */
  | { readonly kind: 'closeSibling'; readonly link: LinkId; readonly reason: CloseReason }
  /** Ask the replica for a one-token generation; answered by `probed`. */
  | {
      readonly kind: 'probe';
      readonly replica: ReplicaId;
      readonly pool: PoolId;
      readonly url: string;
      readonly model: string;
    };

export interface PoolConfig {
  readonly id: PoolId;
  /** Public model names served by this pool; empty = whatever its replicas report. */
  readonly models: readonly string[];
  /** Public name → engine's name. */
  readonly aliases: Readonly<Record<string, string>>;
  /** Public name → the one revision that it stands for. Absent: names stand for whatever runs. */
  readonly revisions?: Readonly<Record<string, string>>;
}

export interface RegionalCoreConfig {
  readonly settings: RegionalSettings;
  readonly pools: readonly PoolConfig[];
  /** Link addresses of the routers of this region, for the welcome. */
  readonly siblings: readonly string[];
  /** What it is to the global tier. Absent: there is none. */
  readonly uplink?: UplinkConfig;
}

export interface UplinkConfig {
  /** As the global routers' configuration names it. */
  readonly region: RegionId;
  readonly settings: UplinkSettings;
}
