import { describe, expect, it } from 'vitest';
import { isSettled } from './warm-up.ts';

describe('a warm-up', () => {
  it('is over when two rounds in a row cost about the same', () => {
    expect(isSettled([900, 700, 690])).toBe(true);
    expect(isSettled([900, 700, 650])).toBe(false);
    expect(isSettled([900, 650, 700])).toBe(false);
  });

  it('has three rounds at least', () => {
    expect([isSettled([]), isSettled([700]), isSettled([700, 700])]).toEqual([false, false, false]);
  });

  it('looks at the last two rounds only', () => {
    expect(isSettled([700, 700, 600])).toBe(false);
  });
});
