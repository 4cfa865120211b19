import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { RankScrape } from '../events.ts';
import { readVllmMetrics } from './vllm.ts';

function recorded(name: string): string {
  const file = new URL(`../../test/fixtures/vllm-0.32.0/metrics-${name}.prom`, import.meta.url);
  return readFileSync(file, 'utf8');
}

function ranksOf(text: string): readonly RankScrape[] {
  return readVllmMetrics(text)?.ranks ?? [];
}

/** Columns: running, waiting, prompt, computed, cached, generated, preempted, first tokens; KV capacity. */
const RECORDED: readonly (readonly [string, readonly number[], number])[] = [
  ['idle-fresh', [0, 0, 0, 0, 0, 0, 0, 0], 524_288],
  ['after-requests', [0, 0, 16_046, 6_958, 9_088, 49, 0, 11], 524_288],
  ['loaded', [1, 15, 16_046, 6_958, 9_088, 49, 0, 11], 524_288],
  ['after-load', [0, 0, 137_849, 128_761, 9_088, 625, 0, 35], 524_288],
  ['after-preemptions', [0, 0, 12_452, 11_524, 928, 11_400, 2, 13], 16_640],
  ['after-rejections', [0, 0, 52_532, 14_996, 37_536, 11_448, 2, 25], 16_640],
  ['lora-running', [2, 0, 3_713, 3_713, 0, 133, 0, 5], 16_384],
];

describe('vLLM 0.32 as recorded', () => {
  for (const [name, figures, capacity] of RECORDED) {
    it(`reads metrics-${name}`, () => {
      const scrape = readVllmMetrics(recorded(name));
      expect(scrape?.startTimeSeconds).toBeGreaterThan(1.7e9);
      expect(scrape?.ranks).toHaveLength(1);
      const rank = scrape!.ranks[0]!;
      expect([
        rank.running,
        rank.waiting,
        rank.promptTokensTotal,
        rank.computedTokensTotal,
        rank.cachedTokensTotal,
        rank.generationTokensTotal,
        rank.preemptionsTotal,
        rank.firstTokensTotal,
      ]).toEqual(figures);
      expect(rank).toMatchObject({ kvCapacityTokens: capacity, blockTokens: 32, asleep: false });
    });
  }

  it('finds every prompt token either computed or cached', () => {
    for (const [name] of RECORDED) {
      for (const rank of ranksOf(recorded(name))) {
        expect((rank.computedTokensTotal ?? 0) + (rank.cachedTokensTotal ?? 0)).toBe(
          rank.promptTokensTotal,
        );
      }
    }
  });

  it('reads the KV use and the time between tokens under load', () => {
    const [rank] = ranksOf(recorded('loaded'));
    expect(rank?.kvUsageRatio).toBeCloseTo(0.0039, 4);
    expect(rank?.itlSumSeconds).toBeCloseTo(0.1505, 4);
    expect(rank?.itlCount).toBe(38);
  });

  it('keeps two data-parallel ranks apart, and knows no start time in multi-process mode', () => {
    const scrape = readVllmMetrics(recorded('dp2-after-requests'));
    expect(scrape?.startTimeSeconds).toBeNull();
    expect(scrape?.ranks.map((rank) => [rank.rank, rank.promptTokensTotal])).toEqual([
      [0, 7_464],
      [1, 7_463],
    ]);
  });

  it('leaves gauges that are absent before the first request unknown, not 0', () => {
    const ranks = ranksOf(recorded('dp2-fresh'));
    expect(ranks).toHaveLength(2);
    for (const rank of ranks) {
      expect([rank.running, rank.waiting, rank.kvUsageRatio]).toEqual([null, null, null]);
      expect(rank.promptTokensTotal).toBe(0);
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

  it('knows no computed tokens where hits are counted in blocks', () => {
    const [rank] = ranksOf(`
vllm:prompt_tokens_total{engine="0"} 1000
vllm:gpu_prefix_cache_hits_total{engine="0"} 60
`);
    expect(rank).toMatchObject({ computedTokensTotal: null, cachedTokensTotal: null });
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
