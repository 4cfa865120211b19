// How an attempt at an engine ended, in the words that gateway and core share.

import type { Usage } from '../../shared/protocol/messages.ts';

export type FaultCause =
  | 'status'
  | 'reset'
  | 'error_event'
  | 'abort'
  | 'truncated'
  | 'first_token_timeout'
  | 'no_longer_allowed'
  | 'region_silent'
  | 'stall'
  | 'bad_answer';

/** How an attempt ended. Only the shell knows whether a data event had been forwarded: `committed`. */
export type AttemptResult =
  | { readonly kind: 'complete'; readonly usage: Usage | null }
  /** The client went away or its deadline passed. */
  | { readonly kind: 'clientGone' }
  /** The engine's answer was about the request itself (4xx): passed through, nobody's fault. */
  | { readonly kind: 'clientError'; readonly status: number }
  /** 429, 503, 529: it asks for a pause. */
  | {
      readonly kind: 'backPressure';
      readonly status: number;
      readonly retryAfterMs: number | null;
    }
  /** No connection: certainly not accepted. */
  | { readonly kind: 'connectFailed'; readonly detail: string }
  /** A kept connection broke as the request went into it: it had been closed before, and nobody has read the request. */
  | { readonly kind: 'staleConnection'; readonly detail: string }
  | {
      readonly kind: 'serverFault';
      readonly cause: FaultCause;
      readonly detail: string;
    };
