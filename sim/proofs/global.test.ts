// The short part of `npm run prove -- global`: one world of each kind, and the controls that must fail.

import { describe, expect, test } from 'vitest';
import { GlobalCore } from '../../router/global/core.ts';
import type { GlobalEvent } from '../../router/global/events.ts';
import { ConversationMemory } from '../../router/policy/affinity.ts';
import { OwnSends } from '../../router/policy/own-sends.ts';
import { TurnPace } from '../../router/policy/turn-pace.ts';
import { without } from '../world/without.ts';
import {
  breachesOf,
  CHOICE,
  choiceFailures,
  FLOOD,
  floodFailures,
  peakFailures,
  QUICK_FLOOD,
  suddenFailures,
  withoutCredits,
} from './global.ts';
import {
  measureAffinity,
  measureFlood,
  measurePeak,
  measureSudden,
  type FloodFigures,
  type FloodShape,
} from './global-worlds.ts';

const HISTORIES = 300;

describe('the evening peak', () => {
  test('spills in time, not beyond 300 ms at the neighbour, and comes back; the EU tenant stays', () => {
    const shape = { seed: 2, replicas: 8, promptTokens: 500, hotMs: 120_000, afterMs: 200_000 };
    expect(peakFailures(measurePeak(shape))).toEqual([]);
  });
});

describe('two small neighbours of a region beyond its capacity', () => {
  const shape = { ...FLOOD, ...QUICK_FLOOD, forMs: 40_000, seed: 2 };

  test('are not flooded by five routers whose reports are late', () => {
    expect(floodFailures(measureFlood(shape))).toEqual([]);
  });

  test('control: are flooded where credits are off', () => {
    expect(floodFailures(withoutCredits(() => measureFlood(shape)))).not.toEqual([]);
  });

  test('are not flooded where clients send one id for everything, and find a beginning that all share', () => {
    const figures = floodUnderOneId(shape);
    expect(figures.flatMap(floodFailures)).toEqual([]);
    expect(figures[0]?.spills).toBeGreaterThan(100);
  });

  test('control: are flooded by such an id where it counts however many come under it', () => {
    without(TurnPace.prototype, { name: 'isCrowded', make: () => () => false }, () => {
      expect(floodUnderOneId(shape).flatMap(floodFailures)).not.toEqual([]);
    });
  });
});

/** Every request under one id, and most of each in the cache, as an engine says that has a long beginning of all of them. */
function floodUnderOneId(shape: FloodShape): FloodFigures[] {
  const figures: FloodFigures[] = [];
  const make = (handle: GlobalCore['handle']): GlobalCore['handle'] =>
    function (this: GlobalCore, event, nowMs) {
      return handle.call(this, underOneId(event), nowMs);
    };
  without(GlobalCore.prototype, { name: 'handle', make }, () => figures.push(measureFlood(shape)));
  return figures;
}

function underOneId(event: GlobalEvent): GlobalEvent {
  if (event.kind === 'arrived') {
    return { ...event, request: { ...event.request, conversationId: 'all' } };
  }
  if (event.kind !== 'attemptEnded' || event.result.kind !== 'complete') return event;
  const { usage } = event.result;
  if (usage === null) return event;
  const cachedTokens = usage.promptTokens - 1;
  return { ...event, result: { ...event.result, usage: { ...usage, cachedTokens } } };
}

describe('of two equal neighbours', () => {
  const shape = { ...CHOICE, forMs: 25_000, settings: { spillIntervalMs: 10_000 } };

  test('both get their part at every moment', () => {
    expect(choiceFailures(measureFlood(shape).oneSidedRatio)).toEqual([]);
  });

  test('control: without the draw all routers go for the same', () => {
    const settings = { ...shape.settings, temperatureMs: 0 };
    expect(choiceFailures(measureFlood({ ...shape, settings }).oneSidedRatio)).not.toEqual([]);
  });
});

describe('a load that doubles at once, with reports 5 s late', () => {
  test('is noticed within a second', () => {
    expect(suddenFailures(measureSudden(2))).toEqual([]);
  });

  test('control: is noticed late where own sends do not count', () => {
    without(OwnSends.prototype, { name: 'backlogMs', make: () => () => 0 }, () => {
      expect(suddenFailures(measureSudden(2))).not.toEqual([]);
    });
  });
});

describe('conversations, turns by way of either of two routers', () => {
  const ratio = (restartMs: number | null): number => {
    const { laterTurns, inPlace } = measureAffinity({ seed: 2, forMs: 50_000, restartMs });
    return inPlace / laterTurns;
  };

  test.each([null, 35_000])('stay in place, also where both are started anew (at %s ms)', (at) => {
    expect(ratio(at)).toBeGreaterThanOrEqual(0.95);
  });

  test('control: move where regions do not tell which live with them', () => {
    without(ConversationMemory.prototype, { name: 'reported', make: () => () => {} }, () => {
      expect(ratio(null)).toBeLessThan(0.95);
    });
  });
});

test('no random history breaches a rule', () => {
  expect(breachesOf({ from: 1, histories: HISTORIES, events: 250 })).toEqual([]);
});
