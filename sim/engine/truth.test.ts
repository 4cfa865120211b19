import { describe, expect, it } from 'vitest';

import { drain, firstTokens, request, started } from './model-test-harness.ts';

describe('truth', () => {
  it('knows what prefill is left, in tokens and in ms, at any moment', () => {
    const model = started();
    model.submit(request('a', { tokens: 128, from: 1 }), 0);
    model.submit(request('b', { tokens: 64, from: 2 }), 0);
    model.advance(0);
    expect(model.truth(0)).toMatchObject({ waitingPrefillTokens: 192 });
    expect(model.truth(0).waitingPrefillMs).toBeCloseTo(3 * 16.4, 9);
    model.advance(20);
    expect(model.truth(20).waitingPrefillTokens).toBe(128);
    expect(model.truth(20).waitingPrefillMs).toBeCloseTo(3 * 16.4 - 20, 9);
    expect(firstTokens(drain(model))['b']).toBeCloseTo(3 * 16.4, 9);
    expect(model.truth(1e5)).toMatchObject({ waitingPrefillTokens: 0, waitingPrefillMs: 0 });
  });

  it('leaves out what the cache has', () => {
    const model = started();
    model.submit(request('a', { tokens: 100 }), 0);
    drain(model);
    model.submit(request('b', { tokens: 100 }), 1_000);
    expect(model.truth(1_000).waitingPrefillTokens).toBe(4);
  });
});
