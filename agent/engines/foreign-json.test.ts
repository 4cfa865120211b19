// Whatever an engine of another version, or something that is no engine, answers: readers never throw, and give figures
// or nothing.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseObject } from './foreign-json.ts';
import {
  readLlamacppMetrics,
  readLlamacppProperties,
  readLlamacppSlots,
} from './llamacpp-metrics.ts';
import { readModelList } from './model-list.ts';
import { readSglangLoads } from './sglang-loads.ts';
import { readSglangMetrics } from './sglang-metrics.ts';
import { readTgiMetrics } from './tgi-metrics.ts';
import { readVllmMetrics } from './vllm-metrics.ts';

/** Null, or what a report can carry. */
function expectFigures(figures: object | null | undefined): void {
  for (const value of Object.values(figures ?? {})) {
    if (typeof value === 'number') expect(value).toBeGreaterThanOrEqual(0);
    if (typeof value === 'number') expect(value).toBeLessThan(Infinity);
  }
}

/** Values under the names that readers look for, among others. */
function objects(names: readonly string[]): fc.Arbitrary<Record<string, unknown>> {
  const value = fc.oneof(fc.jsonValue(), fc.double(), fc.integer(), fc.constant('NaN'));
  return fc.dictionary(fc.constantFrom(...names), value);
}

describe('JSON of engines', () => {
  it('as loads', () => {
    const names = [
      'dp_rank',
      'timestamp',
      'num_running_reqs',
      'num_waiting_reqs',
      'num_waiting_uncached_tokens',
      'max_total_num_tokens',
      'max_running_requests',
      'token_usage',
      'total_prefill_uncached_tokens',
      'total_prefill_busy_us',
    ];
    const answers = fc.record({ timestamp: fc.jsonValue(), loads: fc.array(objects(names)) });
    fc.assert(
      fc.property(fc.oneof(answers, fc.jsonValue()), (answer) => {
        for (const load of readSglangLoads(JSON.stringify(answer), 1_000) ?? []) {
          expectFigures(load);
        }
      }),
    );
  });

  it('as slots and properties', () => {
    const slot = objects([
      'id',
      'n_ctx',
      'is_processing',
      'next_token',
      'n_prompt_tokens',
      'n_prompt_tokens_processed',
      'n_prompt_tokens_cache',
    ]);
    fc.assert(
      fc.property(fc.oneof(fc.array(slot), fc.jsonValue()), (answer) => {
        expectFigures(readLlamacppSlots(JSON.stringify(answer)));
      }),
    );
    const props = objects(['total_slots', 'is_sleeping', 'default_generation_settings']);
    fc.assert(
      fc.property(props, (answer) => {
        const { slots, slotTokens } = readLlamacppProperties(answer);
        expectFigures({ slots, slotTokens });
      }),
    );
  });

  it('as a model list', () => {
    const row = objects(['id', 'parent', 'owned_by', 'max_model_len']);
    const answers = fc.record({ data: fc.oneof(fc.array(row), fc.jsonValue()) });
    fc.assert(
      fc.property(fc.oneof(answers, fc.jsonValue()), (answer) => {
        for (const model of readModelList(JSON.stringify(answer))?.models ?? []) {
          expect(model.id.length).toBeLessThanOrEqual(512);
          expectFigures({ length: model.maxModelLen });
        }
      }),
    );
  });

  it('that is none', () => {
    fc.assert(fc.property(fc.string(), (text) => void parseObject(text)));
  });
});

describe('expositions', () => {
  const NAMES = [
    'vllm:num_requests_running',
    'vllm:cache_config_info',
    'vllm:prompt_tokens_total',
    'vllm:gpu_prefix_cache_hits_total',
    'sglang:num_running_reqs',
    'sglang:realtime_tokens_total',
    'sglang:cache_config_info',
    'tgi_queue_size',
    'tgi_batch_inference_count',
    'llamacpp:prompt_tokens_total',
    'llamacpp:kv_cache_usage_ratio',
  ];
  const LABELS = ['engine', 'dp_rank', 'tp_rank', 'method', 'block_size', 'num_gpu_blocks', 'mode'];
  const label = fc.tuple(fc.constantFrom(...LABELS), fc.oneof(fc.string(), fc.nat().map(String)));
  const quoted = (text: string): string =>
    `"${text.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`;
  const line = fc
    .tuple(
      fc.constantFrom(...NAMES),
      fc.array(label, { maxLength: 3 }),
      fc.oneof(
        fc.nat().map(String),
        fc.constantFrom('NaN', '+Inf', '-Inf', '-1', '1e+09', 'x', ''),
      ),
    )
    .map(([name, labels, value]) => {
      const inside = labels.map(([key, text]) => `${key}=${quoted(text)}`).join(',');
      return `${name}{${inside}} ${value}`;
    });
  const text = fc.array(fc.oneof(line, fc.string())).map((lines) => lines.join('\n'));

  it('of any lines read to figures or nothing, never to two of one rank', () => {
    fc.assert(
      fc.property(text, (body) => {
        for (const ranks of [readVllmMetrics(body)?.ranks, readSglangMetrics(body)]) {
          for (const rank of ranks ?? []) expectFigures(rank);
          const numbers = (ranks ?? []).map(({ rank }) => rank);
          expect(new Set(numbers).size).toBe(numbers.length);
        }
        expectFigures(readTgiMetrics(body));
        expectFigures(readLlamacppMetrics(body));
      }),
    );
  });
});
