// vLLM, V0 and V1: everything from `/metrics`. With `--disable-log-stats` nothing is known but what routers sent.

import type { IdentityResult, ScrapeResult } from '../events.ts';
import { nothingKnown, type AdapterContext, type EngineAdapter } from './adapter.ts';
import { scrapeFailure } from './client.ts';
import { parseObject } from './foreign-json.ts';
import { identifyByModels } from './identify.ts';
import { readVllmMetrics } from './vllm-metrics.ts';

export class VllmAdapter implements EngineAdapter {
  readonly kind = 'vllm';
  readonly #context: AdapterContext;

  constructor(context: AdapterContext) {
    this.#context = context;
  }

  async scrape(timeoutMs: number): Promise<ScrapeResult> {
    const fetched = await this.#context.client.get('/metrics', timeoutMs);
    if (fetched.kind !== 'answer') return scrapeFailure(fetched);
    const { status, body } = fetched;
    if (status === 404) return { kind: 'ok', scrape: nothingKnown() };
    if (status !== 200) return { kind: 'failed', detail: `metrics: status ${status}` };
    return { kind: 'ok', scrape: readVllmMetrics(body) ?? nothingKnown() };
  }

  async identify(timeoutMs: number): Promise<IdentityResult> {
    const { client } = this.#context;
    const version = client.get('/version', timeoutMs);
    return identifyByModels(client, {
      kind: this.kind,
      timeoutMs,
      version: version.then((said) => (said.kind === 'answer' ? versionOf(said) : null)),
    });
  }
}

function versionOf({ status, body }: { readonly status: number; readonly body: string }): unknown {
  return status === 200 ? parseObject(body)?.['version'] : null;
}
