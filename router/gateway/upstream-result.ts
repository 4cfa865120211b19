// How an attempt at an engine ended, in the words that the cores use.

import type { Usage } from '../../shared/protocol/messages.ts';

export type FaultCause =
  | 'status'
  | 'reset'
  | 'error_event'
  | 'abort'
  | 'truncated'
  | 'first_token_timeout'
  | 'stall'
  | 'bad_answer';

export type UpstreamResult =
  | { readonly kind: 'complete'; readonly usage: Usage | null }
  | { readonly kind: 'clientGone' }
  /** 4xx: about the request itself. */
  | { readonly kind: 'clientError'; readonly status: number }
  | {
      readonly kind: 'backPressure';
      readonly status: number;
      readonly retryAfterMs: number | null;
    }
  /** Certainly not accepted. */
  | { readonly kind: 'connectFailed'; readonly detail: string }
  | { readonly kind: 'serverFault'; readonly cause: FaultCause; readonly detail: string };
