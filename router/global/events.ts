// What happens to a global router's core and what the core wants done. The shell and the simulator translate the world
// into these events and carry the effects out; neither decides anything.

import type { GlobalDecision } from '../../shared/model/global-decision.ts';
import type { GlobalSettings } from '../../shared/model/global-settings.ts';
import type { LinkId, PoolId, RegionId } from '../../shared/model/ids.ts';
import type { TurnEnd } from '../../shared/model/prompt.ts';
import type { NamedConversation } from '../../shared/lib/conversation-key.ts';
import type { HintVerdict } from '../../shared/lib/placement-hint.ts';
import type { CloseReason } from '../../shared/protocol/messages.ts';
import type {
  RegionChildMessage,
  RegionHello,
  RegionParentMessage,
} from '../../shared/protocol/region-messages.ts';
import type { RttOver } from '../policy/rtt.ts';
import type { Residency, RolloutMode } from '../policy/region-filter.ts';
import type { RequestAttempt, RequestEffect, RequestEvent } from '../policy/request-events.ts';
import type { HintResult } from './core-conversation.ts';

/** One try in one region. `url` is the base URL of its tier port. What the signed context says of it is here. */
export interface GlobalAttempt extends RequestAttempt {
  readonly region: RegionId;
  /** Of the region's, as its reports name it; for metrics and log. */
  readonly pool: PoolId;
  /** Counted per region from 1: the region's reports say which have arrived. */
  readonly seq: number;
  readonly tenant: string;
  readonly saltGroup: string;
  readonly residency: Residency | null;
  /** Zones in which its conversation may be told of; null: everywhere. */
  readonly zones: readonly string[] | null;
  /** The conversation after this turn; null: nobody is to be told of it. */
  readonly conversation: string | null;
  /** The same by its client's id; null: it has none that counts. */
  readonly byId: string | null;
  /** Revisions of the model that will do; null: every one. */
  readonly revisions: readonly string[] | null;
  /** For the hint that its client asks for; null: it asks for none. */
  readonly hint: HintedTimes | null;
  /** It is served away from home. */
  readonly away: boolean;
  /** For how long its conversation has been away already, ms; 0 where it comes there now. */
  readonly awayForMs: number;
  /** What is left for the first token (the whole answer where it is not streamed), ms; null: the client set none. */
  readonly deadlineInMs: number | null;
  /** What the decision expected, for log and metrics; null: unknown. */
  readonly networkMs: number | null;
  readonly queueMs: number | null;
  readonly prefillMs: number | null;
  readonly predictedPromptTokens: number;
  readonly predictedCachedTokens: number;
}

/** Of a conversation in the region of its attempt. */
export interface HintedTimes {
  /** Since when it lives there, ms ago. */
  readonly sinceAgoMs: number;
  /** When it last moved for load, ms ago; null: never, as far as is known. */
  readonly movedAgoMs: number | null;
}

export type GlobalEvent =
  | RequestEvent
  /** `region` is what the link's credential says. */
  | {
      readonly kind: 'regionUp';
      readonly link: LinkId;
      readonly region: RegionId;
      readonly hello: RegionHello;
    }
  /** `reason` is for the log. */
  | { readonly kind: 'regionDown'; readonly link: LinkId; readonly reason?: string }
  | {
      readonly kind: 'regionMessage';
      readonly link: LinkId;
      readonly message: Exclude<RegionChildMessage, RegionHello>;
    }
  /** A round trip to the region was measured, on a link or on a connection that requests take. */
  | {
      readonly kind: 'rtt';
      readonly region: RegionId;
      readonly rttMs: number;
      /** Absent: on the link. */
      readonly over?: RttOver;
    }
  /** Whether a connection to the region stands ready for a request; cold until said otherwise. */
  | { readonly kind: 'warmth'; readonly region: RegionId; readonly warm: boolean }
  /** A synthetic generation through the whole path has ended. */
  | { readonly kind: 'probed'; readonly region: RegionId; readonly result: RegionProbe }
  /** A new configuration generation. */
  | { readonly kind: 'configured'; readonly config: GlobalCoreConfig };

export type RegionProbe =
  | {
      readonly kind: 'good';
      readonly ttftMs: number;
      /** Its pieces came together: something on the way holds them back. Null: too few to tell. */
      readonly buffered: boolean | null;
    }
  /** The region says itself that it has no room: it lives. */
  | { readonly kind: 'busy' }
  | { readonly kind: 'failed'; readonly detail: string };

export type GlobalEffect =
  | RequestEffect<GlobalAttempt, GlobalDecision>
  | { readonly kind: 'send'; readonly link: LinkId; readonly message: RegionParentMessage }
  | { readonly kind: 'close'; readonly link: LinkId; readonly reason: CloseReason }
  /** For metrics: what came of a hint that a client brought. */
  | { readonly kind: 'hinted'; readonly result: HintResult };

/** A region as the global router's own configuration says it is. */
export interface RegionConfig {
  readonly id: RegionId;
  readonly zone: string;
  readonly certifications: readonly string[];
  readonly tiers: readonly string[];
  /** Price, as ms per thousand tokens. */
  readonly costMs: number;
  /** Base URL of its tier port. */
  readonly baseUrl: string;
  readonly rollout: RolloutMode;
}

/** What routing has to keep to for a tenant. */
export interface TenantFacts {
  /** Null: it may be served everywhere. */
  readonly residency: Residency | null;
  readonly saltGroup: string;
  /** Public names, or `name@revision`; null: all. */
  readonly models: readonly string[] | null;
  readonly certifications: readonly string[];
  readonly tier: string | null;
}

export interface GlobalCoreConfig {
  readonly settings: GlobalSettings;
  /** Of this router; null: none. */
  readonly zone: string | null;
  readonly regions: readonly RegionConfig[];
  /** By name. A request of any other tenant is refused, unless there are none at all. */
  readonly tenants: ReadonlyMap<string, TenantFacts>;
}

/** Names a conversation without its content. The same in every global router. */
export interface ConversationKeys {
  /** Secrets by which keys may have been made; the first, 0, makes them. */
  readonly generations: number;
  keyOf(tenant: string, end: TurnEnd, generation?: number): string;
  keyOfId(named: NamedConversation, generation?: number): string;
}

/** Reads what another global router has signed. */
export interface ConversationHints {
  open(
    token: string,
    tenant: string,
    at: { readonly wallMs: number; readonly lifeMs: number },
  ): HintVerdict;
}
