import { describe, expect, it } from 'vitest';
import { didYouMean, suggest } from './suggest.ts';

describe('suggest', () => {
  const known = ['holdMs', 'tieMs', 'tieRatio', 'engineCidrs'];

  it('finds the word that is one slip away', () => {
    expect(suggest('holdms', known)).toBe('holdMs');
    expect(suggest('tieRation', known)).toBe('tieRatio');
    expect(suggest('enigneCidrs', known)).toBe('engineCidrs');
  });

  it('stays silent when no word is near', () => {
    expect(suggest('banana', known)).toBeNull();
    expect(suggest('x', known)).toBeNull();
    expect(suggest('h'.repeat(1_000), known)).toBeNull();
    expect(didYouMean('banana', known)).toBe('');
  });
});
