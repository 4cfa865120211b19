import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { NOBODY_PAST, type QueueItem } from './queue-item.ts';
import { ReleaseQueue } from './queue.ts';

const CREDIT = 0.25;

function item(id: string, more: Partial<QueueItem> = {}): QueueItem {
  return {
    id,
    tenant: 't',
    priority: 0,
    arrivedMs: 0,
    bytes: 10,
    tokens: 100,
    prefillMs: 100,
    deadlineMs: null,
    giveUpMs: 60_000,
    ...more,
  };
}

function drain(queue: ReleaseQueue, nowMs = 0): string[] {
  const order: string[] = [];
  for (;;) {
    const next = queue.next({ nowMs, pressWithinMs: 120, past: NOBODY_PAST });
    if (next === null) return order;
    queue.release(next.id);
    order.push(next.id);
  }
}

function queueOf(...items: QueueItem[]): ReleaseQueue {
  const queue = new ReleaseQueue();
  for (const one of items) queue.push(one, CREDIT);
  return queue;
}

describe('the queue releases', () => {
  test('the more urgent priority first', () => {
    const queue = queueOf(
      item('low', { priority: 5 }),
      item('high', { priority: -1 }),
      item('mid'),
    );
    expect(drain(queue)).toEqual(['high', 'mid', 'low']);
  });

  test('short work first, less a quarter of the age', () => {
    // 400 ms older is worth 100 ms of prefill.
    const queue = queueOf(
      item('long-old', { prefillMs: 199, arrivedMs: 0 }),
      item('short-new', { prefillMs: 100, arrivedMs: 400 }),
      item('shorter', { prefillMs: 98, arrivedMs: 400 }),
    );
    expect(drain(queue)).toEqual(['shorter', 'long-old', 'short-new']);
  });

  test('nothing in advance for a tenant that had nothing waiting meanwhile', () => {
    const of = (tenant: string, ...ids: string[]) =>
      ids.map((id) => item(id, { tenant, tokens: 1_000 }));
    const queue = queueOf(...of('a', 'a1'), ...of('b', 'b1', 'b2', 'b3', 'b4', 'b5', 'b6'));
    for (const id of ['a1', 'b1', 'b2', 'b3', 'b4']) queue.release(id);
    for (const one of of('a', 'a2', 'a3', 'a4')) queue.push(one, CREDIT);
    expect(drain(queue)).toEqual(['a2', 'b5', 'a3', 'b6', 'a4']);
  });

  test('by turns between tenants, in tokens and not in requests', () => {
    const queue = queueOf(
      ...['a1', 'a2', 'a3', 'a4'].map((id) => item(id, { tenant: 'a', tokens: 100 })),
      ...['b1', 'b2'].map((id) => item(id, { tenant: 'b', tokens: 300, prefillMs: 300 })),
    );
    expect(drain(queue)).toEqual(['a1', 'b1', 'a2', 'a3', 'a4', 'b2']);
  });

  test('nothing more for a tenant that comes back than for one that stayed', () => {
    const queue = queueOf(item('a1', { tenant: 'a' }), item('a2', { tenant: 'a' }));
    queue.push(item('b1', { tenant: 'b', tokens: 10_000 }), CREDIT);
    queue.release('b1');
    queue.release('a1');
    queue.push(item('c1', { tenant: 'c' }), CREDIT);
    queue.push(item('c2', { tenant: 'c' }), CREDIT);
    queue.push(item('c3', { tenant: 'c' }), CREDIT);
    expect(drain(queue).indexOf('a2')).toBeLessThanOrEqual(2);
  });

  test('first what keeps its deadline only if it goes now, never what cannot keep it', () => {
    const pressed = item('pressed', { prefillMs: 500, deadlineMs: 10_600 });
    const lost = item('lost', { prefillMs: 500, deadlineMs: 10_400 });
    const easy = item('easy', { prefillMs: 90, deadlineMs: 20_000 });
    const queue = queueOf(easy, pressed);
    expect(drain(queue, 10_000)).toEqual(['pressed', 'easy']);
    expect(drain(queueOf(easy, lost), 10_000)).toEqual(['easy', 'lost']);
  });

  test('past the ones named', () => {
    const queue = queueOf(item('a'), item('b'), item('c'));
    const next = queue.next({
      nowMs: 0,
      pressWithinMs: 0,
      past: { ids: new Set(['a', 'b']), kinds: new Set<string>() },
    });
    expect(next?.id).toBe('c');
    expect(drain(queue)).toEqual(['a', 'b', 'c']);
  });

  test('and names the last of the least urgent as the one to give up', () => {
    const queue = queueOf(
      item('urgent', { prefillMs: 9_000 }),
      item('x', { priority: 3, prefillMs: 10 }),
      item('y', { priority: 3, prefillMs: 20 }),
    );
    expect(queue.worst()?.id).toBe('y');
    expect(queue.topPriority).toBe(0);
    expect(queue.ahead(2)).toEqual({ requests: 1, prefillMs: 9_000 });
    expect(queue.behind(3).requests).toBe(0);
    const { requests, bytes } = queue.behind(2);
    expect(requests).toBe(2);
    expect(bytes).toBe((queue.get('x')?.bytes ?? 0) + (queue.get('y')?.bytes ?? 0));
    queue.remove('x');
    expect(queue.behind(0)).toEqual({ requests: 1, bytes: queue.get('y')?.bytes });
  });
});

