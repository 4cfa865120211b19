// The exposition's form: families, types, labels and bounds are those of the recordings, in every state.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { begun, call } from './client.ts';
import { read, untilIdle, watch } from './counters.ts';
import { parseExposition, type Family } from './exposition.ts';
import { complete } from './generate.ts';
import { freshTokens } from './prompts.ts';
import { recordedText } from './recorded.ts';
import type { ConformanceSubject } from './subject.ts';

/** Families that only appear once something has happened, beside those of a fresh engine. */
const LATER = /^vllm:(sleep_mode_operation|lora_requests_info)/;
/** Bounds of these run 1, 2, 5, 10, … up to the context length. */
const UP_TO_CONTEXT =
  /^vllm:request_(prompt_tokens|generation_tokens|max_num_generation_tokens|params_max_tokens|prefill_kv_computed_tokens)$/;

/** Type, label names and the values of labels that a family fixes, as lines that can be compared. */
function structureOf(family: Family, maxModelLen: number): string[] {
  const lines = family.series.map(({ name, labels }) => {
    const shown = Object.entries(labels).map(([label, value]) =>
      isFixed(family.name, label) ? `${label}=${value}` : label,
    );
    return `${name}{${shown.join(',')}}`;
  });
  const fits = (line: string): boolean => {
    const bound = Number(/,le=(\d[^,}]*)/.exec(line)?.[1] ?? 0);
    return !UP_TO_CONTEXT.test(family.name) || bound <= maxModelLen;
  };
  return [`${family.type}: ${family.help}`, ...lines.filter(fits)];
}

function isFixed(family: string, label: string): boolean {
  return family !== 'vllm:cache_config_info' && label !== 'model_name';
}

function vllmFamilies(text: string): ReadonlyMap<string, Family> {
  const families = [...parseExposition(text)].filter(([name]) => name.startsWith('vllm:'));
  return new Map(families);
}

async function assertFamilies(subject: ConformanceSubject): Promise<void> {
  const recorded = vllmFamilies(recordedText('metrics-idle-fresh.prom'));
  const live = vllmFamilies((await call(subject.url, '/metrics')).text);
  const names = [...live.keys()].filter((name) => !LATER.test(name));
  assert.deepEqual(names, [...recorded.keys()], 'families in order');
  const { maxModelLen } = subject.sizes;
  for (const [name, family] of recorded) {
    const own = live.get(name);
    assert.ok(own !== undefined);
    assert.deepEqual(structureOf(own, maxModelLen), structureOf(family, maxModelLen), name);
  }
}

const checks: readonly Check[] = [
  {
    name: 'vllm: families have names, words, types, labels and bounds as recorded, in order',
    run: assertFamilies,
  },
  {
    name: 'families are the same while requests run and after them',
    async run(subject) {
      const work = begun(complete(subject, { prompt: freshTokens(600), tokens: 40 }));
      await assertFamilies(subject);
      await work;
      await assertFamilies(subject);
    },
  },
  {
    name: 'the process tells when it started, and each counter when it was made',
    async run(subject) {
      const { families } = await read(subject);
      const started = families.get('process_start_time_seconds')?.series[0]?.value ?? 0;
      const made = families.get('vllm:prompt_tokens_created')?.series[0]?.value ?? 0;
      const nowSeconds = Date.now() / 1_000;
      assert.ok(started > nowSeconds - 86_400 && started <= nowSeconds, `started ${started}`);
      assert.ok(made >= started && made <= nowSeconds, `made ${made}`);
    },
  },
  {
    name: 'cache_config_info tells block size, blocks and the tokens that the cache holds',
    async run(subject) {
      const { families } = await read(subject);
      const labels = families.get('vllm:cache_config_info')?.series[0]?.labels ?? {};
      const { blockTokens, kvBlocks } = subject.sizes;
      assert.deepEqual(
        [labels['block_size'], labels['num_gpu_blocks'], labels['kv_cache_size_tokens']],
        [String(blockTokens), String(kvBlocks), String(blockTokens * kvBlocks)],
      );
    },
  },
  {
    name: 'no counter ever falls, and buckets add up to their count',
    async run(subject) {
      const asks = [300, 700, 1_500].map((length) =>
        complete(subject, { prompt: freshTokens(length), tokens: 30 }),
      );
      const { readings } = await watch(subject, Promise.all(asks));
      const last = new Map<string, number>();
      for (const reading of readings) {
        for (const family of reading.families.values()) {
          if (family.type !== 'counter' && family.type !== 'histogram') continue;
          for (const { name, labels, value } of family.series) {
            const key = `${name}${JSON.stringify(labels)}`;
            assert.ok(value >= (last.get(key) ?? 0), `${key} fell to ${value}`);
            last.set(key, value);
          }
          assertBuckets(family);
        }
      }
    },
  },
  {
    name: 'an engine that does nothing shows 0 running, 0 waiting, and no KV in use although its cache is full',
    async run(subject) {
      await complete(subject, { prompt: freshTokens(500), tokens: 1 });
      const idle = await untilIdle(subject);
      for (const name of ['num_requests_running', 'num_requests_waiting', 'kv_cache_usage_perc']) {
        assert.equal(idle.count(name), 0, name);
      }
    },
  },
];

function assertBuckets(family: Family): void {
  if (family.type !== 'histogram') return;
  const counts = new Map<string, number>();
  const most = new Map<string, number>();
  for (const { name, labels, value } of family.series) {
    const { le, ...rest } = labels;
    const key = JSON.stringify(rest);
    if (name.endsWith('_count')) counts.set(key, value);
    if (le !== undefined) {
      assert.ok(value >= (most.get(key) ?? 0), `${name} falls at ${le}`);
      most.set(key, value);
    }
  }
  assert.deepEqual(most, counts, family.name);
}

export const METRICS: Theme = { name: 'metrics', checks };
