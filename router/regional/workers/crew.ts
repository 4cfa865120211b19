// The workers of a router as their parent sees them, whoever runs the processes.

import type { WorkerStatus } from '../status.ts';
import type { Answers, Order } from './messages.ts';

export interface Member {
  /** From 1 on. */
  readonly number: number;
  /** Null while there is no process. */
  readonly pid: number | null;
  readonly state: WorkerStatus['state'];
  readonly linksPort: number;
  /** Connections of clients that it was handed and has not ended. */
  readonly connections: number;
  /** Times that it ended without being told. */
  readonly deaths: number;
}

export interface Crew {
  members(): readonly Member[];
  /** Rejects with a `FleetError` or the system's error that the worker met, or when it ends or does not answer in time. */
  order<Kind extends Order['kind']>(
    number: number,
    order: Extract<Order, { readonly kind: Kind }>,
    timeoutMs: number,
  ): Promise<Answers[Kind]>;
}

/** The worker ended before it answered, or did not in time: it may still do as it was told. */
export class NoAnswerError extends Error {}
