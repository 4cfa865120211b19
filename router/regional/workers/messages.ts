// What the parent and a worker say to each other, over the channel that Node opens between a process and its child. Both
// are of one version: it is the same files that run.

import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorCode } from '../../../shared/errors.ts';
import type { JournalEntry } from '../../../shared/runtime/metrics-journal.ts';
import type { ConfigView } from '../../../shared/config/state.ts';
import type { MetricName } from '../metrics.ts';
import type { RouterOptions, RouterReloadable } from '../options.ts';
import type { Readiness, RouterStatus } from '../status.ts';

/** A request to be explained, its body read. */
export interface ExplainAsked {
  readonly headers: IncomingHttpHeaders;
  /** `?route=`; null: the body tells. */
  readonly route: string | null;
  readonly body: Uint8Array;
}

/** What a worker does and says once. */
export type Order =
  | { readonly kind: 'start'; readonly start: WorkerStart }
  | { readonly kind: 'status' }
  | { readonly kind: 'explain'; readonly asked: ExplainAsked }
  | { readonly kind: 'reload'; readonly reloadable: RouterReloadable }
  | { readonly kind: 'drain'; readonly acceptMs: number; readonly drainMs: number }
  | { readonly kind: 'close' };

export interface WorkerStart {
  readonly number: number;
  readonly count: number;
  readonly log: { readonly level: string; readonly readable: boolean };
  /** Its share: `links` with its own port, `clients` with the address where the parent accepts. */
  readonly options: RouterOptions;
  readonly clientsPort: number;
  readonly config: ConfigView | null;
}

export interface Answers {
  readonly start: { readonly linksPort: number };
  readonly status: RouterStatus;
  readonly explain: object;
  readonly reload: null;
  readonly drain: null;
  readonly close: null;
}

export type ToWorker =
  | { readonly kind: 'order'; readonly id: number; readonly order: Order }
  /** Comes with a connection. */
  | { readonly kind: 'connection' }
  /** Link ports of all workers, in their order. */
  | { readonly kind: 'ports'; readonly ports: readonly number[] }
  | { readonly kind: 'config'; readonly view: ConfigView };

/** What a worker is, said several times a second. */
export interface Beat {
  readonly readiness: Readiness;
  readonly links: number;
  readonly openRequests: number;
  readonly leases: number;
}

export interface Failure {
  readonly message: string;
  /** A failure that the parent's caller knows how to word: of a `FleetError`. */
  readonly code: ErrorCode | null;
  readonly param: string | null;
  /** Of the system, where it refused to listen. */
  readonly system: {
    readonly code: string;
    readonly syscall: string;
    readonly address?: string;
    readonly port?: number;
  } | null;
}

export type FromWorker =
  | { readonly kind: 'answer'; readonly id: number; readonly value: Answers[keyof Answers] }
  | { readonly kind: 'failure'; readonly id: number; readonly failure: Failure }
  | { readonly kind: 'beat'; readonly beat: Beat }
  | { readonly kind: 'journal'; readonly entries: readonly JournalEntry<MetricName>[] }
  /** Connections taken over, and connections that have ended, since the last time. */
  | { readonly kind: 'connections'; readonly taken: number; readonly ended: number }
  /** It was asked to end by a signal of its own. */
  | { readonly kind: 'signalled' };
