// The `/metrics` body of a TGI 3: its families, words, labels, buckets and number format, in the order of the real body
// test/fixtures/metrics/tgi-v3-datadog.prom.
//
// A family is there from the first time that something was counted in it, a labelled row likewise: a fresh server
// answers with an empty body. Three families have no HELP. Families are parted by empty lines; a histogram's own labels stand
// before `le`, its sum before its count.

import type { Histogram } from '../../stats.ts';
import type { TgiStats } from './stats.ts';

/** Rendered labels, without braces; empty for none. */
type Rows<T> = readonly (readonly [labels: string, value: T])[];

export function renderTgiExposition(stats: TgiStats): string {
  const lines: string[] = [];
  counter(lines, ['tgi_request_success', 'Number of successful requests'], one(stats.succeeded));
  counter(lines, ['tgi_batch_concat', null], labelled('reason', stats.concats));
  counter(lines, ['tgi_request_count', 'Total number of requests'], one(stats.received));
  counter(lines, ['tgi_request_failure', null], labelled('err', stats.failed));
  const calls = 'inference calls per method (prefill or decode)';
  counter(
    lines,
    ['tgi_batch_inference_success', `Number of successful ${calls}`],
    labelled('method', stats.batches),
  );
  counter(
    lines,
    ['tgi_batch_inference_count', `I${calls.slice(1)}`],
    labelled('method', stats.batches),
  );
  gauge(lines, ['tgi_queue_size', 'Current queue size'], stats.queueSize);
  gauge(
    lines,
    ['tgi_batch_current_max_tokens', 'Maximum tokens for the current batch'],
    stats.batchMaxTokens,
  );
  gauge(lines, ['tgi_batch_current_size', 'Current batch size'], stats.batchSize);
  writeHistograms(lines, stats);
  return lines.length === 0 ? '' : `${lines.join('\n')}\n`;
}

function writeHistograms(lines: string[], stats: TgiStats): void {
  const write = (name: string, help: string | null, value: Histogram): void =>
    histogram(lines, [name, help], value.count === 0 ? [] : [['', value]]);
  const byMethod = (name: string, help: string | null, pair: TgiStats['forward']): void =>
    histogram(
      lines,
      [name, help],
      [...pair].map(([method, value]) => [`method="${method}"`, value]),
    );
  write('tgi_request_input_length', 'Input token length per request', stats.inputLength);
  write('tgi_request_max_new_tokens', 'Maximum new tokens per request', stats.maxNewTokens);
  write('tgi_request_inference_duration', 'Request inference duration', stats.inferenceSeconds);
  skippedTokens(lines, stats.generatedTokens.sum);
  byMethod(
    'tgi_batch_forward_duration',
    'Batch forward duration per method (prefill or decode)',
    stats.forward,
  );
  write('tgi_request_duration', 'Request duration', stats.totalSeconds);
  write('tgi_request_validation_duration', 'Request validation duration', stats.validationSeconds);
  write('tgi_request_queue_duration', 'Request queue duration', stats.queueSeconds);
  byMethod(
    'tgi_batch_filter_duration',
    'Time spent filtering batches and sending generated tokens per method (prefill or decode)',
    stats.filter,
  );
  byMethod('tgi_batch_inference_duration', 'Batch inference duration', stats.inference);
  write(
    'tgi_request_mean_time_per_token_duration',
    'Mean time per token per request',
    stats.secondsPerToken,
  );
  byMethod('tgi_batch_concat_duration', null, stats.concat);
  write('tgi_request_generated_tokens', 'Generated tokens per request', stats.generatedTokens);
  byMethod(
    'tgi_batch_decode_duration',
    'Time spent decoding a batch per method (prefill or decode)',
    stats.decode,
  );
  write('tgi_batch_next_size', 'Batch size of the next batch', stats.nextBatchSize);
}

/** Without speculation every token is one that skipped none. */
function skippedTokens(lines: string[], tokens: number): void {
  if (tokens === 0) return;
  const name = 'tgi_request_skipped_tokens';
  family(lines, [name, 'Speculated tokens per request'], 'summary');
  for (const quantile of ['0', '0.5', '0.9', '0.95', '0.99', '0.999', '1']) {
    lines.push(`${name}{quantile="${quantile}"} 0`);
  }
  lines.push(`${name}_sum 0`, `${name}_count ${tokens}`, '');
}

function one(value: number): Rows<number> {
  return value === 0 ? [] : [['', value]];
}

function labelled(label: string, values: ReadonlyMap<string, number>): Rows<number> {
  return [...values].map(([name, value]) => [`${label}="${name}"`, value]);
}

function family(lines: string[], [name, help]: readonly [string, string | null], type: string) {
  if (help !== null) lines.push(`# HELP ${name} ${help}`);
  lines.push(`# TYPE ${name} ${type}`);
}

function counter(
  lines: string[],
  name: readonly [string, string | null],
  rows: Rows<number>,
): void {
  if (rows.length === 0) return;
  family(lines, name, 'counter');
  for (const [labels, value] of rows) {
    lines.push(`${name[0]}${labels === '' ? '' : `{${labels}}`} ${plain(value)}`);
  }
  lines.push('');
}

function gauge(lines: string[], name: readonly [string, string], value: number | null): void {
  if (value === null) return;
  family(lines, name, 'gauge');
  lines.push(`${name[0]} ${plain(value)}`, '');
}

function histogram(
  lines: string[],
  name: readonly [string, string | null],
  rows: Rows<Histogram>,
): void {
  if (rows.length === 0) return;
  family(lines, name, 'histogram');
  for (const [labels, value] of rows) {
    const own = labels === '' ? '' : `${labels},`;
    const rest = labels === '' ? '' : `{${labels}}`;
    const cumulative = value.cumulative();
    value.bounds.forEach((bound, at) => {
      lines.push(`${name[0]}_bucket{${own}le="${plain(bound)}"} ${cumulative[at] ?? 0}`);
    });
    lines.push(`${name[0]}_bucket{${own}le="+Inf"} ${value.count}`);
    lines.push(
      `${name[0]}_sum${rest} ${plain(value.sum)}`,
      `${name[0]}_count${rest} ${value.count}`,
    );
  }
  lines.push('');
}

/** As Rust shows a float: the shortest digits that tell it, never an exponent. */
function plain(value: number): string {
  const text = String(value);
  if (!text.includes('e')) return text;
  const [digits = '', exponent = '0'] = text.split('e');
  const places = Math.max(0, digits.replace(/^\d+\.?/, '').length - Number(exponent));
  return value.toFixed(Math.min(100, places));
}
