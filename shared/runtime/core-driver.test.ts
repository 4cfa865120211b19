import { describe, expect, test } from 'vitest';
import { CoreDriver, type CoreMachine } from './core-driver.ts';
import { ManualTime } from './manual-time.ts';

/** A core whose events and effects are words; `tick` is the timer's. */
function driven(
  core: Partial<CoreMachine<string, string>>,
  carry: (effect: string, driver: CoreDriver<string, string>) => void = () => undefined,
) {
  const time = new ManualTime();
  const seen: string[] = [];
  const bugs: string[] = [];
  const driver: CoreDriver<string, string> = new CoreDriver({
    core: {
      handle(event, nowMs) {
        seen.push(event);
        return core.handle?.(event, nowMs) ?? [];
      },
      nextWakeMs: () => core.nextWakeMs?.() ?? null,
    },
    tick: 'tick',
    clock: time,
    timers: time,
    carry: (effect) => carry(effect, driver),
    onBug: (_error, event) => bugs.push(event),
  });
  return { driver, time, seen, bugs };
}

describe('the driver', () => {
  test('lets events that come during effects wait until these are done', () => {
    const order: string[] = [];
    const { driver } = driven(
      {
        handle(event) {
          order.push(`event ${event}`);
          return event === 'a' ? ['first', 'second'] : [];
        },
      },
      (effect, self) => {
        order.push(`effect ${effect}`);
        if (effect === 'first') self.post('b');
      },
    );
    driver.post('a');
    expect(order).toEqual(['event a', 'effect first', 'effect second', 'event b']);
  });

  test('ticks when the core asked to be woken, once for each time', () => {
    let wakeMs: number | null = 1_500;
    const { driver, time, seen } = driven({ nextWakeMs: () => wakeMs });
    driver.post('a');
    time.advance(499);
    expect(seen).toEqual(['a']);
    wakeMs = null;
    time.advance(1);
    expect(seen).toEqual(['a', 'tick']);
    time.advance(10_000);
    expect(seen).toHaveLength(2);
  });

  test('follows a wake that moves nearer, with one timer at a time', () => {
    let wakeMs: number | null = 1_900;
    const { driver, time, seen } = driven({ nextWakeMs: () => wakeMs });
    driver.post('a');
    wakeMs = 1_200;
    driver.post('b');
    wakeMs = null;
    time.advance(200);
    expect(seen).toEqual(['a', 'b', 'tick']);
    time.advance(5_000);
    expect(seen).toHaveLength(3);
  });

  test('leaves the timer alone where a later wake, or none, is wanted: it ticks once for nothing', () => {
    let wakeMs: number | null = 1_200;
    const { driver, time, seen } = driven({ nextWakeMs: () => wakeMs });
    driver.post('a');
    wakeMs = null;
    driver.post('b');
    wakeMs = 1_900;
    driver.post('c');
    time.advance(200);
    expect(seen).toEqual(['a', 'b', 'c', 'tick']);
    time.advance(700);
    expect(seen).toEqual(['a', 'b', 'c', 'tick', 'tick']);
    wakeMs = null;
    time.advance(5_000);
    expect(seen).toHaveLength(6);
  });

  test('does not spin when a wake lies in the past', () => {
    const { driver, time, seen } = driven({ nextWakeMs: () => 0 });
    driver.post('a');
    time.advance(10);
    expect(seen.length).toBeLessThanOrEqual(11);
  });

  test('survives a bug of the core and of an effect, and names the event', () => {
    const carried: string[] = [];
    const { driver, bugs } = driven(
      {
        handle(event) {
          if (event === 'bad') throw new Error('core');
          return ['first', 'second'];
        },
      },
      (effect) => {
        carried.push(effect);
        if (effect === 'first') throw new Error('effect');
      },
    );
    driver.post('bad');
    driver.post('a');
    expect(bugs).toEqual(['bad', 'a']);
    expect(carried).toEqual(['first', 'second']);
  });

  test('delivers nothing after it has stopped', () => {
    const { driver, time, seen } = driven({ nextWakeMs: () => 2_000 });
    driver.post('a');
    driver.stop();
    driver.post('b');
    time.advance(5_000);
    expect(seen).toEqual(['a']);
  });
});
