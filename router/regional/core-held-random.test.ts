// Random histories of a pool whose new conversations wait for KV room, beside turns that go on, adapters, embeddings and
// other routers' queues: nothing that could go is left lying, nothing is looked at again and again, and explain says
// what serving does.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Decision } from '../../shared/model/decision.ts';
import type { LeaseId, PoolId, RequestId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { chainOf, COMPLETE, configOf, CoreRig, MODEL } from './core.harness.ts';
import type { RegionalCoreConfig, RouterEffect } from './events.ts';

const NAMES = ['a', 'b', 'c'];
/** How late time alone may move a queue: where no event says so, the sweep looks. */
const SWEEP_MS = 250;

const queued = fc.oneof(
  fc.constant({ prefillMs: 0, requests: 0, topPriority: null, routersQueueing: 0 }),
  fc
    .record({
      othersTop: fc.integer({ min: -1, max: 1 }),
      othersAtTop: fc.integer({ min: 1, max: 7 }),
      before: fc.nat(7),
      turnMs: fc.option(fc.constantFrom(6, 25), { nil: undefined }),
    })
    .map(({ turnMs, ...place }) => ({
      ...{ prefillMs: 400, requests: 8, topPriority: place.othersTop, routersQueueing: 3 },
      place: turnMs === undefined ? place : { ...place, turnMs },
    })),
);
const figures = fc.record({
  kvCapacityTokens: fc.constantFrom(null, 1_000, 10_000, 10_000),
  workingSetTokens: fc.constantFrom(null, 0, 4_000, 8_900, 9_500),
  waitingPrefillMs: fc.constantFrom(null, 0, 0, 40, 300),
  running: fc.constantFrom(null, 0, 3, 4),
  runningMax: fc.constantFrom(null, 4, 8),
  routers: fc.constantFrom(1, 1, 8),
  phase: fc.constantFrom('ready', 'ready', 'ready', 'loading', 'draining'),
  loras: fc.constantFrom([], ['x']),
  queued,
});
const name = fc.constantFrom(...NAMES);
const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('arrive' as const),
      path: fc.array(fc.nat(3), { minLength: 1, maxLength: 12 }),
      goesOn: fc.boolean(),
      priority: fc.integer({ min: -1, max: 1 }),
      work: fc.constantFrom('generation', 'generation', 'generation', 'prefill'),
      model: fc.constantFrom(MODEL, MODEL, 'x'),
      // Never exactly what a prefill takes: such a one is queued and given up in the same moment.
      deadlineMs: fc.option(
        fc.integer({ min: 500, max: 9_000 }).map((ms) => ms + 0.5),
        { freq: 4 },
      ),
    }),
  },
  { weight: 7, arbitrary: fc.record({ kind: fc.constant('report' as const), name, figures }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('holds' as const),
      name,
      path: fc.array(fc.nat(3), { minLength: 1, maxLength: 12 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('end' as const),
      which: fc.nat(1_000),
      fails: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('gone' as const), which: fc.nat(1_000) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('down' as const), name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('up' as const), name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('rule' as const), on: fc.boolean() }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(800) }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

const configured = (on: boolean): RegionalCoreConfig =>
  configOf({
    pools: [{ id: 'pool' as PoolId, models: [MODEL, 'x'], aliases: {} }],
    settings: {
      ...{ queueMaxRequests: 24, queueMaxWaitMs: 12_000, newConversationWaitMs: 2_000 },
      ...{ workingSetBound: on ? 0.9 : null, workingSetBoundMax: 0.9 },
    },
  });

class History {
  readonly rig = new CoreRig({
    pools: configured(true).pools,
    settings: configured(true).settings,
  });
  readonly open = new Map<LeaseId, RequestId>();
  readonly waiting = new Set<RequestId>();
  readonly linked = new Set<string>();
  readonly seqs = new Map<string, number>();
  heldSeen = 0;

  run(next: Step): void {
    const { rig } = this;
    switch (next.kind) {
      case 'arrive':
        this.arrive(next);
        break;
      case 'report': {
        const { loras, ...more } = next.figures;
        const models = [{ id: MODEL, maxModelLen: 32_768, loras }];
        if (this.linked.has(next.name)) {
          this.take(rig.report(next.name, { ...more, models } as Partial<ReplicaReport>));
        }
        break;
      }
      case 'holds':
        if (!this.linked.has(next.name)) break;
        this.take(rig.holds(next.name, chainOf(next.path), this.seqs.get(next.name) ?? 0));
        this.seqs.set(next.name, (this.seqs.get(next.name) ?? 0) + 1);
        // The report beside it, or the sweep, lets go whom this concerns.
        this.idle();
        break;
      case 'end': {
        const lease = [...this.open.keys()][next.which % Math.max(1, this.open.size)];
        if (lease !== undefined) this.end(lease, next.fails);
        break;
      }
      case 'gone': {
        const request = [...this.waiting][next.which % Math.max(1, this.waiting.size)];
        if (request === undefined) break;
        this.waiting.delete(request);
        this.take(rig.handle({ kind: 'clientGone', request }));
        break;
      }
      case 'down':
        if (this.linked.delete(next.name)) this.take(rig.unlink(next.name));
        break;
      case 'up':
        if (this.linked.has(next.name)) break;
        this.linked.add(next.name);
        this.seqs.delete(next.name);
        this.take(rig.link(next.name));
        break;
      case 'rule':
        this.take(rig.handle({ kind: 'configured', config: configured(next.on) }));
        break;
      case 'pass':
        this.pass(next.ms);
    }
    this.check();
  }

  arrive(next: Extract<Step, { kind: 'arrive' }>): void {
    const { rig } = this;
    const turnEnds = next.goesOn ? [chainOf(next.path.slice(0, 1)).end] : [];
    const request = rig.request({
      prompts: [chainOf(next.path, { turnEnds })],
      priority: next.priority,
      model: next.model,
      work: next.work as 'generation',
      clientDeadlineMs: next.deadlineMs,
      ...(next.work === 'prefill' ? { maxTokens: 0, stream: false } : {}),
    });
    const foretold = rig.core.explain(request, rig.nowMs);
    this.waiting.add(request.id);
    const effects = rig.handle({ kind: 'arrived', request });
    this.take(effects);
    const became = effects.find(
      (effect) =>
        'decision' in effect &&
        (effect.kind === 'attempt' ? effect.attempt.request : effect.request) === request.id,
    );
    if (became === undefined || !('decision' in became)) throw new Error('nothing became of it');
    const { decision } = became;
    // What joins the queue may leave it at once, where it goes before the others or they cannot go.
    if (decision?.kind === 'send' && foretold.kind === 'queue') {
      expect(foretold.reason).toBe('order');
      return;
    }
    expect(decision?.candidates).toEqual(foretold.candidates);
    if (foretold.kind === 'send' && !isSure(foretold) && decision?.kind !== 'send') return;
    expect(decision?.kind).toBe(foretold.kind);
    if (foretold.kind !== 'send') expect(decision).toEqual(foretold);
  }

  end(lease: LeaseId, fails: boolean): void {
    const request = this.open.get(lease) as RequestId;
    this.open.delete(lease);
    if (fails) this.waiting.add(request);
    const result = fails
      ? ({ kind: 'serverFault', cause: 'reset', detail: '' } as const)
      : COMPLETE;
    this.take(this.rig.end(lease, result, !fails));
  }

  /** Ticks come when they are asked for; one that nobody asked for finds nothing that is long due. */
  pass(ms: number): void {
    const { rig } = this;
    const until = rig.nowMs + ms;
    let asked = 0;
    while (rig.nowMs < until) {
      const wakeMs = rig.core.nextWakeMs() ?? Number.POSITIVE_INFINITY;
      expect(wakeMs).toBeGreaterThanOrEqual(rig.nowMs);
      const atMs = Math.min(until, wakeMs, rig.nowMs + 40);
      const early = atMs < wakeMs;
      rig.nowMs = Math.max(atMs, rig.nowMs + 0.001);
      if (!early) asked += 1;
      const effects = rig.handle({ kind: 'tick' });
      if (early && isOverdue(effects)) expect(wakeMs - atMs).toBeLessThan(SWEEP_MS);
      this.take(effects);
    }
    // The sweep, and each wait's own instants: no tick leads only to the next.
    expect(asked).toBeLessThan(20 + ms / 10);
  }

  take(effects: readonly RouterEffect[]): void {
    for (const effect of effects) {
      if (effect.kind === 'attempt') {
        const { lease, request } = effect.attempt;
        expect(this.waiting.delete(request)).toBe(true);
        this.open.set(lease, request);
      }
      if (effect.kind === 'refuse') expect(this.waiting.delete(effect.request)).toBe(true);
    }
  }

  check(): void {
    const { rig } = this;
    // All that could go has gone with the event.
    expect(isOverdue(this.idle())).toBe(false);
    const status = rig.core.status(rig.nowMs);
    const [pool] = status.pools;
    expect(pool?.queue.requests).toBe(this.waiting.size);
    expect(pool?.workingSet.held).toBeLessThanOrEqual(this.waiting.size);
    this.heldSeen += pool?.workingSet.held ?? 0;
    expect(status.leases).toBe(this.open.size);
    expectNumbers(status);
  }

  idle(): RouterEffect[] {
    const effects = this.rig.handle({ kind: 'tick' });
    this.take(effects);
    return effects;
  }

  /** Everybody is let go: nobody is left. */
  finish(): void {
    const roomy = { kvCapacityTokens: 1e6, workingSetTokens: 0, runningMax: null };
    const models = [{ id: MODEL, maxModelLen: 32_768, loras: ['x'] }];
    for (const one of NAMES) this.run({ kind: 'up', name: one });
    for (let k = 0; k < 60 && this.open.size + this.waiting.size > 0; k += 1) {
      for (const one of NAMES) this.take(this.rig.report(one, { ...roomy, models }));
      for (const lease of [...this.open.keys()]) this.end(lease, false);
      this.pass(100);
    }
    expect(this.rig.core.status(this.rig.nowMs)).toMatchObject({ openRequests: 0, leases: 0 });
  }
}

/** Whether it is sent at any draw: none falls on a target that is another router's turn. */
function isSure({ candidates }: Decision): boolean {
  return candidates.reduce((sum, { drawProbability }) => sum + drawProbability, 0) > 0.999;
}

/** Something goes that no draw had kept back before; behind one that was, others may follow. */
function isOverdue(effects: readonly RouterEffect[]): boolean {
  const first = effects.find((effect) => effect.kind === 'attempt');
  return first?.kind === 'attempt' && isSure(first.decision);
}

function expectNumbers(value: unknown): void {
  if (typeof value === 'number') expect(value).not.toBeNaN();
  else if (typeof value === 'object' && value !== null) Object.values(value).forEach(expectNumbers);
}

test('nothing that could go waits, nothing spins, and explain says what is served', () => {
  let held = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 10, maxLength: 80 }), (steps) => {
      const history = new History();
      for (const one of NAMES) {
        history.run({ kind: 'up', name: one });
        history.take(
          history.rig.report(one, { kvCapacityTokens: 10_000, workingSetTokens: 8_000 }),
        );
      }
      for (const next of steps) history.run(next);
      history.finish();
      if (history.heldSeen > 0) held += 1;
    }),
    { numRuns: 60 },
  );
  expect(held).toBeGreaterThan(20);
});
