import { describe, expect, it } from 'vitest';
import { readVllmMetrics } from '../../agent/engines/vllm-metrics.ts';
import { EngineCounts, plainAnswer, renderAnswer, tokensOf } from './engine-answers.ts';

const busy = Object.assign(new EngineCounts(), {
  running: 3,
  promptTokens: 1_000,
  generatedTokens: 40,
  firstTokens: 9,
  heldTokens: 900,
});

describe('the benchmark’s engine', () => {
  it('tells an agent what a vLLM without backlog does', () => {
    const [rank] = readVllmMetrics(plainAnswer('/metrics', busy)?.text ?? '')?.ranks ?? [];
    expect(rank).toMatchObject({
      ...{ running: 3, waiting: 0, promptTokensTotal: 1_000, computedTokensTotal: 1_000 },
      ...{ cachedTokensTotal: 0, firstTokensTotal: 9, generationTokensTotal: 40 },
      ...{ kvCapacityTokens: 67_108_864, blockTokens: 16 },
    });
  });

  it('answers what other routers ask of a worker', () => {
    const asked = [
      ...['/health', '/v1/models', '/get_model_info', '/server_info', '/get_load', '/v1/loads'],
    ];
    for (const path of asked) {
      const { type, text } = plainAnswer(path, busy) ?? { type: '', text: '' };
      expect([path, type]).toEqual([path, 'application/json']);
      expect(JSON.parse(text)).toBeDefined();
    }
    expect(plainAnswer('/tokenize', busy)).toBeNull();
  });

  it('renders a prompt as as many tokens as its usage counts', () => {
    const body = Buffer.alloc(4_096, 'a');
    const { token_ids: tokens } = JSON.parse(renderAnswer(body).text) as { token_ids: number[] };
    expect(tokens).toHaveLength(tokensOf(body.length));
  });
});
