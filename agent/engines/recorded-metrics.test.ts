// Every recorded exposition in the repository, read to the figures that stand in it. What a file does not have is
// not in its row, and has to be null.

import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { absentRank, type RankScrape } from '../events.ts';
import { kindOfMetrics } from './detect.ts';
import { readLlamacppMetrics } from './llamacpp-metrics.ts';
import { readSglangMetrics } from './sglang-metrics.ts';
import { readTgiMetrics } from './tgi-metrics.ts';
import { readVllmMetrics, wantedName } from './vllm-metrics.ts';

const FIXTURES = new URL('../../test/fixtures/', import.meta.url);

function body(file: string): string {
  return readFileSync(new URL(file, FIXTURES), 'utf8');
}

function files(folder: string): string[] {
  return readdirSync(new URL(folder, FIXTURES))
    .filter((name) => /\.(prom|txt)$/.test(name))
    .map((name) => folder + name);
}

interface Recorded {
  readonly startTimeSeconds: number | null;
  /** What is known of each rank, from 0. */
  readonly ranks: readonly Partial<RankScrape>[];
}

const one = (startTimeSeconds: number | null, rank: Partial<RankScrape>): Recorded => ({
  startTimeSeconds,
  ranks: [rank],
});

/** vLLM 0.32 tells all of these once a request has run. */
function vllm032(
  [running, waiting, kvUsageRatio]: readonly [number, number, number],
  [kvCapacityTokens, prompts, computed, cached]: readonly [number, number, number, number],
  [generated, preempted, first, itlSumSeconds, itlCount, stepsTotal]: readonly number[],
): Partial<RankScrape> {
  return {
    running,
    waiting,
    kvUsageRatio,
    kvCapacityTokens,
    blockTokens: 32,
    asleep: false,
    promptTokensTotal: prompts,
    computedTokensTotal: computed,
    cachedTokensTotal: cached,
    generationTokensTotal: generated ?? null,
    preemptionsTotal: preempted ?? null,
    firstTokensTotal: first ?? null,
    itlSumSeconds: itlSumSeconds ?? null,
    itlCount: itlCount ?? null,
    stepsTotal: stepsTotal ?? null,
  };
}

const NOTHING_DONE = {
  asleep: false,
  promptTokensTotal: 0,
  computedTokensTotal: 0,
  cachedTokensTotal: 0,
  generationTokensTotal: 0,
  preemptionsTotal: 0,
  firstTokensTotal: 0,
  itlSumSeconds: 0,
  itlCount: 0,
  stepsTotal: 0,
} satisfies Partial<RankScrape>;

const IDLE = { running: 0, waiting: 0, kvUsageRatio: 0 } satisfies Partial<RankScrape>;
/** Multi-process mode before the first request: counters, and no gauge but the configuration's. */
const NO_GAUGES = { ...NOTHING_DONE, kvCapacityTokens: 16_384, blockTokens: 32 };

