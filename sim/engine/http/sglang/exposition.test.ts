import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

import type { StepFacts } from '../../step-facts.ts';
import { renderSglangExposition, type SglangExpositionInput } from './exposition.ts';
import { SglangFrontStats, SglangRankStats, type SchedulerNow } from './stats.ts';

const RECORDED = readFileSync(
  new URL('../../../../test/fixtures/metrics/sglang-v0.5.9-2026-04-gorgo.prom', import.meta.url),
  'utf8',
);
const MODEL = 'Qwen/Qwen3.5-35B-A3B-FP8';
const NOW: SchedulerNow = { running: 3, waiting: 2, usedTokens: 500, usageRatio: 0.5 };

function step(facts: Partial<StepFacts>): StepFacts {
  return {
    ...{ startMs: 0, endMs: 100, prefillTokens: 0, prefillRequests: 0, admittedIds: [] },
    ...{ cachedTokens: 0, preempted: 0, decodes: 0, decodeContextTokens: 0 },
    ...facts,
  };
}

function input(ranks = 1): SglangExpositionInput {
  return {
    modelName: MODEL,
    front: new SglangFrontStats(),
    ranks: Array.from({ length: ranks }, () => new SglangRankStats()),
    pageSize: 1,
    capacityTokens: 788_766,
    contextTokens: 32_768,
  };
}

/** What the recorded server had seen. */
function used(): SglangExpositionInput {
  const all = input();
  const [rank] = all.ranks;
  for (const [path, method] of [
    ['/model_info', 'GET'],
    ['/v1/chat/completions', 'POST'],
  ] as const) {
    all.front.countHttp(path, method)(200);
  }
  all.front.countHttp('/metrics', 'GET');
  rank?.countStep(step({ prefillTokens: 92 }), () => NOW);
  rank?.countStep(step({ decodes: 1 }), () => NOW);
  rank?.processSeconds.observe(0.001);
  rank?.prefillSeconds.observe(2);
  rank?.queueSeconds.observe(0.001);
  all.front.firstTokenSeconds.observe(12);
  all.front.countEnd({
    ...{ promptTokens: 92, cachedTokens: 0, generatedTokens: 9, totalSeconds: 17 },
  });
  return all;
}

function withoutValues(body: string): string[] {
  return body
    .trimEnd()
    .split('\n')
    .map((line) => (line.startsWith('#') ? line : line.replace(/ \S+$/, '')));
}

/** Lines of a family, and its heads. */
function familyOf(line: string): string {
  const name = /^# \w+ (\S+)/.exec(line)?.[1] ?? /^[^{ ]+/.exec(line)?.[0] ?? '';
  return name.replace(/_(sum|bucket|count)$/, (end) => (name.endsWith('req_count') ? end : ''));
}

/** Of a version before 0.5.18, as reference and changelogs of SGLang have it; processor time needs a processor. */
const GONE = [
  'sglang:process_cpu_seconds_total',
  'sglang:cache_config_info',
  'sglang:num_prefill_prealloc_queue_reqs',
  'sglang:engine_startup_time',
  'sglang:engine_load_weights_time',
];
const ADDED = [
  'sglang:num_prefill_bootstrap_queue_reqs',
  'sglang:page_size',
  'sglang:num_pages',
  'sglang:context_len',
  'sglang:num_retracted_requests_total',
];

describe('the exposition of SGLang', () => {
  it('has the families, words, labels, buckets and order of a real body, but for what later versions changed', () => {
    const expected = withoutValues(RECORDED)
      .filter((line) => !GONE.includes(familyOf(line)))
      .map((line) => line.replace('pid="21",', ''));
    const lines = withoutValues(renderSglangExposition(used()));
    expect(lines.filter((line) => !ADDED.includes(familyOf(line)))).toEqual(expected);
    const families = new Set(lines.map(familyOf));
    expect(ADDED.filter((name) => !families.has(name))).toEqual([]);
  });

  it('tells several ranks apart by dp_rank, and one not at all', () => {
    expect(renderSglangExposition(input(2))).toContain(
      `sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="${MODEL}"`,
    );
    expect(renderSglangExposition(input())).not.toContain('dp_rank');
  });

  it('leaves out counters that nothing was counted in', () => {
    const body = renderSglangExposition(input());
    expect(body).not.toContain('realtime_tokens_total');
    expect(body).not.toContain('prompt_tokens_total');
    expect(body).toContain('sglang:num_queue_reqs');
  });
});

describe('the figures of an SGLang scheduler', () => {
  it('refreshes gauges at a prefill and at every 40th decode step only', () => {
    const rank = new SglangRankStats();
    rank.countStep(step({ prefillTokens: 100, cachedTokens: 300 }), () => NOW);
    expect(rank.gauges).toMatchObject({ running: 3, hitRatio: 0.75 });
    const later = { ...NOW, running: 1 };
    for (let at = 1; at < 40; at += 1) rank.countStep(step({ decodes: 2 }), () => later);
    expect(rank.gauges.running).toBe(3);
    expect(rank.decodedTokens).toBe(78);
    rank.countStep(step({ decodes: 2 }), () => later);
    expect(rank.gauges).toMatchObject({ running: 1, hitRatio: 0 });
  });

  it('counts as busy only a prefill that follows a prefill', () => {
    const rank = new SglangRankStats();
    rank.countStep(step({ prefillTokens: 100 }), () => NOW);
    expect([rank.busyTokens, rank.busyUs]).toEqual([0, 0]);
    rank.countStep(step({ prefillTokens: 50 }), () => NOW);
    expect([rank.busyTokens, rank.busyUs]).toEqual([50, 100_000]);
    rank.countStep(step({ decodes: 1 }), () => NOW);
    rank.countStep(step({ prefillTokens: 70 }), () => NOW);
    expect([rank.busyTokens, rank.computedTokens]).toEqual([50, 220]);
  });

  it('counts what was computed again after a retraction', () => {
    const rank = new SglangRankStats();
    rank.countStep(step({ prefillTokens: 100, preempted: 2 }), () => NOW);
    expect(rank.retractedRequests).toBe(2);
  });
});