test('a request is overtaken only by those that arrive within prefill / ageCredit after it', () => {
  const arrivals = fc.array(
    fc.record({
      gapMs: fc.integer({ min: 0, max: 500 }),
      prefillMs: fc.integer({ min: 1, max: 2_000 }),
      tokens: fc.constant(0),
    }),
    { minLength: 2, maxLength: 60 },
  );
  fc.assert(
    fc.property(arrivals, (list) => {
      const queue = new ReleaseQueue();
      let arrivedMs = 0;
      const items = list.map(({ gapMs, prefillMs, tokens }, k) => {
        arrivedMs += gapMs;
        return item(`${k}`, { arrivedMs, prefillMs, tokens });
      });
      for (const one of items) queue.push(one, CREDIT);
      const order = drain(queue);
      for (const [at, id] of order.entries()) {
        const mine = items[Number(id)] as QueueItem;
        for (const earlier of order.slice(0, at)) {
          const other = items[Number(earlier)] as QueueItem;
          expect(other.arrivedMs).toBeLessThanOrEqual(mine.arrivedMs + mine.prefillMs / CREDIT);
        }
      }
    }),
  );
});

test('kinds change no order: leaving one out is leaving out each of it', () => {
  const action = fc.record({
    what: fc.constantFrom('push', 'push', 'push', 'remove', 'release'),
    id: fc.integer({ min: 0, max: 20 }),
    tenant: fc.constantFrom('a', 'b'),
    priority: fc.integer({ min: 0, max: 1 }),
    prefillMs: fc.integer({ min: 1, max: 50 }),
    kind: fc.constantFrom('base', 'x', 'y'),
    deadlineMs: fc.option(fc.integer({ min: 0, max: 300 })),
    held: fc.constantFrom(undefined, undefined, 'new' as const),
  });
  const past = fc.subarray(['base', 'x', 'y']);
  fc.assert(
    fc.property(fc.array(action, { maxLength: 80 }), past, (actions, kinds) => {
      const [queue, plain] = [new ReleaseQueue(), new ReleaseQueue()];
      const kindsOf = new Map<string, string>();
      for (const { what, id: number, kind, held, ...rest } of actions) {
        const id = `${number}`;
        if (what !== 'push') for (const each of [queue, plain]) each[what as 'remove'](id);
        else {
          const one = item(id, { ...rest, ...(held === undefined ? {} : { held }) });
          queue.push({ ...one, kind }, CREDIT);
          plain.push(one, CREDIT);
          kindsOf.set(id, kind);
        }
      }
      const ids = new Set([...plain.ids()].filter((id) => kinds.includes(kindsOf.get(id) ?? '')));
      const at = { nowMs: 0, pressWithinMs: 0 };
      const left = queue.next({ ...at, past: { ids: new Set(), kinds: new Set(kinds) } });
      expect(left?.id).toBe(plain.next({ ...at, past: { ids, kinds: new Set() } })?.id);
      expect(queue.leastKey).toBe(plain.leastKey);
      expect(drain(queue)).toEqual(drain(plain));
    }),
  );
});

test('counts requests, bytes and prefill whatever happens to it', () => {
  const action = fc.record({
    kind: fc.constantFrom('push', 'push', 'push', 'remove', 'release', 'overdue'),
    id: fc.integer({ min: 0, max: 30 }),
    tenant: fc.constantFrom('a', 'b', 'c'),
    priority: fc.integer({ min: -2, max: 2 }),
    prefillMs: fc.integer({ min: 1, max: 500 }),
    giveUpMs: fc.integer({ min: 0, max: 100 }),
  });
  fc.assert(
    fc.property(fc.array(action, { maxLength: 200 }), (actions) => {
      const queue = new ReleaseQueue();
      const model = new Map<string, QueueItem>();
      for (const { kind, id: number, ...rest } of actions) {
        const id = `${number}`;
        const one = item(id, { ...rest, bytes: rest.prefillMs * 3 });
        if (kind === 'push') {
          queue.push(one, CREDIT);
          model.set(id, one);
        } else if (kind === 'overdue') {
          const due = [...model.values()].filter((other) => other.giveUpMs <= 50);
          const overdue = queue.overdue(50);
          expect(overdue === null).toBe(due.length === 0);
          if (overdue !== null) {
            expect(model.get(overdue.id)?.giveUpMs).toBe(overdue.giveUpMs);
            queue.remove(overdue.id);
            model.delete(overdue.id);
          }
        } else {
          queue[kind as 'remove' | 'release'](id);
          model.delete(id);
        }
        const items = [...model.values()];
        expect(queue.size).toBe(items.length);
        expect(queue.bytes).toBe(items.reduce((sum, other) => sum + other.bytes, 0));
        expect(queue.prefillMs).toBe(items.reduce((sum, other) => sum + other.prefillMs, 0));
        const priorities = items.map((other) => other.priority);
        expect(queue.topPriority).toBe(items.length === 0 ? null : Math.min(...priorities));
      }
      expect(new Set(drain(queue))).toEqual(new Set(model.keys()));
      expect([queue.size, queue.bytes, queue.prefillMs]).toEqual([0, 0, 0]);
    }),
  );
});

