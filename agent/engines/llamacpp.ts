// llama.cpp's server: `/props` first, then `/metrics` (with `--metrics`) and `/slots` (unless `--no-slots`).
//
// While it loads every path answers 503 "Loading model". While it sleeps (`--sleep-idle-seconds`) `/metrics` and
// `/slots` would wake it, so they are left alone; `/props` does not. Both wait behind the step that runs, which on a
// CPU takes seconds.

import type { IdentityResult, RankScrape, ScrapeResult } from '../events.ts';
import { absentRank } from '../events.ts';
import type { AdapterContext, EngineAdapter } from './adapter.ts';
import { scrapeFailure, type Fetched } from './client.ts';
import { parseObject } from './foreign-json.ts';
import { identifyByModels } from './identify.ts';
import {
  LLAMACPP_DERIVED,
  readLlamacppMetrics,
  readLlamacppProperties,
  readLlamacppSlots,
  type Properties,
  type SlotFigures,
} from './llamacpp-metrics.ts';

/** Old versions put whole prompts into the list: beyond this it is not worth reading every second. */
const SLOTS_BYTES_MAX = 1024 * 1024;
const SLOTS_AGAIN_MS = 60_000;

const NO_PROPERTIES: Properties = { slots: null, asleep: null, slotTokens: null, build: null };

export class LlamacppAdapter implements EngineAdapter {
  readonly kind = 'llamacpp';
  readonly #context: AdapterContext;
  #hasMetrics = true;
  #slotsFromMs = -Infinity;

  constructor(context: AdapterContext) {
    this.#context = context;
  }

  async scrape(timeoutMs: number): Promise<ScrapeResult> {
    const { client } = this.#context;
    // Two rounds of questions, each behind a step that may take long.
    const halfMs = timeoutMs / 2;
    const said = await client.get('/props', halfMs);
    if (said.kind !== 'answer') return scrapeFailure(said);
    if (saysLoading(said)) return this.#loads();
    if (said.status >= 500) return { kind: 'failed', detail: `props: status ${said.status}` };
    const properties = propertiesOf(said);
    if (properties.asleep === true)
      return told({ ...absentRank(0), asleep: true }, properties, null);
    const [metrics, slots] = await Promise.all([
      this.#hasMetrics ? client.get('/metrics', halfMs) : null,
      this.#slots(halfMs),
    ]);
    if (metrics !== null && metrics.kind !== 'answer') return scrapeFailure(metrics);
    if (metrics !== null && saysLoading(metrics)) return this.#loads();
    if (metrics !== null && isMissing(metrics.status)) this.#hasMetrics = false;
    const exposed = metrics?.status === 200 ? readLlamacppMetrics(metrics.body) : null;
    return told({ ...(exposed ?? absentRank(0)), asleep: properties.asleep }, properties, slots);
  }

  async identify(timeoutMs: number): Promise<IdentityResult> {
    const { client } = this.#context;
    const properties = client.get('/props', timeoutMs).then(propertiesOf);
    return identifyByModels(client, {
      kind: this.kind,
      timeoutMs,
      version: properties.then(({ build }) => build),
      maxModelLen: properties.then(({ slotTokens }) => slotTokens),
    });
  }

  /** Another process: it may have been started otherwise. */
  #loads(): ScrapeResult {
    this.#hasMetrics = true;
    this.#slotsFromMs = -Infinity;
    return { kind: 'unready', stage: 'loading', detail: 'loading model' };
  }

  async #slots(timeoutMs: number): Promise<SlotFigures | null> {
    const { client, clock } = this.#context;
    if (clock.nowMs() < this.#slotsFromMs) return null;
    const said = await client.get('/slots', timeoutMs, SLOTS_BYTES_MAX);
    const slots =
      said.kind === 'answer' && said.status === 200 ? readLlamacppSlots(said.body) : null;
    if (slots === null) this.#slotsFromMs = clock.nowMs() + SLOTS_AGAIN_MS;
    return slots;
  }
}

/** The engine's own words: another 503, of a proxy, must not cost it its memory. */
function saysLoading({
  status,
  body,
}: {
  readonly status: number;
  readonly body: string;
}): boolean {
  return status === 503 && /loading model/i.test(body);
}

function told(rank: RankScrape, properties: Properties, slots: SlotFigures | null): ScrapeResult {
  const runningMax = properties.slots ?? slots?.slots ?? null;
  const { slotTokens } = properties;
  const full: RankScrape = {
    ...rank,
    running: rank.running ?? slots?.running ?? null,
    runningMax,
    kvCapacityTokens:
      slots?.contextTokens ??
      (runningMax === null || slotTokens === null ? null : runningMax * slotTokens),
    blockTokens: 1,
    derived: LLAMACPP_DERIVED,
    // Without the count of deferred requests nobody knows whether slots are all of it.
    waitingPrefillTokens: rank.waiting === 0 ? (slots?.waitingPrefillTokens ?? null) : null,
  };
  return { kind: 'ok', scrape: { startTimeSeconds: null, ranks: [full] } };
}

function propertiesOf(said: Fetched): Properties {
  const props = said.kind === 'answer' && said.status === 200 ? parseObject(said.body) : null;
  return props === null ? NO_PROPERTIES : readLlamacppProperties(props);
}

/** 501 without `--metrics`. */
function isMissing(status: number): boolean {
  return status === 404 || status === 501;
}
