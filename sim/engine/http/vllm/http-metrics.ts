// What the HTTP middleware of a vLLM counts: requests, sizes and latencies by handler. Its own questions are not counted.

import { Histogram } from '../../stats.ts';
import type { Labels } from './text-format.ts';

const UNCOUNTED = new Set(['/metrics', '/health', '/load', '/ping', '/version', '/server_info']);
const FINE_BOUNDS = [
  0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30,
  60,
];
const COARSE_BOUNDS = [0.1, 0.5, 1];
/** Label sets of one family: paths that are no handler count as one. */
const SERIES_MAX = 256;

export interface HttpExchange {
  /** The route's path; null where no route took the request. */
  readonly handler: string | null;
  readonly method: string;
  readonly status: number;
  readonly requestBytes: number;
  /** 0 for a stream: it says no length. */
  readonly responseBytes: number;
  readonly seconds: number;
}

export interface Counted {
  readonly labels: Labels;
  /** Unix seconds of the first. */
  readonly createdSeconds: number;
  count: number;
  sum: number;
}

export interface Timed {
  readonly labels: Labels;
  readonly createdSeconds: number;
  readonly histogram: Histogram;
}

export class HttpMetrics {
  readonly requests = new Map<string, Counted>();
  readonly requestSizes = new Map<string, Counted>();
  readonly responseSizes = new Map<string, Counted>();
  readonly durations = new Map<string, Timed>();
  readonly fineDurations = new Histogram(FINE_BOUNDS);

  observe(exchange: HttpExchange, nowSeconds: number): void {
    const { method, seconds } = exchange;
    const handler = exchange.handler ?? 'none';
    if (UNCOUNTED.has(handler)) return;
    const status = `${Math.floor(exchange.status / 100)}xx`;
    count(this.requests, { handler, method, status }, { value: 0, nowSeconds });
    count(this.requestSizes, { handler }, { value: exchange.requestBytes, nowSeconds });
    count(this.responseSizes, { handler }, { value: exchange.responseBytes, nowSeconds });
    this.fineDurations.observe(seconds);
    const key = `${handler} ${method}`;
    const timed = this.durations.get(key) ?? {
      labels: { handler, method },
      createdSeconds: nowSeconds,
      histogram: new Histogram(COARSE_BOUNDS),
    };
    if (this.durations.size < SERIES_MAX) this.durations.set(key, timed);
    timed.histogram.observe(seconds);
  }
}

function count(
  series: Map<string, Counted>,
  labels: Labels,
  { value, nowSeconds }: { readonly value: number; readonly nowSeconds: number },
): void {
  const key = Object.values(labels).join(' ');
  const counted = series.get(key) ?? { labels, createdSeconds: nowSeconds, count: 0, sum: 0 };
  if (series.size < SERIES_MAX) series.set(key, counted);
  counted.count += 1;
  counted.sum += value;
}
