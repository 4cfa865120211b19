// What the parent and a worker say to each other, over the channel that Node opens between a process and its child. Both
// are of one version: it is the same files that run.

import type { ErrorCode } from '../../../shared/errors.ts';
import type { JournalEntry } from '../../../shared/runtime/metrics-journal.ts';
import type { Explainable } from '../../gateway/explanation.ts';
import type { SeenRefusal } from '../../gateway/seen-attempts.ts';
import type { MetricName } from '../metrics.ts';
import type { RouterOptions, RouterReloadable } from '../options.ts';
import type { Beat } from '../start.ts';
import type { RouterStatus } from '../status.ts';

/** Listeners whose connections the parent accepts and hands on. */
export type HandedListener = 'clients' | 'tier';

/** What a worker does and says once. */
export type Order =
  | { readonly kind: 'start'; readonly start: WorkerStart }
  | { readonly kind: 'status' }
  | { readonly kind: 'explain'; readonly asked: Explainable }
  | { readonly kind: 'reload'; readonly reloadable: RouterReloadable }
  | { readonly kind: 'mark'; readonly on: boolean }
  | { readonly kind: 'drain'; readonly acceptMs: number; readonly drainMs: number }
  | { readonly kind: 'close' };

export interface WorkerStart {
  readonly number: number;
  readonly count: number;
  readonly log: { readonly level: string; readonly readable: boolean };
  /** Its share: `links` with its own port, `clients` and `tier` with the addresses where the parent accepts. */
  readonly options: RouterOptions;
  /** Where the parent accepts its connections. */
  readonly clientsPort: number;
  /** Null: there is no such listener. */
  readonly tierPort: number | null;
  /** Where each worker listens for agents; empty where that is yet to be told. */
  readonly linkPorts: readonly number[];
  /** The router is out of its balancer. */
  readonly marked: boolean;
}

export interface Answers {
  readonly start: { readonly linksPort: number };
  readonly status: RouterStatus;
  readonly explain: object;
  readonly reload: null;
  readonly mark: null;
  readonly drain: null;
  readonly close: null;
}

export type ToWorker =
  | { readonly kind: 'order'; readonly id: number; readonly order: Order }
  /** Comes with a connection. */
  | { readonly kind: 'connection'; readonly on: HandedListener }
  /** Comes with a connection, to be answered on it with `PROBE_ANSWER` and closed. */
  | { readonly kind: 'probe' }
  /** Link ports of all workers, in their order. */
  | { readonly kind: 'ports'; readonly ports: readonly number[] }
  /** Whether the attempt that it claimed is the first of its name among all workers; null: it is. */
  | { readonly kind: 'claimed'; readonly id: number; readonly why: SeenRefusal | null };

export const PROBE_ANSWER = 'here';

export interface Failure {
  readonly message: string;
  /** Of a `FleetError`; null: of the system, or a bug. */
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
  /** It would let this attempt of a global router's in: answered by `claimed`. */
  | { readonly kind: 'claim'; readonly id: number; readonly attempt: string }
  /** It was asked to end by a signal of its own. */
  | { readonly kind: 'signalled' };
