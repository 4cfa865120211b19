import { expect, test } from 'vitest';
import { filterTarget, type FilterView } from './filter.ts';

const SOUND: FilterView = {
  phase: 'ready',
  models: [{ id: 'm', maxModelLen: 1_000, loras: ['m-fr'] }],
  slow: false,
  link: 'fresh',
  down: false,
  breakerOpen: false,
  paused: false,
  excluded: false,
  leastPromptTokens: 1_000,
};

test.each([
  [{}, 'm', null],
  [{}, 'm-fr', null],
  [{}, 'other', 'model'],
  [{ models: [] }, 'other', null],
  [{ phase: null }, 'm', 'phase'],
  [{ phase: 'warming' }, 'm', 'phase'],
  [{ phase: 'degraded' }, 'm', 'phase'],
  [{ phase: 'degraded', slow: true }, 'm', 'slow'],
  [{ phase: 'degraded', slow: true, link: 'out' }, 'm', 'stale'],
  [{ phase: 'draining' }, 'm', 'phase'],
  [{ link: 'stale' }, 'm', null],
  [{ link: 'static' }, 'm', null],
  [{ link: 'static', down: true }, 'm', 'static_down'],
  [{ link: 'out' }, 'm', 'stale'],
  [{ breakerOpen: true }, 'm', 'breaker'],
  [{ paused: true }, 'm', 'paused'],
  [{ excluded: true, breakerOpen: true, paused: true }, 'm', 'excluded'],
  [{ leastPromptTokens: 1_001 }, 'm', 'context_length'],
  [{ leastPromptTokens: null }, 'm', null],
  [{ models: [{ id: 'm', maxModelLen: null, loras: [] }], leastPromptTokens: 1e9 }, 'm', null],
] as [Partial<FilterView>, string, string | null][])('%j for %s → %s', (more, model, expected) => {
  expect(filterTarget({ ...SOUND, ...more }, model)).toBe(expected);
});
