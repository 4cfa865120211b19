import { describe, expect, it } from 'vitest';
import type { RankScrape } from '../events.ts';
import { readSglangMetrics } from './sglang-metrics.ts';

function ranksOf(text: string): readonly RankScrape[] {
  return readSglangMetrics(text) ?? [];
}

describe('schedulers', () => {
  it('of one data-parallel rank repeat it: the lowest tensor-parallel rank counts, in any order', () => {
    const rows = [0, 1, 2, 3].map(
      (tp) => `sglang:num_running_reqs{tp_rank="${tp}",pp_rank="0"} ${5 + tp}`,
    );
    for (const order of [rows, rows.toReversed()]) {
      expect(ranksOf(order.join('\n'))).toMatchObject([{ rank: 0, running: 5 }]);
    }
  });

  it('of later pipeline stages repeat the first one', () => {
    const [rank] = ranksOf(`
sglang:num_queue_reqs{tp_rank="0",pp_rank="1"} 9
sglang:num_queue_reqs{tp_rank="1",pp_rank="0"} 2
`);
    expect(rank?.waiting).toBe(2);
  });

  it('with attention data parallelism are told apart by dp_rank, whatever their tp_rank', () => {
    const ranks = ranksOf(`
sglang:num_running_reqs{dp_rank="1",tp_rank="2"} 7
sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3
sglang:num_running_reqs{dp_rank="1",tp_rank="3"} 8
sglang:prompt_tokens_total{model_name="m"} 100
`);
    expect(ranks).toMatchObject([
      { rank: 0, running: 3, promptTokensTotal: null },
      { rank: 1, running: 7, promptTokensTotal: null },
    ]);
  });

  it('say retractions per tensor-parallel rank, and they are one', () => {
    const [rank] = ranksOf(`
sglang:num_retracted_requests_total{tp_rank="0"} 3
sglang:num_retracted_requests_total{tp_rank="1"} 3
`);
    expect(rank?.preemptionsTotal).toBe(3);
  });

  it('of several priorities are counted once', () => {
    const [rank] = ranksOf(`
sglang:num_running_reqs{priority=""} 3
sglang:num_running_reqs{priority="0"} 2
sglang:num_running_reqs{priority="10"} 1
`);
    expect(rank?.running).toBe(3);
  });

  it('wait for grammars too', () => {
    const [rank] = ranksOf('sglang:num_queue_reqs 2\nsglang:num_grammar_queue_reqs 3\n');
    expect(rank?.waiting).toBe(5);
  });
});

describe('tokens', () => {
  it('computed are prompts less cached ones, where they are not counted batch by batch', () => {
    const old = `
sglang:prompt_tokens_total 1000
sglang:cached_tokens_total{cache_source="device"} 300
sglang:cached_tokens_total{cache_source="host"} 100
`;
    expect(ranksOf(old)[0]).toMatchObject({ computedTokensTotal: 600, cachedTokensTotal: 400 });
    const now = `${old}
sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 900
sglang:realtime_tokens_total{mode="prefill_cache",tp_rank="0"} 450
`;
    expect(ranksOf(now)[0]).toMatchObject({ computedTokensTotal: 900, cachedTokensTotal: 450 });
  });

  it('generated never fall behind those of finished requests, nor stand still while a long answer runs', () => {
    const at = (finished: number, decoded: number): number | null =>
      ranksOf(
        `sglang:generation_tokens_total ${finished}\nsglang:realtime_tokens_total{mode="decode"} ${decoded}\n`,
      )[0]?.generationTokensTotal ?? null;
    expect([at(10, 1), at(10, 2_000), at(2_050, 2_040)]).toEqual([10, 2_000, 2_050]);
  });
});

describe('the KV cache', () => {
  it('is as large as its pages, where its size is not told', () => {
    const config = 'sglang:cache_config_info{num_pages="100",page_size="64"} 1\n';
    expect(ranksOf(config)[0]).toMatchObject({ kvCapacityTokens: 6_400, blockTokens: 64 });
    const gauges = 'sglang:num_pages 10\nsglang:page_size 16\n';
    expect(ranksOf(gauges)[0]).toMatchObject({ kvCapacityTokens: 160, blockTokens: 16 });
  });

  it('is as full as its fullest pool, as exact as it is told', () => {
    const usage = (fullest: number, exact: number): number | null =>
      ranksOf(`sglang:token_usage ${fullest}\nsglang:full_token_usage ${exact}\n`)[0]
        ?.kvUsageRatio ?? null;
    expect([usage(0.25, 0.2512), usage(0.9, 0.3)]).toEqual([0.2512, 0.9]);
  });
});

it('takes NaN and infinity as unknown', () => {
  const [rank] = ranksOf(
    'sglang:num_running_reqs NaN\nsglang:num_queue_reqs +Inf\nsglang:page_size 1\n',
  );
  expect(rank).toMatchObject({ running: null, waiting: null });
});

it('reads the names that an underscore was written into, and nothing in what is not of SGLang', () => {
  expect(ranksOf('sglang_num_running_reqs 4\n')[0]?.running).toBe(4);
  expect(readSglangMetrics('vllm:num_requests_running 1\n')).toBeNull();
});
