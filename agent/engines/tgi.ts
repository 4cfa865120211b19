// TGI: `/metrics`, and `/info` once for its limits.
//
// `max_batch_total_tokens` bounds what its KV cache can hold, so the prefix index too. `max_concurrent_requests` is
// where it answers 429 at once: as many requests as that, or as a batch takes, are all it gets.

import { absentRank } from '../events.ts';
import type { IdentityResult, ScrapeResult } from '../events.ts';
import type { AdapterContext, EngineAdapter } from './adapter.ts';
import { scrapeFailure, type Fetched } from './client.ts';
import { parseObject, positiveOf, textOf, type JsonObject } from './foreign-json.ts';
import { identifyByModels } from './identify.ts';
import { nameOf } from './model-list.ts';
import { readTgiMetrics, TGI_DERIVED } from './tgi-metrics.ts';

export class TgiAdapter implements EngineAdapter {
  readonly kind = 'tgi';
  readonly #context: AdapterContext;
  #info: JsonObject | null = null;

  constructor(context: AdapterContext) {
    this.#context = context;
  }

  async scrape(timeoutMs: number): Promise<ScrapeResult> {
    const [metrics] = await Promise.all([
      this.#context.client.get('/metrics', timeoutMs),
      this.#info === null ? this.#askInfo(timeoutMs) : null,
    ]);
    if (metrics.kind !== 'answer') return scrapeFailure(metrics);
    if (metrics.status !== 200 && metrics.status !== 404) {
      return { kind: 'failed', detail: `metrics: status ${metrics.status}` };
    }
    const rank = readTgiMetrics(metrics.status === 200 ? metrics.body : '') ?? absentRank(0);
    const info = this.#info;
    const told = {
      ...rank,
      derived: TGI_DERIVED,
      kvCapacityTokens: positiveOf(info?.['max_batch_total_tokens']) ?? rank.kvCapacityTokens,
      runningMax: least(
        positiveOf(info?.['max_concurrent_requests']),
        positiveOf(info?.['max_batch_size']),
      ),
    };
    return { kind: 'ok', scrape: { startTimeSeconds: null, ranks: [told] } };
  }

  async identify(timeoutMs: number): Promise<IdentityResult> {
    const info = this.#askInfo(timeoutMs);
    const identified = await identifyByModels(this.#context.client, {
      kind: this.kind,
      timeoutMs,
      version: info.then(() => this.#info?.['version']),
      maxModelLen: info.then(() => positiveOf(this.#info?.['max_total_tokens'])),
    });
    return identified.kind === 'ok' ? identified : (this.#byInfo() ?? identified);
  }

  /** Versions without a model list say their model in `/info`. */
  #byInfo(): IdentityResult | null {
    const info = this.#info;
    const id = nameOf(info?.['model_id']);
    if (id === null) return null;
    const maxModelLen = positiveOf(info?.['max_total_tokens']);
    const version = nameOf(info?.['version']);
    const models = [{ id, maxModelLen, loras: [] }];
    return { kind: 'ok', identity: { kind: this.kind, version, models } };
  }

  async #askInfo(timeoutMs: number): Promise<void> {
    const said = await this.#context.client.get('/info', timeoutMs);
    this.#info = infoOf(said) ?? this.#info;
    // What answers otherwise now will not say it a second later: with the next identity it is asked again.
    if (said.kind === 'answer') this.#info ??= {};
  }
}

/** Null where the answer is not TGI's. */
export function infoOf(said: Fetched): JsonObject | null {
  if (said.kind !== 'answer' || said.status !== 200) return null;
  const info = parseObject(said.body);
  const limit = info?.['max_total_tokens'] ?? info?.['max_input_tokens'];
  return textOf(info?.['model_id']) !== null && positiveOf(limit) !== null ? info : null;
}

function least(...values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : Math.min(...known);
}