const VLLM: Readonly<Record<string, Recorded | null>> = {
  'metrics/vllm-v0-2024-06-datadog.prom': one(1_718_140_558.3, {
    ...IDLE,
    kvCapacityTokens: 7_281 * 16,
    blockTokens: 16,
    computedTokensTotal: 5,
    generationTokensTotal: 7,
    preemptionsTotal: 0,
    firstTokensTotal: 1,
    itlSumSeconds: 0.19016313552856445,
    itlCount: 6,
  }),
  'metrics/vllm-v0-2025-01-aibrix-PARTIAL.prom': one(null, {
    ...IDLE,
    kvCapacityTokens: 81_767 * 16,
    blockTokens: 16,
    computedTokensTotal: 148,
    generationTokensTotal: 955,
    preemptionsTotal: 0,
  }),
  'metrics/vllm-v0.8-v1engine-2025-03-PARTIAL-excerpt.prom': one(1_742_624_005.57, IDLE),
  'metrics/vllm-v0.10.0-2025-07-PARTIAL-excerpt.prom': one(null, {
    kvUsageRatio: 9.75010481363281e-6,
    cachedTokensTotal: 0,
  }),
  'metrics/vllm-v1-2025-11-hardware-aware-router.prom': one(1_762_438_367.32, {
    ...IDLE,
    ...NOTHING_DONE,
    asleep: null,
    kvCapacityTokens: 2_452 * 16,
    blockTokens: 16,
  }),
  'metrics/vllm-v1-dp2-PARTIAL-excerpts.prom': {
    startTimeSeconds: null,
    ranks: [{ running: 0 }, { running: 0 }],
  },
  'metrics/vllm-v0.26.0-metric-families-inference-perf.txt': null,
  'vllm-0.32.0/metrics-idle-fresh.prom': one(1_796_004_676.59, {
    ...IDLE,
    ...NOTHING_DONE,
    kvCapacityTokens: 524_288,
    blockTokens: 32,
  }),
  'vllm-0.32.0/metrics-after-requests.prom': one(
    1_796_004_676.59,
    vllm032([0, 0, 0], [524_288, 16_046, 6_958, 9_088], [49, 0, 11, 0.15053054700001667, 38, 49]),
  ),
  'vllm-0.32.0/metrics-loaded.prom': one(
    1_796_004_676.59,
    vllm032(
      [1, 15, 0.003906488433131905],
      [524_288, 16_046, 6_958, 9_088],
      [49, 0, 11, 0.15053054700001667, 38, 49],
    ),
  ),
  'vllm-0.32.0/metrics-after-load.prom': one(
    1_796_004_676.59,
    vllm032(
      [0, 0, 0],
      [524_288, 137_849, 128_761, 9_088],
      [625, 0, 35, 91.31556471799996, 590, 189],
    ),
  ),
  'vllm-0.32.0/metrics-after-preemptions.prom': one(
    1_796_005_075.52,
    vllm032(
      [0, 0, 0],
      [16_640, 12_452, 11_524, 928],
      [11_400, 2, 13, 94.64815987999998, 11_387, 1_904],
    ),
  ),
  'vllm-0.32.0/metrics-after-rejections.prom': one(
    1_796_005_075.52,
    vllm032(
      [0, 0, 0],
      [16_640, 52_532, 14_996, 37_536],
      [11_448, 2, 25, 95.09969276800018, 11_423, 1_912],
    ),
  ),
  'vllm-0.32.0/metrics-lora-running.prom': one(
    1_796_011_184.47,
    vllm032(
      [2, 0, 0.09980430528375739],
      [16_384, 3_713, 3_713, 0],
      [133, 0, 5, 2.114601015999142, 128, 73],
    ),
  ),
  'vllm-0.32.0/metrics-dp2-fresh.prom': { startTimeSeconds: null, ranks: [NO_GAUGES, NO_GAUGES] },
  'vllm-0.32.0/metrics-dp2-after-requests.prom': {
    startTimeSeconds: null,
    ranks: [
      vllm032([0, 0, 0], [16_384, 7_464, 1_576, 5_888], [21, 0, 6, 0.0955091479991097, 15, 21]),
      vllm032([0, 0, 0], [16_384, 7_463, 1_575, 5_888], [20, 0, 5, 0.08286881399999402, 15, 20]),
    ],
  },
};

const SGLANG: Readonly<Record<string, Partial<RankScrape>>> = {
  'metrics/sglang-v0.4.1-docs.prom': {
    ...IDLE,
    promptTokensTotal: 7,
    generationTokensTotal: 8,
    firstTokensTotal: 1,
    itlSumSeconds: 0.0381757915019989,
    itlCount: 1,
  },
  'metrics/sglang-v0.4.4-docs.prom': {
    running: 162,
    waiting: 2_826,
    kvUsageRatio: 0.28,
    promptTokensTotal: 8_128_902,
    generationTokensTotal: 7_557_572,
    firstTokensTotal: 11_008,
    itlSumSeconds: 866_964.5791549598,
    itlCount: 7_400_757,
  },
  'metrics/sglang-v0.5.9-2026-04-gorgo.prom': {
    running: 0,
    waiting: 0,
    kvUsageRatio: 0.00010142425003106117,
    kvCapacityTokens: 788_766,
    blockTokens: 1,
    promptTokensTotal: 92,
    computedTokensTotal: 92,
    generationTokensTotal: 9,
    preemptionsTotal: 0,
    firstTokensTotal: 2,
    stepsTotal: 9,
  },
};

const TGI: Readonly<Record<string, Partial<RankScrape>>> = {
  'metrics/tgi-v3-datadog.prom': {
    running: 0,
    waiting: 0,
    generationTokensTotal: 3_423,
    firstTokensTotal: 109,
    itlSumSeconds: 8.643160945,
    itlCount: 109,
    prefillBusyTokens: 662,
    prefillBusySeconds: 1.246376687,
    stepsTotal: 1_525,
  },
};

