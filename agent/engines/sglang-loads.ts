// SGLang's `/v1/loads`: what each scheduler last wrote of itself, read from shared memory. It needs no flag.
//
// A scheduler writes at every prefill, every few decode steps and when it becomes idle. So while it says that it has
// work, an old snapshot is no news but a scheduler that hangs: its gauges are then unknown, not as they were. Waiting
// tokens are taken from fresh snapshots only: an idle one that is old may be of a scheduler that hangs, too.
// A capacity of 0 is the snapshot that exists before the first step: nothing is known yet.

import type { RankScrape } from '../events.ts';
import {
  amountOf,
  arrayOf,
  objectOf,
  parseObject,
  positiveOf,
  textOf,
  type JsonObject,
} from './foreign-json.ts';

/** What a scheduler tells that its metrics may not. */
export type RankLoad = Pick<
  RankScrape,
  | 'rank'
  | 'running'
  | 'waiting'
  | 'runningMax'
  | 'kvUsageRatio'
  | 'kvCapacityTokens'
  | 'waitingPrefillTokens'
  | 'prefillBusyTokens'
  | 'prefillBusySeconds'
>;

/** Age from which a snapshot is old, seconds: a long prefill step, and some decode steps, take less. */
const FRESH_S = 5;
const MAX_RANK = 1_023;
const MAX_LOADS = 1_024;

/**
 * Null where the body is no load list, or an empty one: the scheduler's memory could not be read. `nowSeconds` is ours,
 * since 1970; the engine's own clock goes before it where the answer has it, because no two machines' clocks agree.
 */
export function readSglangLoads(body: string, nowSeconds: number): readonly RankLoad[] | null {
  const answer = parseObject(body);
  const list = answer?.['loads'];
  const now = writtenAt(answer?.['timestamp']) ?? nowSeconds;
  const loads = arrayOf(list)
    .slice(0, MAX_LOADS)
    .flatMap((item) => loadOf(item, now));
  return loads.length === 0 ? null : loads.sort((a, b) => a.rank - b.rank);
}

function loadOf(item: unknown, nowSeconds: number): RankLoad[] {
  const load = objectOf(item);
  if (load === null) return [];
  const rank = amountOf(load['dp_rank']) ?? 0;
  const kvCapacityTokens = positiveOf(load['max_total_num_tokens']);
  if (!Number.isInteger(rank) || rank > MAX_RANK || kvCapacityTokens === null) return [];
  const busyUs = amountOf(load['total_prefill_busy_us']);
  return [
    {
      rank,
      ...gaugesOf(load, nowSeconds),
      runningMax: positiveOf(load['max_running_requests']),
      kvCapacityTokens,
      prefillBusyTokens: amountOf(load['total_prefill_uncached_tokens']),
      prefillBusySeconds: busyUs === null ? null : busyUs / 1e6,
    },
  ];
}

function gaugesOf(
  load: JsonObject,
  nowSeconds: number,
): Pick<RankLoad, 'running' | 'waiting' | 'kvUsageRatio' | 'waitingPrefillTokens'> {
  const running = amountOf(load['num_running_reqs']);
  const waiting = amountOf(load['num_waiting_reqs']);
  const usage = amountOf(load['token_usage']);
  const takenAt = amountOf(load['timestamp']);
  const fresh = takenAt !== null && nowSeconds - takenAt <= FRESH_S;
  const hangs = takenAt !== null && !fresh && (running ?? 0) + (waiting ?? 0) > 0;
  if (hangs)
    return { running: null, waiting: null, kvUsageRatio: null, waitingPrefillTokens: null };
  return {
    running,
    waiting,
    kvUsageRatio: usage === null ? null : Math.min(1, usage),
    waitingPrefillTokens: fresh ? amountOf(load['num_waiting_uncached_tokens']) : null,
  };
}

/** A time with its zone, in seconds since 1970: without a zone it may be any. */
function writtenAt(value: unknown): number | null {
  const text = textOf(value);
  if (text === null || !/(?:Z|[+-]\d\d:?\d\d)$/.test(text)) return null;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? null : ms / 1_000;
}
