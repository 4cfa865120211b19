// Random event sequences against the core, with a shell that keeps its own books.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Incarnation, LeaseId, LinkId, PoolId, RequestId } from '../../shared/model/ids.ts';
import type { Decision } from '../../shared/model/decision.ts';
import type { RouterMessage } from '../../shared/protocol/messages.ts';
import { chainOf, COMPLETE, configOf, CoreRig, MODEL } from './core.harness.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { RouterEffect } from './events.ts';

const REPLICAS = ['a', 'b', 'c'];
const RESULTS: readonly AttemptResult[] = [
  COMPLETE,
  { kind: 'clientError', status: 400 },
  { kind: 'clientGone' },
  { kind: 'backPressure', status: 429, retryAfterMs: 500 },
  { kind: 'connectFailed', detail: '' },
  { kind: 'serverFault', cause: 'reset', detail: '' },
  { kind: 'serverFault', cause: 'first_token_timeout', detail: '' },
];

const replica = fc.constantFrom(...REPLICAS);
const which = fc.nat({ max: 1_000 });
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('arrive' as const),
      path: fc.array(fc.nat({ max: 2 }), { minLength: 1, maxLength: 4 }),
      priority: fc.integer({ min: -1, max: 1 }),
      stream: fc.boolean(),
      work: fc.constantFrom(
        'generation' as const,
        'generation' as const,
        'prefill' as const,
        'light' as const,
      ),
      deadlineMs: fc.option(fc.integer({ min: 100, max: 5_000 })),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('first' as const), which }) },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('end' as const),
      which,
      result: fc.constantFrom(...RESULTS),
      committed: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('late' as const), which }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('gone' as const), which }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('up' as const), replica, fresh: fc.boolean() }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('down' as const), replica }) },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('report' as const),
      replica,
      phase: fc.constantFrom(
        'ready' as const,
        'ready' as const,
        'loading' as const,
        'dead' as const,
      ),
      life: fc.nat({ max: 2 }),
      waitMs: fc.option(fc.nat({ max: 120 })),
      lag: fc.nat({ max: 3 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat({ max: 2_000 }) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('pools' as const), both: fc.boolean() }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

/** The shell's books: what the core must agree with after every event. */
class Books {
  readonly rig = new CoreRig({ settings: { queueMaxRequests: 6, queueMaxWaitMs: 4_000 } });
  readonly waiting = new Set<string>();
  readonly attempts = new Map<string, string>();
  readonly answered = new Set<string>();
  readonly links = new Map<string, string>();
  /** Open leases by link and target, as an agent that reads all messages would have them. */
  readonly ledgers = new Map<string, Set<string>>();
  readonly seqs = new Map<string, number>();
  #links = 0;

  run(next: Step): void {
    const { rig } = this;
    switch (next.kind) {
      case 'arrive': {
        const request = rig.request({
          prompts: [chainOf(next.path)],
          priority: next.priority,
          stream: next.stream && next.work === 'generation',
          work: next.work,
          ...(next.work === 'generation' ? {} : { maxTokens: 0 }),
          ...(next.work === 'light' ? { prompts: [] } : {}),
          clientDeadlineMs: next.deadlineMs,
        });
        this.waiting.add(request.id);
        if (next.work === 'light') this.light.add(request.id);
        const foretold = rig.core.explain(request, rig.nowMs);
        const effects = rig.handle({ kind: 'arrived', request });
        expectForetold(foretold, effects, request.id);
        this.take(effects);
        break;
      }
      case 'first': {
        const lease = this.pick(next.which);
        if (lease !== null) this.take(rig.firstToken(lease));
        break;
      }
      case 'end': {
        const lease = this.pick(next.which);
        if (lease === null) break;
        const request = this.attempts.get(lease) as string;
        this.attempts.delete(lease);
        this.waiting.add(request);
        const committed = next.committed || next.result.kind === 'complete';
        const retryable =
          !committed && next.result.kind !== 'clientError' && next.result.kind !== 'clientGone';
        const effects = rig.end(lease, next.result, committed);
        this.take(effects);
        if (!retryable) this.answered.add(request);
        if (!retryable || this.gone.has(request)) this.waiting.delete(request);
        break;
      }
      case 'late': {
        const lease = this.pick(next.which);
        if (lease !== null)
          this.take(rig.handle({ kind: 'firstTokenLate', lease: lease as LeaseId }));
        break;
      }
      case 'gone': {
        const open = [...this.queued, ...this.attempts.values()];
        const request = open[next.which % Math.max(1, open.length)];
        if (request === undefined) break;
        this.gone.add(request);
        this.take(rig.handle({ kind: 'clientGone', request: request as RequestId }));
        if (this.queued.delete(request)) this.waiting.delete(request);
        break;
      }
      case 'up': {
        this.#links += 1;
        const name = `${next.replica}-${this.#links}`;
        const agent = next.fresh ? name : `agent-${next.replica}`;
        this.links.set(next.replica, name);
        this.take(rig.link(name, { replicas: [next.replica], agent }));
        break;
      }
      case 'down': {
        const link = this.links.get(next.replica);
        if (link === undefined) break;
        this.links.delete(next.replica);
        this.take(rig.unlink(link));
        break;
      }
      case 'report': {
        const link = this.links.get(next.replica);
        if (link === undefined) break;
        const seq = this.seqs.get(next.replica) ?? -1;
        this.take(
          rig.report(
            next.replica,
            {
              phase: next.phase,
              incarnation: `${next.replica}/${next.life}` as Incarnation,
              waitingPrefillMs: next.waitMs,
              ackedSeq: next.lag === 3 ? -1 : Math.max(0, seq - next.lag),
            },
            link,
          ),
        );
        break;
      }
      case 'pass':
        this.take(rig.pass(next.ms));
        break;
      case 'pools': {
        const pools = [{ id: 'pool' as PoolId, models: [MODEL], aliases: {} }];
        const more = { id: 'more' as PoolId, models: [], aliases: {} };
        const config = configOf({
          pools: next.both ? [...pools, more] : pools,
          settings: { queueMaxRequests: 6, queueMaxWaitMs: 4_000 },
        });
        this.take(rig.handle({ kind: 'configured', config }));
        break;
      }
    }
  }

  readonly light = new Set<string>();
  readonly queued = new Set<string>();
  readonly gone = new Set<string>();

  take(effects: readonly RouterEffect[]): void {
    for (const effect of effects) {
      switch (effect.kind) {
        case 'attempt': {
          const { lease, request } = effect.attempt;
          expect(this.waiting.has(request), `${request} was not waiting`).toBe(true);
          expect(this.gone.has(request)).toBe(false);
          this.waiting.delete(request);
          this.queued.delete(request);
          this.attempts.set(lease, request);
          break;
        }
        case 'queued':
          expect(this.waiting.has(effect.request)).toBe(true);
          this.queued.add(effect.request);
          break;
        case 'refuse':
          expect(this.waiting.delete(effect.request), `${effect.request} refused`).toBe(true);
          expect(this.answered.has(effect.request)).toBe(false);
          this.answered.add(effect.request);
          this.queued.delete(effect.request);
          break;
        case 'abort':
          expect(this.attempts.has(effect.lease)).toBe(true);
          break;
        case 'send':
          this.told(effect.link, effect.message);
          break;
        case 'close':
        case 'extend':
        case 'sendGlobal':
        case 'closeGlobal':
        case 'sendSibling':
        case 'tellSiblings':
        case 'closeSibling':
        case 'probe':
        case 'limit':
        case 'log':
          break;
      }
    }
  }

  /** An agent's ledger: sequences have no gap, a lease opens once and ends once. */
  told(link: LinkId, message: RouterMessage): void {
    if (!('seq' in message)) return;
    const { replica: name, seq } = message;
    expect(this.links.get(name)).toBe(link);
    if (message.kind === 'leases') {
      expect(seq).toBe((this.seqs.get(name) ?? -1) + 1);
      this.ledgers.set(name, new Set(message.open.map(({ lease }) => lease)));
    } else {
      expect(seq).toBe((this.seqs.get(name) ?? -1) + 1);
      const ledger = this.ledgers.get(name) as Set<string>;
      if (message.kind === 'sent') ledger.add(message.lease);
      if (message.kind === 'firstToken') expect(ledger.has(message.lease)).toBe(true);
      if (message.kind === 'ended') expect(ledger.delete(message.lease)).toBe(true);
    }
    this.seqs.set(name, seq);
  }

  check(): void {
    const status = this.rig.core.status(this.rig.nowMs);
    expect(status.leases).toBe(this.attempts.size);
    const replicas = status.pools.flatMap((pool) => pool.replicas);
    const perTarget = replicas.flatMap(({ targets }) => targets.map(({ leases }) => leases));
    const weighing = [...this.attempts.values()].filter((request) => !this.light.has(request));
    expect(perTarget.reduce((sum, leases) => sum + leases, 0)).toBe(weighing.length);
    for (const request of this.light) expect(this.queued).not.toContain(request);
    expect(this.waiting).toEqual(this.queued);
    const queued = status.pools.reduce((sum, pool) => sum + pool.queue.requests, 0);
    expect(queued).toBe(this.queued.size);
    expect(queued).toBeLessThanOrEqual(6);
    expect(status.openRequests).toBe(this.queued.size + this.attempts.size);
    for (const { id, connected, targets } of replicas) {
      for (const { waitMs, unacked, leases } of targets) {
        expect(waitMs).toBeGreaterThanOrEqual(0);
        expect(unacked.uncachedTokens).toBeGreaterThanOrEqual(0);
        expect(unacked.requests).toBeLessThanOrEqual(leases);
      }
      if (connected) expect(this.ledgers.get(id)?.size).toBe(targets[0]?.leases);
    }
    const wake = this.rig.core.nextWakeMs();
    if (wake !== null) expect(wake).toBeGreaterThan(this.rig.nowMs - 1);
  }

  private pick(which: number): string | null {
    const open = [...this.attempts.keys()];
    return open[which % Math.max(1, open.length)] ?? null;
  }
}

/**
 * What explain said of a request is what became of it: the same filters, costs and draw probabilities. Who is drawn is
 * the draw's; and what joins a queue may leave it in the same moment, where it goes before the others.
 */
function expectForetold(foretold: Decision, effects: readonly RouterEffect[], id: string): void {
  const served = decisionOf(effects, id);
  if (served.kind === 'send' && foretold.kind === 'queue') {
    expect(foretold.reason).toBe('order');
    return;
  }
  expect(served.kind).toBe(foretold.kind);
  expect(served.candidates).toEqual(foretold.candidates);
  const drawn = foretold.candidates.filter(({ drawProbability }) => drawProbability > 0);
  if (drawn.length < 2) {
    expect(served).toEqual(foretold);
  } else {
    expect(drawn.map(({ target }) => target)).toContainEqual(served.target);
  }
}

function decisionOf(effects: readonly RouterEffect[], id: string): Decision {
  for (const effect of effects) {
    const of =
      effect.kind === 'attempt'
        ? effect.attempt.request
        : 'request' in effect
          ? effect.request
          : null;
    if (of === id && 'decision' in effect && effect.decision !== null) return effect.decision;
  }
  throw new Error(`nothing became of ${id}`);
}

test('after any event each request is queued, under way or answered once, and leases are the open attempts', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 10, maxLength: 120 }), (steps) => {
      const books = new Books();
      for (const name of REPLICAS) {
        books.run({ kind: 'up', replica: name, fresh: false });
        books.run({ kind: 'report', replica: name, phase: 'ready', life: 0, waitMs: 0, lag: 0 });
      }
      for (const next of steps) {
        books.run(next);
        books.check();
      }
      for (const lease of [...books.attempts.keys()]) {
        books.attempts.delete(lease);
        books.take(books.rig.end(lease, COMPLETE, true));
      }
      for (let k = 0; k < 50 && (books.queued.size > 0 || books.attempts.size > 0); k += 1) {
        for (const lease of [...books.attempts.keys()]) {
          books.attempts.delete(lease);
          books.take(books.rig.end(lease, COMPLETE, true));
        }
        books.take(books.rig.pass(500));
      }
      expect(books.rig.core.status(books.rig.nowMs)).toMatchObject({ openRequests: 0, leases: 0 });
    }),
    { numRuns: 300 },
  );
});
