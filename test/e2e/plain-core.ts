// A core for tests of the shell alone: replicas in a fixed order, the next one after a failure that no client
// has seen. It keeps to the contract of events and effects, and asserts its half of it.

import type { Decision, DecisionReason } from '../../shared/model/decision.ts';
import {
  leaseIdOf,
  type LeaseId,
  type PoolId,
  type ReplicaId,
  type RequestId,
} from '../../shared/model/ids.ts';
import type { CoreMachine } from '../../shared/runtime/core-driver.ts';
import type { Attempt, RouterEffect, RouterEvent } from '../../router/regional/events.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';

interface OpenRequest {
  readonly request: RouteRequest;
  attempts: number;
  lease: LeaseId | null;
}

export class PlainCore implements CoreMachine<RouterEvent, RouterEffect> {
  readonly events: RouterEvent[] = [];
  urls: string[];
  queueing = false;
  attemptOptions: Partial<Attempt> = {};
  /** Of first attempts alone. */
  firstAttemptOptions: Partial<Attempt> = {};
  private readonly open = new Map<RequestId, OpenRequest>();
  private readonly leases = new Map<LeaseId, OpenRequest>();

  constructor(urls: string[]) {
    this.urls = urls;
  }

  get leaseCount(): number {
    return this.leases.size;
  }

  nextWakeMs(): null {
    return null;
  }

  explain(): Decision {
    return decision('send', 'least_cost');
  }

  handle(event: RouterEvent): RouterEffect[] {
    this.events.push(event);
    switch (event.kind) {
      case 'arrived': {
        const open = { request: event.request, attempts: 0, lease: null };
        this.open.set(event.request.id, open);
        if (this.queueing) {
          return [
            { kind: 'queued', request: event.request.id, decision: decision('queue', 'order') },
          ];
        }
        return this.next(open);
      }
      case 'clientGone': {
        const open = this.open.get(event.request);
        this.open.delete(event.request);
        if (open === undefined || open.lease === null) return [];
        return [{ kind: 'abort', lease: open.lease, reason: 'client_gone' }];
      }
      case 'firstTokenLate':
        return [{ kind: 'abort', lease: event.lease, reason: 'first_token_timeout' }];
      case 'attemptEnded':
        return this.ended(event);
      default:
        return [];
    }
  }

  /** Lets everything that is queued go. */
  release(): RouterEffect[] {
    return [...this.open.values()].flatMap((open) => (open.lease === null ? this.next(open) : []));
  }

  private ended(event: Extract<RouterEvent, { kind: 'attemptEnded' }>): RouterEffect[] {
    const open = this.leases.get(event.lease);
    if (open === undefined) throw new Error(`lease ${event.lease} ended twice or never began`);
    this.leases.delete(event.lease);
    open.lease = null;
    const { kind } = event.result;
    const over = kind === 'complete' || kind === 'clientGone' || kind === 'clientError';
    if (over || event.committed) {
      this.open.delete(open.request.id);
      return [];
    }
    return this.next(open);
  }

  private next(open: OpenRequest): RouterEffect[] {
    const url = this.urls[open.attempts];
    const { id } = open.request;
    if (url === undefined) {
      this.open.delete(id);
      return [
        {
          kind: 'refuse',
          request: id,
          decision: decision('refuse', 'attempts_exhausted'),
          code: 'upstream_failed',
          message: 'No replica could answer.',
          retryAfterMs: 1_500,
        },
      ];
    }
    open.attempts += 1;
    const lease = leaseIdOf(id, open.attempts);
    open.lease = lease;
    this.leases.set(lease, open);
    const attempt: Attempt = {
      lease,
      request: id,
      number: open.attempts,
      target: { replica: new URL(url).host as ReplicaId, rank: 0 },
      incarnation: null,
      pool: 'default' as PoolId,
      url,
      rankHeader: null,
      engineModel: open.request.model,
      connectTimeoutMs: 2_000,
      firstTokenTimeoutMs: 30_000,
      stallTimeoutMs: 30_000,
      queueMs: 0,
      waitMs: 0,
      prefillMs: 12,
      predictedTtftMs: 12,
      predictedPromptTokens: 40,
      predictedCachedTokens: 32,
      ...this.attemptOptions,
      ...(open.attempts === 1 ? this.firstAttemptOptions : {}),
    };
    const reason = open.attempts === 1 ? 'least_cost' : 'failover';
    return [{ kind: 'attempt', attempt, decision: decision('send', reason) }];
  }
}

function decision(kind: Decision['kind'], reason: DecisionReason): Decision {
  return { kind, target: null, reason, candidates: [] };
}
