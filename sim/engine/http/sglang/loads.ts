// `/v1/loads`: what each scheduler last wrote of itself, cheap to read whatever the scheduler does.
//
// A scheduler writes between steps, also when it has nothing to do. One that hangs leaves what it wrote and the time at
// which it did: that age is all that a reader sees of it. The model has no bytes: memory is 0 but for the tokens.

import { kvCapacityTokens } from '../../profiles.ts';
import type { EngineDriver } from '../driver.ts';
import type { SglangRankStats } from './stats.ts';

const SECTIONS = ['core', 'memory', 'spec', 'lora', 'disagg', 'queues', 'all'];

export type Snapshot = Readonly<Record<string, number | null | Readonly<Record<string, number>>>>;

/** What one scheduler writes. */
export class LoadSnapshots {
  readonly #engine: EngineDriver;
  readonly #stats: SglangRankStats;
  readonly #rank: number;
  #stepEndedMs: number | null = null;
  #last: Snapshot | null = null;

  constructor(engine: EngineDriver, stats: SglangRankStats, rank: number) {
    this.#engine = engine;
    this.#stats = stats;
    this.#rank = rank;
  }

  stepEnded(atMs: number): void {
    this.#stepEndedMs = atMs;
  }

  /** `wallMs` is now, in ms since 1970. */
  read(wallMs: number): Snapshot {
    const { model } = this.#engine;
    const hangs = model.phase !== 'serving';
    if (this.#last !== null && hangs) return this.#last;
    const nowMs = this.#engine.nowMs();
    const truth = model.truth(nowMs);
    // At work it writes between two steps, with nothing to do all the time.
    const idle = truth.running === 0 && truth.waiting === 0 && !hangs;
    const writtenMs = idle ? nowMs : (this.#stepEndedMs ?? nowMs);
    this.#last = this.#write(truth, (wallMs - (nowMs - writtenMs)) / 1_000);
    return this.#last;
  }

  #write(truth: ReturnType<EngineDriver['model']['truth']>, timestamp: number): Snapshot {
    const { profile } = this.#engine.model;
    const capacity = kvCapacityTokens(profile);
    const used = truth.heldBlocks * profile.blockTokens;
    const { gauges } = this.#stats;
    return {
      timestamp,
      dp_rank: this.#rank,
      num_running_reqs: truth.running,
      num_waiting_reqs: truth.waiting,
      num_waiting_uncached_tokens: truth.waitingPrefillTokens,
      num_used_tokens: used,
      num_total_tokens: used + truth.waitingPrefillTokens,
      num_active_tokens: used,
      max_total_num_tokens: capacity,
      max_running_requests: profile.maxNumSeqs,
      token_usage: Math.round((used / capacity) * 10_000) / 10_000,
      gen_throughput: Math.round(gauges.generatedPerSecond * 100) / 100,
      cache_hit_rate: Math.round(gauges.hitRatio * 10_000) / 10_000,
      utilization: 0,
      total_prefill_uncached_tokens: this.#stats.busyTokens,
      total_prefill_busy_us: this.#stats.busyUs,
      decode_moments: null,
      memory: { weight_gb: 0, kv_cache_gb: 0, graph_gb: 0, token_capacity: capacity },
      queues: { waiting: truth.waiting, grammar: 0, paused: 0, retracted: 0 },
    };
  }
}

export type LoadsAnswer =
  | { readonly kind: 'json'; readonly loads: readonly Snapshot[] }
  | { readonly kind: 'prometheus'; readonly text: string }
  | { readonly kind: 'invalid'; readonly detail: string };

/** The rows that a query asks for. */
export function selectLoads(all: readonly Snapshot[], query: URLSearchParams): LoadsAnswer {
  const rank = query.get('dp_rank');
  const include = query
    .get('include')
    ?.split(',')
    .map((each) => each.trim()) ?? ['all'];
  const unknown = include.filter((each) => !SECTIONS.includes(each));
  if (unknown.length > 0) {
    return { kind: 'invalid', detail: `Invalid include sections: ${unknown.join(', ')}` };
  }
  const rows = all.filter((each) => rank === null || each['dp_rank'] === Number(rank));
  const loads = rows.map((each) => withSections(each, include));
  return query.get('format') === 'prometheus'
    ? { kind: 'prometheus', text: prometheus(loads) }
    : { kind: 'json', loads };
}

function withSections(snapshot: Snapshot, include: readonly string[]): Snapshot {
  if (include.includes('all')) return snapshot;
  return Object.fromEntries(
    Object.entries(snapshot).filter(
      ([name, value]) => typeof value !== 'object' || value === null || include.includes(name),
    ),
  );
}

function prometheus(loads: readonly Snapshot[]): string {
  const samples = new Map<string, string[]>();
  const add = (name: string, rank: unknown, value: number): void => {
    const lines = samples.get(name) ?? [`# TYPE sglang_${name} gauge`];
    samples.set(name, lines);
    lines.push(`sglang_${name}{dp_rank="${String(rank)}"} ${value}`);
  };
  for (const { dp_rank: rank, ...values } of loads) {
    for (const [name, value] of Object.entries(values)) {
      if (typeof value === 'number') add(name, rank, value);
      else for (const [key, each] of Object.entries(value ?? {})) add(`${name}_${key}`, rank, each);
    }
  }
  return [...samples.values()].flat().join('\n') + '\n';
}
