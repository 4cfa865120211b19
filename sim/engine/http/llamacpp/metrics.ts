// `/metrics` of a llama.cpp server: no labels, counters that end in `_total`, and two gauges that are means since the last
// scrape, whoever made it.

import type { SlotTable } from './slots.ts';

export function renderLlamacppMetrics(slots: SlotTable): string {
  const { counts } = slots;
  const { recent } = counts;
  const rate = (tokens: number, ms: number): number => (ms > 0 ? (tokens / ms) * 1_000 : 0);
  const rows: readonly (readonly [string, string, number])[] = [
    ['prompt_tokens_total', 'Number of prompt tokens processed.', counts.promptTokens],
    [
      'prompt_tokens_cached_total',
      'Number of prompt tokens reused from the cache.',
      counts.cachedTokens,
    ],
    ['prompt_seconds_total', 'Prompt process time', counts.promptMs / 1_000],
    ['tokens_predicted_total', 'Number of generation tokens processed.', counts.predictedTokens],
    ['tokens_predicted_seconds_total', 'Predict process time', counts.predictedMs / 1_000],
    ['n_decode_total', 'Total number of llama_decode() calls', counts.decodeCalls],
    ['n_tokens_max', 'Largest observed n_tokens.', counts.mostTokens],
    [
      'prompt_tokens_seconds',
      'Average prompt throughput in tokens/s.',
      rate(recent.promptTokens, recent.promptMs),
    ],
    [
      'predicted_tokens_seconds',
      'Average generation throughput in tokens/s.',
      rate(recent.predictedTokens, recent.predictedMs),
    ],
    ['requests_processing', 'Number of requests processing.', slots.processing],
    ['requests_deferred', 'Number of requests deferred.', slots.deferred],
    [
      'n_busy_slots_per_decode',
      'Average number of busy slots per llama_decode() call',
      counts.decodeCalls === 0 ? 0 : counts.busySlots / counts.decodeCalls,
    ],
  ];
  counts.recent = { promptTokens: 0, promptMs: 0, predictedTokens: 0, predictedMs: 0 };
  return rows.map(row).join('');
}

function row([name, help, value]: readonly [string, string, number]): string {
  const type = name.endsWith('_total') ? 'counter' : 'gauge';
  const full = `llamacpp:${name}`;
  const text = Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
  return `# HELP ${full} ${help}\n# TYPE ${full} ${type}\n${full} ${text}\n`;
}
