import { describe, expect, it } from 'vitest';
import type { LinkId } from '../shared/model/ids.ts';
import { ManualTime } from '../shared/runtime/manual-time.ts';
import { Driver, type DrivenCore } from './driver.ts';
import type { AgentEffect, AgentEvent } from './events.ts';

function driven(core: Partial<DrivenCore>): {
  driver: Driver;
  time: ManualTime;
  events: AgentEvent[];
  carried: AgentEffect[];
} {
  const time = new ManualTime();
  const events: AgentEvent[] = [];
  const carried: AgentEffect[] = [];
  const driver = new Driver({
    core: {
      handle: (event, nowMs) => {
        events.push(event);
        return core.handle?.(event, nowMs) ?? [];
      },
      nextWakeMs: () => core.nextWakeMs?.() ?? null,
    },
    clock: time,
    timers: time,
    carryOut: (effect) => {
      carried.push(effect);
      // A link that ends while its message is sent.
      if (effect.kind === 'send') driver.deliver({ kind: 'linkDown', link: effect.link });
    },
  });
  return { driver, time, events, carried };
}

const link = 'out-1' as LinkId;
const close: AgentEffect = { kind: 'close', link, reason: 'fenced' };

describe('driver', () => {
  it('carries out all effects of an event before the next event reaches the core', () => {
    const bye = { kind: 'bye', replica: 'r', reason: 'drained' } as never;
    const { driver, events, carried } = driven({
      handle: (event) =>
        event.kind === 'linkUp' ? [{ kind: 'send', link, message: bye }, close] : [],
    });
    driver.deliver({ kind: 'linkUp', link });
    expect(carried.map((effect) => effect.kind)).toEqual(['send', 'close']);
    expect(events.map((event) => event.kind)).toEqual(['linkUp', 'linkDown']);
  });

  it('ticks when the core asked to be woken, once for each time', () => {
    let wakeMs: number | null = 1_500;
    const { driver, time, events } = driven({ nextWakeMs: () => wakeMs });
    driver.deliver({ kind: 'start' });
    time.advance(499);
    expect(events).toHaveLength(1);
    wakeMs = null;
    time.advance(1);
    expect(events.map((event) => event.kind)).toEqual(['start', 'tick']);
    time.advance(10_000);
    expect(events).toHaveLength(2);
  });

  it('does not spin when a wake-up lies in the past', () => {
    const { driver, time, events } = driven({ nextWakeMs: () => 0 });
    driver.deliver({ kind: 'start' });
    time.advance(10);
    expect(events.length).toBeLessThanOrEqual(11);
  });

  it('delivers nothing after it has stopped', () => {
    const { driver, time, events } = driven({ nextWakeMs: () => 2_000 });
    driver.deliver({ kind: 'start' });
    driver.stop();
    driver.deliver({ kind: 'tick' });
    time.advance(5_000);
    expect(events).toHaveLength(1);
  });
});
