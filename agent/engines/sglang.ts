// SGLang: `/metrics` where it is switched on, `/v1/loads` where the version has it, `/server_info` once for limits.
//
// `/health` generates a token, answers after a second at the earliest and after 20 with its verdict, and 503 while
// the server warms up or stops. A stopping server goes on serving until nobody sends any more, so that answer is the
// only sign: it is asked for every 10 s, beside the scrapes.

import type { IdentityResult, RankScrape, ScrapeResult } from '../events.ts';
import { absentRank } from '../events.ts';
import type { KvEventsOptions } from '../policy/kv-event.ts';
import type { AdapterContext, EngineAdapter } from './adapter.ts';
import { scrapeFailure, type Fetched } from './client.ts';
import { parseObject, positiveOf, type JsonObject } from './foreign-json.ts';
import { identifyByModels } from './identify.ts';
import { readSglangLoads, type RankLoad } from './sglang-loads.ts';
import { readSglangMetrics } from './sglang-metrics.ts';

const LOADS = '/v1/loads?include=core';
const HEALTH_EVERY_MS = 10_000;
const HEALTH_TIMEOUT_MS = 25_000;

export class SglangAdapter implements EngineAdapter {
  readonly kind = 'sglang';
  readonly #context: AdapterContext;
  #hasLoads = true;
  #info: JsonObject | null = null;
  #healthAskedMs = -Infinity;
  #healthAsking = false;
  #unhealthy = false;
  /** It has been healthy: what is unhealthy later stops, or is stuck. */
  #served = false;

  constructor(context: AdapterContext) {
    this.#context = context;
  }

  async scrape(timeoutMs: number): Promise<ScrapeResult> {
    const { client, clock } = this.#context;
    this.#checkHealth();
    const [metrics, loads] = await Promise.all([
      client.get('/metrics', timeoutMs),
      this.#hasLoads ? client.get(LOADS, timeoutMs) : null,
      this.#info === null ? this.#askInfo(timeoutMs) : null,
    ]);
    if (metrics.kind !== 'answer') return scrapeFailure(metrics);
    if (loads?.kind === 'answer' && isMissing(loads.status)) this.#hasLoads = false;
    if (this.#unhealthy)
      return {
        kind: 'unready',
        stage: this.#served ? 'stopping' : 'loading',
        detail: 'health: status 503',
      };
    if (metrics.status !== 200 && !isMissing(metrics.status)) {
      return { kind: 'failed', detail: `metrics: status ${metrics.status}` };
    }
    const told = readLoads(loads, clock.wallMs() / 1_000);
    const body = metrics.status === 200 ? metrics.body : '';
    const exposed = readSglangMetrics(body, told?.length);
    return { kind: 'ok', scrape: { startTimeSeconds: null, ranks: this.#ranks(exposed, told) } };
  }

  async identify(timeoutMs: number): Promise<IdentityResult> {
    const info = this.#askInfo(timeoutMs);
    const result = await identifyByModels(this.#context.client, {
      kind: this.kind,
      timeoutMs,
      version: info.then(() => this.#info?.['version']),
    });
    if (result.kind !== 'ok') return result;
    const stepTokens = positiveOf(this.#info?.['chunked_prefill_size']);
    const kvEvents = kvEventsOf(this.#info?.['kv_events']);
    return { kind: 'ok', identity: { ...result.identity, stepTokens, kvEvents } };
  }

  #ranks(exposed: readonly RankScrape[] | null, told: readonly RankLoad[] | null): RankScrape[] {
    const ranks = new Map<number, RankScrape>();
    for (const rank of exposed ?? []) ranks.set(rank.rank, rank);
    for (const load of told ?? []) {
      ranks.set(load.rank, merged(ranks.get(load.rank) ?? absentRank(load.rank), load));
    }
    if (ranks.size === 0) ranks.set(0, absentRank(0));
    return [...ranks.values()].sort((a, b) => a.rank - b.rank).map((rank) => this.#limited(rank));
  }

  /** Limits that neither said, from the server's settings. */
  #limited(rank: RankScrape): RankScrape {
    const info = this.#info;
    return {
      ...rank,
      runningMax: rank.runningMax ?? positiveOf(info?.['max_running_requests']),
      kvCapacityTokens: rank.kvCapacityTokens ?? positiveOf(info?.['max_total_num_tokens']),
      blockTokens: rank.blockTokens ?? positiveOf(info?.['page_size']),
    };
  }

  async #askInfo(timeoutMs: number): Promise<void> {
    for (const path of ['/server_info', '/get_server_info']) {
      const said = await this.#context.client.get(path, timeoutMs);
      if (said.kind !== 'answer') return;
      if (said.status === 200) {
        this.#info = parseObject(said.body) ?? {};
        return;
      }
    }
    // It will not say a second later either: with the next identity it is asked again.
    this.#info ??= {};
  }

  #checkHealth(): void {
    const { client, clock } = this.#context;
    const nowMs = clock.nowMs();
    const everyMs = this.#unhealthy ? 1_000 : HEALTH_EVERY_MS;
    if (this.#healthAsking || nowMs - this.#healthAskedMs < everyMs) return;
    this.#healthAskedMs = nowMs;
    this.#healthAsking = true;
    void client.get('/health', HEALTH_TIMEOUT_MS).then((said) => {
      this.#healthAsking = false;
      if (said.kind !== 'answer') return;
      this.#unhealthy = said.status === 503;
      if (said.status === 200) this.#served = true;
    });
  }
}

/** Since 2026-05: where its KV events are published. It does not say where it replays them. */
function kvEventsOf(told: unknown): KvEventsOptions | null {
  if (typeof told !== 'object' || told === null) return null;
  const { publisher, endpoint_host, endpoint_port_base, topic } = told as JsonObject;
  const port = positiveOf(endpoint_port_base);
  if (publisher !== 'zmq' || typeof endpoint_host !== 'string' || port === null) return null;
  return {
    endpoint: `tcp://${endpoint_host}:${port}`,
    replay: null,
    topic: typeof topic === 'string' ? topic : '',
    bind: false,
  };
}

/** The scheduler's own snapshot is newer than its metrics; where it says nothing, they stand. */
function merged(rank: RankScrape, load: RankLoad): RankScrape {
  const hangs = load.running === null && load.waiting === null;
  return {
    ...rank,
    ...load,
    // Metrics of a scheduler that hangs are as old as its snapshot.
    kvUsageRatio: load.kvUsageRatio ?? (hangs ? null : rank.kvUsageRatio),
  };
}

function readLoads(loads: Fetched | null, nowSeconds: number): readonly RankLoad[] | null {
  if (loads?.kind !== 'answer' || loads.status !== 200) return null;
  return readSglangLoads(loads.body, nowSeconds);
}

function isMissing(status: number): boolean {
  return status === 404 || status === 405;
}
