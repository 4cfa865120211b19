import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

import { engineProfile } from '../../profiles.ts';
import { EngineStats } from '../../stats.ts';
import { renderExposition, type ExpositionInput } from './exposition.ts';
import { HttpMetrics } from './http-metrics.ts';
import { formatFloat } from './text-format.ts';

const profile = { ...engineProfile('cpu-tiny-llama')!, kvBlocks: 16_384 };

function recorded(name: string): string {
  const url = new URL(`../../../../test/fixtures/vllm-0.32.0/${name}`, import.meta.url);
  return readFileSync(url, 'utf8');
}

/** The exchanges that a recorded exposition counts, as far as their labels tell. */
function httpOf(text: string): HttpMetrics {
  const http = new HttpMetrics();
  const series = /^http_requests_total\{handler="(.+)",method="(.+)",status="(.)xx"\}/gm;
  for (const [, handler = '', method = '', status] of text.matchAll(series)) {
    const exchange = { method, status: Number(status) * 100, seconds: 1 };
    const bytes = { requestBytes: 1, responseBytes: 1 };
    http.observe({ ...exchange, ...bytes, handler: handler === 'none' ? null : handler }, 1);
  }
  return http;
}

function rendered(input: Partial<ExpositionInput> = {}): string {
  return renderExposition({
    modelName: 'tiny-llama',
    profile,
    maxModelLen: 16_384,
    engines: [new EngineStats(16_384)],
    http: new HttpMetrics(),
    startTimeSeconds: 1_796_004_676.59,
    createdSeconds: 1_796_004_744.134,
    loras: null,
    ...input,
  });
}

/** Lines with the values left out: names, words, types, labels, bounds, order. */
function structure(text: string): string[] {
  return text
    .trimEnd()
    .split('\n')
    .map((line) => (line.startsWith('#') ? line : line.slice(0, line.lastIndexOf(' '))))
    .map((line) => line.replaceAll(MACHINE, '$1=""'));
}

/** Labels that tell of the recorded machine and its flags. */
const MACHINE =
  /(kv_cache_memory_bytes|kv_cache_max_concurrency|kv_cache_size_tokens|num_gpu_blocks|num_gpu_blocks_override|max_lora)="[^"]*"/g;

describe('the exposition of one process', () => {
  it.each([
    'metrics-idle-fresh.prom',
    'metrics-after-requests.prom',
    'metrics-loaded.prom',
    'metrics-after-load.prom',
    'metrics-after-preemptions.prom',
    'metrics-after-rejections.prom',
  ])('has every line of a real vLLM 0.32.0 but for the values: %s', (name) => {
    const text = recorded(name);
    const bounds = recordedMaxModelLen(text);
    const stats = [new EngineStats(bounds)];
    expect(structure(rendered({ http: httpOf(text), engines: stats }))).toEqual(structure(text));
  });

  it('has a line for each set of adapters that was seen', () => {
    const text = recorded('metrics-lora-running.prom');
    const loras = [
      { names: '', atSeconds: 1 },
      { names: 'support-bot', atSeconds: 2 },
    ];
    const engines = [new EngineStats(recordedMaxModelLen(text))];
    expect(structure(rendered({ http: httpOf(text), engines, loras }))).toEqual(structure(text));
  });
});

describe('the exposition of several processes', () => {
  it.each(['metrics-dp2-fresh.prom', 'metrics-dp2-after-requests.prom'])(
    'has every line of a real vLLM 0.32.0 but for the values: %s',
    (name) => {
      const text = recorded(name);
      const engines = [0, 1].map(() => new EngineStats(recordedMaxModelLen(text)));
      if (name.includes('after')) engines[0]!.prefixCacheQueries = 1;
      expect(structure(rendered({ http: httpOf(text), engines }))).toEqual(structure(text));
    },
  );
});

describe('numbers and labels', () => {
  it('writes numbers as the Python client does', () => {
    const cases: readonly (readonly [number, string])[] = [
      [0, '0.0'],
      [16046, '16046.0'],
      [524288, '524288.0'],
      [1073741824, '1.073741824e+09'],
      [1796004676.59, '1.79600467659e+09'],
      [1000000, '1e+06'],
      [0.15053054700001667, '0.15053054700001667'],
      [12345678901, '1.2345678901e+010'],
      [-3, '-3.0'],
      [Number.POSITIVE_INFINITY, '+Inf'],
      [Number.NaN, 'NaN'],
    ];
    expect(cases.map(([value]) => formatFloat(value))).toEqual(cases.map(([, text]) => text));
  });

  it('escapes what would end a label', () => {
    expect(rendered({ modelName: 'a"b\\c\nd' })).toContain(String.raw`model_name="a\"b\\c\nd"`);
  });
});

/** The recorded engines had contexts of their own: their highest bound tells. */
function recordedMaxModelLen(text: string): number {
  const bounds = [
    ...text.matchAll(/^vllm:request_prompt_tokens_bucket\{engine="0",le="([\d.e+]+)"/gm),
  ].map(([, bound]) => Number(bound));
  return Math.max(...bounds);
}
