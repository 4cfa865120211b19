import { describe, expect, test } from 'vitest';
import type { RequestId } from '../../shared/model/ids.ts';
import { CoreDriver, type CoreMachine } from './driver.ts';
import type { LimitName } from '../../shared/model/limit.ts';
import type { RouterEffect, RouterEvent } from './events.ts';

const gone = (id: string): RouterEvent => ({ kind: 'clientGone', request: id as RequestId });
const limit = (name: LimitName): RouterEffect => ({ kind: 'limit', limit: name });

/** Virtual time: timers run when the test moves the clock. */
class FakeTime {
  now = 0;
  private tasks: { atMs: number; task: () => void }[] = [];

  readonly clock = { nowMs: () => this.now, wallMs: () => this.now };
  readonly timers = {
    after: (delayMs: number, task: () => void) => {
      const entry = { atMs: this.now + delayMs, task };
      this.tasks.push(entry);
      return () => {
        this.tasks = this.tasks.filter((each) => each !== entry);
      };
    },
    every: () => () => undefined,
  };

  get pending(): number {
    return this.tasks.length;
  }

  moveTo(nowMs: number): void {
    this.now = nowMs;
    const due = this.tasks.filter((each) => each.atMs <= nowMs);
    this.tasks = this.tasks.filter((each) => each.atMs > nowMs);
    for (const { task } of due) task();
  }
}

function driven(core: CoreMachine, carry: (effect: RouterEffect) => void = () => undefined) {
  const time = new FakeTime();
  const bugs: RouterEvent[] = [];
  const driver = new CoreDriver({
    core,
    clock: time.clock,
    timers: time.timers,
    carry,
    onBug: (_error, event) => bugs.push(event),
  });
  return { driver, time, bugs };
}

describe('the driver', () => {
  test('lets events that come during effects wait until these are done', () => {
    const order: string[] = [];
    const core: CoreMachine = {
      handle(event) {
        const name = event.kind === 'clientGone' ? event.request : event.kind;
        order.push(`event ${name}`);
        return name === 'a' ? [limit('queue'), limit('replicas')] : [];
      },
      nextWakeMs: () => null,
    };
    const { driver } = driven(core, (effect) => {
      order.push(`effect ${effect.kind === 'limit' ? effect.limit : ''}`);
      if (effect.kind === 'limit' && effect.limit === 'queue') driver.post(gone('b'));
    });
    driver.post(gone('a'));
    expect(order).toEqual(['event a', 'effect queue', 'effect replicas', 'event b']);
  });

  test('ticks when the core wants to wake, with one timer at a time', () => {
    let wake: number | null = 100;
    const seen: string[] = [];
    const core: CoreMachine = {
      handle(event) {
        seen.push(event.kind);
        return [];
      },
      nextWakeMs: () => wake,
    };
    const { driver, time } = driven(core);
    driver.post(gone('a'));
    driver.post(gone('b'));
    wake = 50;
    driver.post(gone('c'));
    expect(time.pending).toBe(1);
    wake = null;
    time.moveTo(50);
    expect(seen).toEqual(['clientGone', 'clientGone', 'clientGone', 'tick']);
    expect(time.pending).toBe(0);
  });

  test('survives a bug of the core and of an effect, and names the event', () => {
    const core: CoreMachine = {
      handle(event) {
        if (event.kind === 'drain') throw new Error('core');
        return [limit('queue'), limit('replicas')];
      },
      nextWakeMs: () => null,
    };
    const carried: string[] = [];
    const { driver, bugs } = driven(core, (effect) => {
      if (effect.kind !== 'limit') return;
      carried.push(effect.limit);
      if (effect.limit === 'queue') throw new Error('effect');
    });
    driver.post({ kind: 'drain' });
    driver.post(gone('a'));
    expect(bugs.map((event) => event.kind)).toEqual(['drain', 'clientGone']);
    expect(carried).toEqual(['queue', 'replicas']);
  });

  test('does nothing once it is stopped', () => {
    let handled = 0;
    const core: CoreMachine = {
      handle() {
        handled += 1;
        return [];
      },
      nextWakeMs: () => 10,
    };
    const { driver, time } = driven(core);
    driver.post(gone('a'));
    driver.stop();
    time.moveTo(20);
    driver.post(gone('b'));
    expect(handled).toBe(1);
  });
});
