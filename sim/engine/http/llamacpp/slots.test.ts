import { describe, expect, it } from 'vitest';

import type { StepFacts } from '../../step-facts.ts';
import { SlotTable } from './slots.ts';

function step(facts: Partial<StepFacts>): StepFacts {
  return {
    ...{ startMs: 0, endMs: 100, prefillTokens: 0, prefillRequests: 0, admittedIds: [] },
    ...{ cachedTokens: 0, preempted: 0, decodes: 0, decodeContextTokens: 0 },
    ...facts,
  };
}

describe('the slots of llama.cpp', () => {
  it('go to who waits longest, the least number first', () => {
    const table = new SlotTable(2);
    const tasks = ['a', 'b', 'c'].map((id) => table.add(id, 10));
    expect(tasks.map(({ slot }) => slot)).toEqual([0, 1, null]);
    expect([table.processing, table.deferred]).toEqual([2, 1]);
    table.remove('a', 0);
    expect(tasks[2]?.slot).toBe(0);
    expect(table.deferred).toBe(0);
  });

  it('share a step in their order, each as far as it needs', () => {
    const table = new SlotTable(3);
    const [first, second, third] = [1_500, 500, 4_000].map((tokens, at) =>
      table.add(`${at}`, tokens),
    );
    table.step(step({ admittedIds: ['0'], prefillTokens: 1_024 }));
    table.step(step({ admittedIds: ['1', '2'], prefillTokens: 1_024 }));
    expect([first, second, third].map((task) => task?.processedTokens)).toEqual([1_500, 500, 48]);
    expect(table.counts.promptTokens).toBe(2_048);
  });

  it('count what was found instead of computed once the first token is there', () => {
    const table = new SlotTable(1);
    table.add('a', 1_000);
    table.step(step({ admittedIds: ['a'], prefillTokens: 200, startMs: 50 }));
    table.token('a', { atMs: 100, cachedTokens: 800 });
    expect(table.slots[0]).toMatchObject({ processedTokens: 200, cachedTokens: 800 });
    expect(table.counts).toMatchObject({ cachedTokens: 800, promptMs: 50 });
    table.token('a', { atMs: 150, cachedTokens: 800 });
    table.remove('a', 200);
    expect(table.counts).toMatchObject({ predictedTokens: 2, predictedMs: 100 });
  });

  it('count nothing of who left before its first token', () => {
    const table = new SlotTable(1);
    table.add('a', 1_000);
    table.remove('a', 50);
    expect(table.counts).toMatchObject({ promptMs: 0, predictedTokens: 0 });
    expect(table.remove('a', 60)).toBeNull();
  });
});
