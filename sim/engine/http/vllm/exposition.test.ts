import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

import { formatFloat, renderExposition } from './exposition.ts';
import { engineProfile } from '../../profiles.ts';
import { EngineStats } from '../../stats.ts';

const profile = { ...engineProfile('cpu-tiny-llama')!, kvBlocks: 16_384 };

function recorded(name: string): string {
  const url = new URL(`../../../../test/fixtures/vllm-0.32.0/${name}`, import.meta.url);
  return readFileSync(url, 'utf8');
}

function rendered(modelName = 'tiny-llama'): string {
  return renderExposition({
    modelName,
    profile,
    maxModelLen: 16_384,
    stats: new EngineStats(16_384),
    startTimeSeconds: 1_796_004_676.59,
    createdSeconds: 1_796_004_744.134,
  });
}

/** Lines of the families that both have, values left out. */
function structure(text: string): string[] {
  return text
    .split('\n')
    .filter((line) => /^(# (HELP|TYPE) )?(vllm:|process_start_time)/.test(line))
    .map((line) => (line.startsWith('#') ? line : line.slice(0, line.lastIndexOf(' '))))
    .map((line) => line.replaceAll(/(kv_cache_memory_bytes)="[^"]*"/g, '$1=""'));
}

describe('exposition', () => {
  it('has the families, words, types, labels, bounds and order of a real vLLM 0.32.0', () => {
    expect(structure(rendered())).toEqual(structure(recorded('metrics-idle-fresh.prom')));
  });

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
    expect(rendered('a"b\\c\nd')).toContain(String.raw`model_name="a\"b\\c\nd"`);
  });
});
