import { describe, expect, test } from 'vitest';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { PrefixMatch } from './prefix-match.ts';
import { leastPromptTokens, promptTokens, type TokenFigures } from './tokens.ts';

const FIGURES: TokenFigures = {
  bytesPerToken: { mean: 4, p5: 3, p95: 5 },
  partTokens: {},
  blockTokens: 16,
  kappa: 1,
};

/** 8 full chunks and 4 bytes: 1,025 tokens at 4 bytes each. */
function prompt(more: Partial<PromptChain> = {}): PromptChain {
  return {
    keySpace: 'text/1',
    bytes: 4_100,
    hashes: new Uint32Array(16),
    turnEnds: [],
    end: { offset: 4_100, chunks: 8, hashLow: 1, hashHigh: 1 },
    parts: {},
    tokenIds: null,
    ...more,
  };
}

const chunks = (count: number): PrefixMatch => ({ chunks: count, leaf: null, leafOffset: 0 });

describe('tokens of a prompt', () => {
  test('4 bytes a token until learned, and 1,000 a part', () => {
    expect(promptTokens(prompt(), null, null)).toEqual({
      prompt: 1_025,
      matched: 0,
      cached: 0,
      uncached: 1_025,
    });
    expect(promptTokens(prompt({ parts: { image: 2 } }), null, null).prompt).toBe(3_025);
    const learned = { ...FIGURES, partTokens: { image: 256 } };
    expect(promptTokens(prompt({ parts: { image: 2 } }), null, learned).prompt).toBe(1_537);
  });

  test('cached tokens are rounded down to blocks and multiplied by κ', () => {
    // 3 chunks = 384 tokens = 3 blocks of 100 and 84 over; κ 0.9
    const figures = { ...FIGURES, blockTokens: 100, kappa: 0.9 };
    expect(promptTokens(prompt(), chunks(3), figures)).toEqual({
      prompt: 1_025,
      matched: 384,
      cached: 270,
      uncached: 755,
    });
  });

  test('at least one token is computed, whatever is cached and whatever κ says', () => {
    const whole = prompt({ bytes: 4_096 });
    const exact = { ...FIGURES, blockTokens: 1, kappa: 1.2 };
    expect(promptTokens(whole, chunks(8), exact)).toMatchObject({ cached: 1_023, uncached: 1 });
    expect(promptTokens(whole, chunks(8), FIGURES)).toMatchObject({
      prompt: 1_024,
      matched: 1_023,
      cached: 1_008,
    });
  });

  test('a leaf gives exact tokens up to its end, and its answer is cached too', () => {
    // Turn 1 ended at byte 2,200: really 700 tokens, and 90 of an answer. 1,900 bytes follow: 475 tokens.
    const leaf: PrefixMatch = {
      chunks: 4,
      leaf: { promptTokens: 700, answerTokens: 90 },
      leafOffset: 2_200,
    };
    expect(promptTokens(prompt(), leaf, FIGURES)).toEqual({
      prompt: 1_175,
      matched: 790,
      cached: 784,
      uncached: 391,
    });
  });

  test('chunks matched beyond a leaf count when they reach further than its answer', () => {
    const leaf = { promptTokens: 700, answerTokens: 10 };
    const deeper: PrefixMatch = { chunks: 6, leaf, leafOffset: 2_200 };
    // 6 · 512 − 2,200 = 872 bytes = 218 tokens beyond the leaf
    expect(promptTokens(prompt(), deeper, FIGURES).matched).toBe(918);
  });

  test('a prompt of token ids is counted exactly', () => {
    const ids = prompt({ bytes: 4_096, tokenIds: 1_024, keySpace: 'ids/1' });
    const figures = { ...FIGURES, bytesPerToken: { mean: 3, p5: 3, p95: 3 } };
    expect(promptTokens(ids, chunks(2), figures)).toMatchObject({ prompt: 1_024, matched: 256 });
    expect(leastPromptTokens(ids, figures)).toBe(1_024);
  });

  test('it costs no more than the context of the target, however long it is', () => {
    const short = { ...FIGURES, contextTokens: 500 };
    expect(promptTokens(prompt({ parts: { image: 2 } }), chunks(8), short)).toEqual({
      prompt: 500,
      matched: 499,
      cached: 496,
      uncached: 4,
    });
    expect(promptTokens(prompt({ tokenIds: 1_024 }), null, short).uncached).toBe(500);
  });

  test('the least that it can have is by the p95 of bytes per token, unknown until learned', () => {
    expect(leastPromptTokens(prompt(), FIGURES)).toBe(820);
    expect(leastPromptTokens(prompt(), null)).toBeNull();
  });
});
