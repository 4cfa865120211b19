// What happens to a regional router's core and what the core wants done. The shell and the simulator translate
// the world into these events and carry the effects out; neither decides anything.

import type { Decision } from '../../shared/model/decision.ts';
import type {
  Incarnation,
  LeaseId,
  LinkId,
  PoolId,
  ReplicaId,
  RequestId,
  Target,
} from '../../shared/model/ids.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import type { ErrorCode, LogLevel } from '../../shared/errors.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { RequestWork } from '../policy/request-work.ts';
import type {
  AgentMessage,
  CloseReason,
  Hello,
  RouterMessage,
} from '../../shared/protocol/messages.ts';

/** Everything about a request that routing may look at. */
export interface RouteRequest {
  readonly id: RequestId;
  readonly tenant: string;
  /** Public model name as the client wrote it. */
  readonly model: string;
  readonly stream: boolean;
  /** Lower is more urgent; 0 is the default. */
  readonly priority: number;
  /** 0: nothing is generated, the answer is due when a first token would be. */
  readonly maxTokens: number | null;
  /** Of each prompt; an engine runs each as a request of its own. Absent: 1. */
  readonly answers?: number;
  /** Absent: a generation. */
  readonly work?: RequestWork;
  /** The engine cuts a prompt that is too long: none is refused for its length. Absent: it does not. */
  readonly truncates?: boolean;
  /**
   * ms from arrival after which the client no longer waits for its first token, or where it is not streamed for the
   * whole answer; null when unknown.
   */
  readonly clientDeadlineMs: number | null;
  /** It was refused before, as its client says. Absent: it was not. */
  readonly comesAgain?: boolean;
  /** Decisions about it show their candidates. Absent: they do not. */
  readonly explain?: boolean;
  /** Bytes held in memory while it is queued. */
  readonly bodyBytes: number;
  /** One chain an element of a list prompt; none for light work. */
  readonly prompts: readonly PromptChain[];
}

/** One try at one replica. Exactly one lease; the shell answers it with exactly one `attemptEnded`. */
export interface Attempt {
  readonly lease: LeaseId;
  readonly request: RequestId;
  readonly number: number;
  readonly target: Target;
  readonly incarnation: Incarnation | null;
  readonly pool: PoolId;
  /** Base URL of the engine, no path. */
  readonly url: string;
  /** Sent as `X-data-parallel-rank` where there are several. */
  readonly rankHeader: number | null;
  /** Name that the engine knows the model by: spliced in where it differs from the client's. */
  readonly engineModel: string;
  readonly connectTimeoutMs: number;
  /** From sending to the first data event (to the whole answer when not streamed). */
  readonly firstTokenTimeoutMs: number;
  /** Between two pieces of the stream. */
  readonly stallTimeoutMs: number;
  /** What the decision expected, for log and metrics. */
  readonly queueMs: number;
  readonly waitMs: number;
  readonly prefillMs: number;
  readonly predictedTtftMs: number | null;
  readonly predictedPromptTokens: number;
  readonly predictedCachedTokens: number;
}

export type RouterEvent =
  | { readonly kind: 'tick' }
  | { readonly kind: 'arrived'; readonly request: RouteRequest }
  /** The client of a request left. Queued: it is dropped. Sent: the core asks for the attempt's abort. */
  | { readonly kind: 'clientGone'; readonly request: RequestId }
  | { readonly kind: 'firstToken'; readonly lease: LeaseId }
  | {
      readonly kind: 'attemptEnded';
      readonly lease: LeaseId;
      readonly result: AttemptResult;
      /** A data event was forwarded to the client: no other attempt may follow. */
      readonly committed: boolean;
    }
  /** The first-token deadline passed: the core extends it or gives up. */
  | { readonly kind: 'firstTokenLate'; readonly lease: LeaseId }
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
  /** The shell's own probe of a replica whose agent is gone. */
  | { readonly kind: 'probed'; readonly replica: ReplicaId; readonly ok: boolean }
  /** A new configuration generation. */
  | { readonly kind: 'configured'; readonly config: RegionalCoreConfig }
  /** Stop accepting: new arrivals are refused, the rest ends. */
  | { readonly kind: 'drain' };

export type RouterEffect =
  | { readonly kind: 'attempt'; readonly attempt: Attempt; readonly decision: Decision }
  /** The request waits in the queue. */
  | { readonly kind: 'queued'; readonly request: RequestId; readonly decision: Decision }
  /** The request ends with an error, before any data event. `decision` is null when it did not come to one. */
  | {
      readonly kind: 'refuse';
      readonly request: RequestId;
      readonly decision: Decision | null;
      readonly code: ErrorCode;
      readonly message: string;
      readonly retryAfterMs: number | null;
    }
  /** Destroy the attempt's socket; its `attemptEnded` has still to come, with the given result's meaning. */
  | {
      readonly kind: 'abort';
      readonly lease: LeaseId;
      readonly reason: 'client_gone' | 'first_token_timeout';
    }
  | { readonly kind: 'extend'; readonly lease: LeaseId; readonly timeoutMs: number }
  | { readonly kind: 'send'; readonly link: LinkId; readonly message: RouterMessage }
  | { readonly kind: 'close'; readonly link: LinkId; readonly reason: CloseReason }
  /** Ask the replica for a one-token generation; answered by `probed`. */
  | {
      readonly kind: 'probe';
      readonly replica: ReplicaId;
      readonly url: string;
      readonly model: string;
    }
  /** For metrics: a limit was reached. */
  | { readonly kind: 'limit'; readonly limit: LimitName }
  | {
      readonly kind: 'log';
      readonly level: LogLevel;
      readonly code: string;
      readonly fields: Readonly<Record<string, string | number | boolean | null>>;
    };

export interface PoolConfig {
  readonly id: PoolId;
  /** Public model names served by this pool; empty = whatever its replicas report. */
  readonly models: readonly string[];
  /** Public name → engine's name. */
  readonly aliases: Readonly<Record<string, string>>;
}

export interface RegionalCoreConfig {
  readonly settings: RegionalSettings;
  readonly pools: readonly PoolConfig[];
  /** Link addresses of the routers of this region, for the welcome. */
  readonly siblings: readonly string[];
}