describe('what is held back for KV room', () => {
  test('stands in a lane of its own, the newest first, whatever its work', () => {
    const queue = queueOf(
      item('late-long', { held: 'new', arrivedMs: 20, entersMs: 120, prefillMs: 900 }),
      item('plain', { arrivedMs: 30 }),
      item('early-short', { held: 'new', arrivedMs: 10, entersMs: 110, prefillMs: 1 }),
    );
    const next = (held: boolean) =>
      queue.next({ nowMs: 30, pressWithinMs: 120, past: NOBODY_PAST, held })?.id ?? null;
    expect([next(false), next(true)]).toEqual(['plain', 'late-long']);
    expect(queue.held).toEqual({ requests: 2, prefillMs: 901 });
    expect([queue.topPriority, queue.topUnheld, queue.size]).toEqual([0, 0, 3]);
    expect([queue.ahead(0), queue.ahead(0, true)]).toEqual([
      { requests: 1, prefillMs: 100 },
      { requests: 2, prefillMs: 901 },
    ]);
    queue.release('plain');
    expect([next(false), queue.topUnheld, queue.leastEntersMs]).toEqual([null, null, 110]);
    queue.release('late-long');
    queue.remove('early-short');
    expect([next(true), queue.leastEntersMs]).toEqual([null, null]);
    expect(queue.held).toEqual({ requests: 0, prefillMs: 0 });
  });

  test('is passed by nobody who comes after it may enter without room, the oldest first', () => {
    const held = (id: string, arrivedMs: number, entersMs: number) =>
      item(id, { held: 'new', arrivedMs, entersMs });
    const queue = queueOf(
      held('patient', 0, 1_000),
      held('middle', 300, 1_300),
      held('hasty', 400, 700),
      held('newest', 900, 1_900),
    );
    const orderAt = (nowMs: number): string[] => {
      const order: string[] = [];
      const past = { ids: new Set<string>(), kinds: new Set<string>() };
      for (;;) {
        const next = queue.next({ nowMs, pressWithinMs: 120, past, held: true });
        if (next === null) return order;
        past.ids.add(next.id);
        order.push(next.id);
      }
    };
    expect(orderAt(650)).toEqual(['newest', 'hasty', 'middle', 'patient']);
    expect(orderAt(950)).toEqual(['hasty', 'newest', 'middle', 'patient']);
    expect(orderAt(1_400)).toEqual(['hasty', 'patient', 'middle', 'newest']);
  });

  test('counts those that go on, which those that begin do not hold up', () => {
    const queue = queueOf(
      item('new', { held: 'new' }),
      item('back', { held: 'returning' }),
      item('urgent', { held: 'returning', priority: -1 }),
    );
    expect([queue.returningAhead(0), queue.returningAhead(-1)]).toEqual([2, 1]);
    queue.release('back');
    expect([queue.returningAhead(0), queue.ahead(0, true).requests]).toEqual([1, 2]);
  });

  test('goes on before it begins: a conversation whose cache was evicted is ahead of new ones', () => {
    const queue = queueOf(
      item('new', { held: 'new', arrivedMs: 1 }),
      item('back', { held: 'returning', arrivedMs: 50 }),
    );
    const next = queue.next({ nowMs: 60, pressWithinMs: 120, past: NOBODY_PAST, held: true });
    expect(next?.id).toBe('back');
  });

  test('keeps priority and turns between tenants', () => {
    const queue = queueOf(
      item('greedy-1', { held: 'new', tenant: 'a', arrivedMs: 1, tokens: 500 }),
      item('modest', { held: 'new', tenant: 'b', arrivedMs: 2, tokens: 500 }),
      item('greedy-2', { held: 'new', tenant: 'a', arrivedMs: 9, tokens: 500 }),
      item('urgent', { held: 'new', tenant: 'a', arrivedMs: 9, priority: -1 }),
    );
    const order: string[] = [];
    for (;;) {
      const next = queue.next({ nowMs: 0, pressWithinMs: 120, past: NOBODY_PAST, held: true });
      if (next === null) break;
      queue.release(next.id);
      order.push(next.id);
    }
    expect(order).toEqual(['urgent', 'greedy-2', 'modest', 'greedy-1']);
  });

  test('is given up before what waits for anything else of its priority', () => {
    const queue = queueOf(item('plain', { arrivedMs: 50 }), item('held', { held: 'new' }));
    expect(queue.worst()?.id).toBe('held');
  });
});