const LLAMACPP: Readonly<Record<string, Partial<RankScrape>>> = {
  'metrics/llamacpp-ik-fork-2025-08-pr695.prom': {
    running: 0,
    waiting: 0,
    kvUsageRatio: 0.491063,
    computedTokensTotal: 6_886,
    generationTokensTotal: 3_469,
    itlSumSeconds: 3_544.27,
    itlCount: 3_469,
    prefillBusyTokens: 6_886,
    prefillBusySeconds: 2_903.63,
  },
};

function whole(rank: Partial<RankScrape>, at = 0): RankScrape {
  return { ...absentRank(at), ...rank };
}

describe('every recorded exposition reads to what stands in it, and to nothing else', () => {
  for (const [file, recorded] of Object.entries(VLLM)) {
    it(file, () => {
      const expected = recorded === null ? null : { ...recorded, ranks: recorded.ranks.map(whole) };
      expect(readVllmMetrics(body(file))).toEqual(expected);
    });
  }
  for (const [file, rank] of Object.entries(SGLANG)) {
    it(file, () => expect(readSglangMetrics(body(file))).toEqual([whole(rank)]));
  }
  for (const [file, rank] of Object.entries(TGI)) {
    it(file, () => expect(readTgiMetrics(body(file))).toEqual(whole(rank)));
  }
  for (const [file, rank] of Object.entries(LLAMACPP)) {
    it(file, () => expect(readLlamacppMetrics(body(file))).toEqual(whole(rank)));
  }

  it('is a row for every file', () => {
    const rows = [VLLM, SGLANG, TGI, LLAMACPP].flatMap((table) => Object.keys(table));
    expect(rows.sort()).toEqual([...files('metrics/'), ...files('vllm-0.32.0/')].sort());
  });
});

describe('the kind of every recorded exposition', () => {
  for (const file of [...files('metrics/'), ...files('vllm-0.32.0/')]) {
    const kind = /(vllm|sglang|tgi|llamacpp)/.exec(file)?.[1];
    it(`${file} is of ${kind}, and of no other`, () => {
      expect(kindOfMetrics(body(file))).toBe(kind);
    });
  }
});

it('reads only names that vLLM 0.26 exposes, but for those of older versions', () => {
  const list = body('metrics/vllm-v0.26.0-metric-families-inference-perf.txt');
  const families = [...list.matchAll(/^(vllm:\S+) (\w+)$/gm)];
  const exposed = families.flatMap(([, name = '', type]) =>
    type === 'histogram' ? [`${name}_sum`, `${name}_count`] : [name],
  );
  expect(exposed.filter((name) => wantedName(name) !== null).sort()).toEqual([
    'vllm:cache_config_info',
    'vllm:engine_sleep_state',
    'vllm:external_prefix_cache_hits_total',
    'vllm:generation_tokens_total',
    'vllm:inter_token_latency_seconds_count',
    'vllm:inter_token_latency_seconds_sum',
    'vllm:iteration_tokens_total_count',
    'vllm:kv_cache_usage_perc',
    'vllm:num_preemptions_total',
    'vllm:num_requests_running',
    'vllm:num_requests_waiting',
    'vllm:prefix_cache_hits_total',
    'vllm:prompt_tokens_by_source_total',
    'vllm:prompt_tokens_cached_total',
    'vllm:prompt_tokens_total',
    'vllm:time_to_first_token_seconds_count',
  ]);
});

describe('the order of lines does not matter', () => {
  const all = { ...SGLANG, ...TGI, ...LLAMACPP };
  const reversed = (text: string): string => text.split('\n').reverse().join('\n');

  it('for vLLM: buckets before or after sum and count', () => {
    for (const [file, recorded] of Object.entries(VLLM)) {
      if (recorded === null) continue;
      const expected = { ...recorded, ranks: recorded.ranks.map(whole) };
      const read = readVllmMetrics(reversed(body(file)));
      const rounded = (value: unknown): unknown =>
        JSON.parse(
          JSON.stringify(value, (_, each: unknown) =>
            typeof each === 'number' ? Number(each.toPrecision(12)) : each,
          ),
        );
      expect(rounded(read)).toEqual(rounded(expected));
    }
  });

  it('for the others', () => {
    for (const file of Object.keys(all)) {
      const text = reversed(body(file));
      const read =
        readSglangMetrics(text)?.[0] ?? readTgiMetrics(text) ?? readLlamacppMetrics(text);
      expect(read).toEqual(whole(all[file] ?? {}));
    }
  });
});
