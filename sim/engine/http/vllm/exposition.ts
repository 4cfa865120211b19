// The engine's `/metrics` body, of one process or of several (test/fixtures/vllm-0.32.0/metrics-*.prom).
//
// With several engines behind one front end vLLM runs several API servers, and Python's client merges what they wrote to
// disk: no `process_*`, no `_created`, histograms first and their sum first, every gauge absent until its
// first value.

import type { EngineProfile } from '../../profiles.ts';
import type { EngineStats, Histogram } from '../../stats.ts';
import { cacheConfigLabels } from './cache-config.ts';
import {
  COUNTERS,
  EFFORT,
  GAUGES,
  HISTOGRAMS,
  type CounterFamily,
  type GaugeFamily,
} from './families.ts';
import type { Counted, HttpMetrics } from './http-metrics.ts';
import { processLines } from './process-metrics.ts';
import { familyLines, formatFloat, sampleLine, type Labels } from './text-format.ts';

export interface ExpositionInput {
  readonly modelName: string;
  readonly profile: EngineProfile;
  readonly maxModelLen: number;
  /** Of each data-parallel rank. */
  readonly engines: readonly EngineStats[];
  readonly http: HttpMetrics;
  /** Unix seconds. */
  readonly startTimeSeconds: number;
  /** Unix seconds at which the counters came into being. */
  readonly createdSeconds: number;
  /** Each set of adapters that was seen, with the Unix seconds of the last time; null without adapters. */
  readonly loras: readonly LoraRow[] | null;
}

export interface LoraRow {
  readonly names: string;
  readonly atSeconds: number;
}

export function renderExposition(input: ExpositionInput): string {
  const lines = input.engines.length > 1 ? severalProcesses(input) : oneProcess(input);
  return `${lines.join('\n')}\n`;
}

const HTTP_REQUESTS = 'Total number of requests by method, status and handler.';
const SIZES =
  'by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. ';
const REQUEST_SIZES = `Content length of incoming requests ${SIZES}`;
const RESPONSE_SIZES = `Content length of outgoing responses ${SIZES}`;
const FINE =
  'Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ';
const COARSE =
  'Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ';

function oneProcess(input: ExpositionInput): string[] {
  const { http } = input;
  const created = (name: string, rows: readonly Counted[], help: string): string[] =>
    rows.length === 0
      ? []
      : [
          ...familyLines(name, 'gauge', help),
          ...rows.map(({ labels, createdSeconds }) => sampleLine(name, labels, createdSeconds)),
        ];
  const requests = [...http.requests.values()];
  const summary = (name: string, help: string, rows: readonly Counted[]): string[] => [
    ...summaryLines(name, help, rows),
    ...created(`${name}_created`, rows, help),
  ];
  return [
    ...processLines(input.startTimeSeconds),
    ...EFFORT.flatMap((family) => counterLines(input, family, true)),
    ...GAUGES.flatMap((family) => gaugeLines(input, family)),
    ...COUNTERS.flatMap((family) => counterLines(input, family, true)),
    ...HISTOGRAMS.flatMap(({ name, help, of }) =>
      input.engines.flatMap((stats, rank) => {
        const at = { name: `vllm:${name}`, help, labels: engineLabels(input, rank) };
        return [
          ...familyLines(at.name, 'histogram', help),
          ...histogramRows(at.name, at.labels, of(stats)),
          ...familyLines(`${at.name}_created`, 'gauge', help),
          sampleLine(`${at.name}_created`, at.labels, input.createdSeconds),
        ];
      }),
    ),
    ...loraLines(input),
    ...cacheConfigLines(input),
    ...familyLines('http_requests_total', 'counter', HTTP_REQUESTS),
    ...requests.map(({ labels, count }) => sampleLine('http_requests_total', labels, count)),
    ...created('http_requests_created', requests, HTTP_REQUESTS),
    ...summary('http_request_size_bytes', REQUEST_SIZES, [...http.requestSizes.values()]),
    ...summary('http_response_size_bytes', RESPONSE_SIZES, [...http.responseSizes.values()]),
    ...familyLines('http_request_duration_highr_seconds', 'histogram', FINE),
    ...histogramRows('http_request_duration_highr_seconds', {}, http.fineDurations),
    ...familyLines('http_request_duration_highr_seconds_created', 'gauge', FINE),
    sampleLine('http_request_duration_highr_seconds_created', {}, input.createdSeconds),
    ...familyLines('http_request_duration_seconds', 'histogram', COARSE),
    ...[...http.durations.values()].flatMap(({ labels, histogram }) =>
      histogramRows('http_request_duration_seconds', labels, histogram),
    ),
    ...(http.durations.size === 0
      ? []
      : [
          ...familyLines('http_request_duration_seconds_created', 'gauge', COARSE),
          ...[...http.durations.values()].map(({ labels, createdSeconds }) =>
            sampleLine('http_request_duration_seconds_created', labels, createdSeconds),
          ),
        ]),
  ];
}

