import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { RankScrape } from '../events.ts';
import { readVllmMetrics } from './vllm-metrics.ts';

function recorded(name: string): string {
  const file = new URL(`../../test/fixtures/vllm-0.32.0/metrics-${name}.prom`, import.meta.url);
  return readFileSync(file, 'utf8');
}

function ranksOf(text: string): readonly RankScrape[] {
  return readVllmMetrics(text)?.ranks ?? [];
}

const RECORDED = [
  'after-requests',
  'loaded',
  'after-load',
  'after-preemptions',
  'after-rejections',
  'lora-running',
  'dp2-after-requests',
];

describe('vLLM 0.32 as recorded', () => {
  it('finds every prompt token either computed or cached', () => {
    for (const name of RECORDED) {
      for (const rank of ranksOf(recorded(name))) {
        const { computedTokensTotal, cachedTokensTotal, promptTokensTotal } = rank;
        expect((computedTokensTotal ?? 0) + (cachedTokensTotal ?? 0)).toBe(promptTokensTotal);
      }
    }
  });
});

describe('other versions', () => {
  it('reads V0: no engine label, old names, prompt tokens that are computed ones', () => {
    const [rank] = ranksOf(`
vllm:cache_config_info{block_size="16",num_gpu_blocks="7281",num_cpu_blocks="0"} 1.0
vllm:num_requests_running{model_name="m"} 2.0
vllm:num_requests_waiting{model_name="m"} 1.0
vllm:num_requests_swapped{model_name="m"} 0.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:prompt_tokens_total{model_name="m"} 500.0
vllm:time_per_output_token_seconds_sum{model_name="m"} 0.5
vllm:time_per_output_token_seconds_count{model_name="m"} 10.0
`);
    expect(rank).toMatchObject({
      rank: 0,
      running: 2,
      waiting: 1,
      kvUsageRatio: 0.25,
      kvCapacityTokens: 116_496,
      blockTokens: 16,
      asleep: null,
      promptTokensTotal: null,
      computedTokensTotal: 500,
      cachedTokensTotal: null,
      itlSumSeconds: 0.5,
      itlCount: 10,
    });
  });

  it('takes prompts less cache hits as computed where sources are not told apart', () => {
    const [rank] = ranksOf(`
vllm:prompt_tokens_total{engine="0"} 1000
vllm:prefix_cache_hits_total{engine="0"} 600
vllm:external_prefix_cache_hits_total{engine="0"} 100
vllm:gpu_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="0"} 0.4
`);
    expect(rank).toMatchObject({
      promptTokensTotal: 1_000,
      computedTokensTotal: 300,
      cachedTokensTotal: 700,
      kvUsageRatio: 0.4,
    });
  });

  const OLD_HITS = `
vllm:prompt_tokens_total{engine="0"} 1000
vllm:gpu_prefix_cache_hits_total{engine="0"} 30
`;
  const HELP =
    '# HELP vllm:gpu_prefix_cache_hits_total GPU prefix cache hits, in terms of number of ';
  const CONFIG = 'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="10"} 1\n';

  it('takes hits of 0.8 as blocks, which its HELP says', () => {
    const [rank] = ranksOf(`${HELP}cached blocks.${OLD_HITS}${CONFIG}`);
    expect(rank).toMatchObject({ computedTokensTotal: 520, cachedTokensTotal: 480 });
  });

  it('takes hits of 0.9 under the old name as tokens, which its HELP says', () => {
    const [rank] = ranksOf(`${HELP}cached tokens.${OLD_HITS}${CONFIG}`);
    expect(rank).toMatchObject({ computedTokensTotal: 970, cachedTokensTotal: 30 });
  });

  it('knows no hits where neither unit nor block size is known', () => {
    for (const text of [OLD_HITS, `${OLD_HITS}${CONFIG}`, `${HELP}cached blocks.${OLD_HITS}`]) {
      const [rank] = ranksOf(text);
      expect(rank).toMatchObject({ computedTokensTotal: null, cachedTokensTotal: null });
    }
  });

  it('counts ranks from the lowest here, where each server has some of them', () => {
    const ranks = ranksOf(`
vllm:num_requests_running{engine="6"} 1
vllm:num_requests_running{engine="7"} 2
`);
    expect(ranks.map(({ rank, running }) => [rank, running])).toEqual([
      [0, 1],
      [1, 2],
    ]);
  });

  it('reads a body of 5 MB to all of its ranks', () => {
    const one = recorded('loaded');
    const ranks = Math.ceil(5_000_000 / one.length);
    const body = Array.from({ length: ranks }, (_, rank) =>
      one.replaceAll('engine="0"', `engine="${rank}"`),
    ).join('');
    const read = ranksOf(body);
    expect(read).toHaveLength(ranks);
    expect(new Set(read.map((rank) => rank.waiting))).toEqual(new Set([15]));
  });

  it('adds up several models and front ends of one rank, and keeps ranks apart', () => {
    const ranks = ranksOf(`
vllm:num_requests_running{engine="1",model_name="a"} 3
vllm:num_requests_running{engine="0",model_name="a"} 1
vllm:num_requests_running{engine="0",model_name="b"} 2
`);
    expect(ranks.map(({ rank, running }) => [rank, running])).toEqual([
      [0, 3],
      [1, 3],
    ]);
  });

  it('reads the names that Ray writes', () => {
    const [rank] = ranksOf(
      'ray_vllm_num_requests_running{engine="0",ReplicaId="r"} 3\nvllm_num_requests_waiting{engine="0"} 4\n',
    );
    expect(rank).toMatchObject({ running: 3, waiting: 4 });
  });

  it('says asleep where the engine is put to sleep', () => {
    const [rank] = ranksOf(`
vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0
vllm:engine_sleep_state{engine="0",sleep_state="weights_offloaded"} 1
`);
    expect(rank?.asleep).toBe(true);
  });

  it('takes NaN as unknown, and a configuration of None as absent', () => {
    const [rank] = ranksOf(`
vllm:num_requests_running{engine="0"} NaN
vllm:num_requests_waiting{engine="0"} 1
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="None",kv_cache_size_tokens="None"} 1
`);
    expect(rank).toMatchObject({ running: null, kvCapacityTokens: null, blockTokens: 16 });
  });

  it('finds no engine in an exposition of something else', () => {
    expect(readVllmMetrics('process_start_time_seconds 1\nnode_load1 0.5\n')).toBeNull();
    expect(readVllmMetrics('<html>not found</html>')).toBeNull();
  });
});
