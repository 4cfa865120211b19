// A request as every tier's core sees it, and what happens to it: the same words in a region and before all regions, so
// that one gateway serves both. A core adds its own events and effects beside these.
//
//   arrived → (queued)* → attempt → attemptEnded → attempt … → refuse, or the last attempt's answer
//
// Every attempt is answered with exactly one `attemptEnded`; after `refuse` nothing follows.

import type { ErrorCode, LogLevel } from '../../shared/errors.ts';
import type { LeaseId, RequestId, RouterId } from '../../shared/model/ids.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { AttemptResult } from './attempt-result.ts';
import type { RequestWork } from './request-work.ts';

/** Everything about a request that routing may look at. */
export interface RouteRequest {
  readonly id: RequestId;
  readonly tenant: string;
  /** Public model name as the client wrote it. */
  readonly model: string;
  /** Any of these revisions of it will do. Absent: every one. */
  readonly revisions?: readonly string[] | undefined;
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
  /** What its client calls its conversation. Absent: nothing, or nobody asks. */
  readonly conversationId?: string | undefined;
  /** A hint of where its conversation lives, as it came, or the wish for one. Absent: neither. */
  readonly hint?: string | undefined;
  /** Decisions about it show their candidates. Absent: they do not. */
  readonly explain?: boolean;
  /** Bytes held in memory while it is queued. */
  readonly bodyBytes: number;
  /** One chain an element of a list prompt; none for light work. */
  readonly prompts: readonly PromptChain[];
  /** A global router sent it. Absent: a client did. */
  readonly tier?: TierFacts | undefined;
}

/** What a global router says of a request that it sends to a region. */
export interface TierFacts {
  readonly from: RouterId;
  /** Counted by that router and region. */
  readonly seq: number;
  /** The conversation's key after this turn, without content; null: not to be remembered. */
  readonly conversation: string | null;
  /** The same by its client's id. Absent or null: it has none. */
  readonly byId?: string | null;
  /** It is served away from home, and has been for so long, ms. */
  readonly away: boolean;
  readonly awayForMs: number;
  /** Zones in which global routers may be told of the conversation; null: everywhere. */
  readonly zones: readonly string[] | null;
}

/** One try, wherever it goes. */
export interface RequestAttempt {
  readonly lease: LeaseId;
  readonly request: RequestId;
  readonly number: number;
  /** Base URL, no path. */
  readonly url: string;
  readonly connectTimeoutMs: number;
  /** From sending to the first data event (to the whole answer when not streamed). */
  readonly firstTokenTimeoutMs: number;
  /** Between two pieces of the stream. */
  readonly stallTimeoutMs: number;
  readonly predictedTtftMs: number | null;
}

/**
 * `no_longer_allowed`: its tenant may not be served there any more. `region_silent`: nothing comes from the region, and
 * another one may serve.
 */
export type AbortReason =
  | 'client_gone'
  | 'first_token_timeout'
  | 'no_longer_allowed'
  | 'region_silent';

export type RequestEvent =
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
  /** Stop accepting: new arrivals are refused, the rest ends. */
  | { readonly kind: 'drain' };

export type RequestEffect<Attempt extends RequestAttempt, Decision> =
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
      readonly reason: AbortReason;
    }
  | { readonly kind: 'extend'; readonly lease: LeaseId; readonly timeoutMs: number }
  /** For metrics: a limit was reached. */
  | { readonly kind: 'limit'; readonly limit: LimitName }
  | {
      readonly kind: 'log';
      readonly level: LogLevel;
      readonly code: string;
      readonly fields: Readonly<Record<string, string | number | boolean | null>>;
    };