function severalProcesses(input: ExpositionInput): string[] {
  const { http, engines } = input;
  const requests = [...http.requests.values()];
  const touched = http.requests.size > 0;
  const began = engines.some((stats) => stats.prefixCacheQueries > 0 || stats.waiting > 0);
  const merged = (name: string, labels: Labels, histogram: Histogram): string[] => {
    const rows = histogramRows(name, labels, histogram);
    return [...rows.slice(-1), ...rows.slice(0, -1)];
  };
  const when = (present: boolean, lines: () => readonly string[]): readonly string[] =>
    present ? lines() : [];
  return [
    ...when(touched, () => [
      ...summaryLines('http_request_size_bytes', REQUEST_SIZES, [...http.requestSizes.values()]),
      ...summaryLines('http_response_size_bytes', RESPONSE_SIZES, [...http.responseSizes.values()]),
    ]),
    ...HISTOGRAMS.flatMap(({ name, help, of }) => [
      ...familyLines(`vllm:${name}`, 'histogram', help),
      ...engines.flatMap((stats, rank) =>
        merged(`vllm:${name}`, engineLabels(input, rank), of(stats)),
      ),
    ]),
    ...familyLines('http_request_duration_highr_seconds', 'histogram', FINE),
    ...merged('http_request_duration_highr_seconds', {}, http.fineDurations),
    ...when(touched, () => [
      ...familyLines('http_request_duration_seconds', 'histogram', COARSE),
      ...[...http.durations.values()].flatMap(({ labels, histogram }) =>
        merged('http_request_duration_seconds', labels, histogram),
      ),
    ]),
    ...[...EFFORT, ...COUNTERS].flatMap((family) => counterLines(input, family, false)),
    ...when(touched, () => [
      ...familyLines('http_requests_total', 'counter', HTTP_REQUESTS),
      ...requests.map(({ labels, count }) => sampleLine('http_requests_total', labels, count)),
    ]),
    ...GAUGES.flatMap((family) =>
      began || family.fromStart
        ? gaugeLines(input, family)
        : familyLines(`vllm:${family.name}`, 'gauge', family.help),
    ),
    ...loraLines(input),
    ...cacheConfigLines(input),
  ];
}

function gaugeLines(input: ExpositionInput, { name, help, rows }: GaugeFamily): string[] {
  return [
    ...familyLines(`vllm:${name}`, 'gauge', help),
    ...byRow(input, rows).map(([labels, value]) => sampleLine(`vllm:${name}`, labels, value)),
  ];
}

function counterLines(
  input: ExpositionInput,
  { name, help, rows, perEngine }: CounterFamily,
  withCreated: boolean,
): string[] {
  const all = perEngine ? byRow(input, rows) : summed(input, rows);
  const total = `vllm:${name}_total`;
  const created = `vllm:${name}_created`;
  return [
    ...familyLines(total, 'counter', help),
    ...all.map(([labels, value]) => sampleLine(total, labels, value)),
    ...(withCreated
      ? [
          ...familyLines(created, 'gauge', help),
          ...all.map(([labels]) => sampleLine(created, labels, input.createdSeconds)),
        ]
      : []),
  ];
}

type Rows = (stats: EngineStats) => readonly (readonly [Labels, number])[];

/** Row by row, of each the engines. */
function byRow(input: ExpositionInput, rows: Rows): (readonly [Labels, number])[] {
  const perEngine = input.engines.map((stats) => rows(stats));
  return (perEngine[0] ?? []).flatMap(([own], at) =>
    perEngine.map((each, rank): readonly [Labels, number] => [
      { ...own, ...engineLabels(input, rank) },
      each[at]?.[1] ?? 0,
    ]),
  );
}

function summed(input: ExpositionInput, rows: Rows): (readonly [Labels, number])[] {
  const perEngine = input.engines.map((stats) => rows(stats));
  return (perEngine[0] ?? []).map(([own], at): readonly [Labels, number] => [
    { ...own, model_name: input.modelName },
    perEngine.reduce((sum, each) => sum + (each[at]?.[1] ?? 0), 0),
  ]);
}

/** Buckets, count, sum. */
function histogramRows(name: string, labels: Labels, histogram: Histogram): string[] {
  const cumulative = histogram.cumulative();
  return [
    ...histogram.bounds.map((bound, at) =>
      sampleLine(`${name}_bucket`, { le: formatFloat(bound), ...labels }, cumulative[at] ?? 0),
    ),
    sampleLine(`${name}_bucket`, { le: '+Inf', ...labels }, histogram.count),
    sampleLine(`${name}_count`, labels, histogram.count),
    sampleLine(`${name}_sum`, labels, histogram.sum),
  ];
}

function summaryLines(name: string, help: string, rows: readonly Counted[]): string[] {
  return [
    ...familyLines(name, 'summary', help),
    ...rows.flatMap(({ labels, count, sum }) => [
      sampleLine(`${name}_count`, labels, count),
      sampleLine(`${name}_sum`, labels, sum),
    ]),
  ];
}

function engineLabels({ modelName }: ExpositionInput, rank: number): Labels {
  return { engine: String(rank), model_name: modelName };
}

/** One line for each set of names that was ever seen; its value is the last time, so the newest is the state. */
function loraLines({ loras, profile }: ExpositionInput): string[] {
  if (loras === null) return [];
  const name = 'vllm:lora_requests_info';
  return [
    ...familyLines(name, 'gauge', 'Running stats on lora requests.'),
    ...loras.map(({ names, atSeconds }) =>
      sampleLine(
        name,
        {
          max_lora: String(profile.maxLoras),
          running_lora_adapters: names,
          waiting_lora_adapters: names,
        },
        atSeconds,
      ),
    ),
  ];
}

function cacheConfigLines(input: ExpositionInput): string[] {
  const name = 'vllm:cache_config_info';
  return [
    ...familyLines(name, 'gauge', 'Information of the LLMEngine CacheConfig'),
    ...input.engines.map((_, rank) => sampleLine(name, cacheConfigLabels(input, rank), 1)),
  ];
}
