// Any server with OpenAI's API: it answers or it does not. What it holds is known from what routers sent alone, so a
// request that bypasses them is invisible, and it is served with bounded concurrency.

import type { IdentityResult, ScrapeResult } from '../events.ts';
import { nothingKnown, type AdapterContext, type EngineAdapter } from './adapter.ts';
import { scrapeFailure } from './client.ts';
import { identifyByModels } from './identify.ts';

const LOADING: ScrapeResult = {
  kind: 'unready',
  stage: 'loading',
  detail: 'models: status 503',
};

export class GenericAdapter implements EngineAdapter {
  readonly kind = 'generic';
  readonly #context: AdapterContext;
  #served = false;

  constructor(context: AdapterContext) {
    this.#context = context;
  }

  async scrape(timeoutMs: number): Promise<ScrapeResult> {
    const fetched = await this.#context.client.get('/v1/models', timeoutMs);
    if (fetched.kind !== 'answer') return scrapeFailure(fetched);
    const { status } = fetched;
    // What has served does not load: then it is a refusal of another kind, and no new life.
    if (status === 503 && !this.#served) return LOADING;
    if (status !== 200) return { kind: 'failed', detail: `models: status ${status}` };
    this.#served = true;
    return { kind: 'ok', scrape: nothingKnown() };
  }

  identify(timeoutMs: number): Promise<IdentityResult> {
    const version = Promise.resolve(null);
    return identifyByModels(this.#context.client, { kind: this.kind, timeoutMs, version });
  }
}
