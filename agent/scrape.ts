// One engine as the agent reads it: which kind it is, its figures, its identity.
//
// The kind is found by what the engine answers, or set by the configuration. It is looked for again after the port
// was refused and whenever the engine's identity is asked for (each new life, and every minute), because another
// engine may stand there. Where configuration and engine disagree the configuration holds, and it is said once.

import { ENGINE_TITLES, type EngineKind } from '../shared/model/engine-kind.ts';
import type { Clock } from '../shared/runtime/clock.ts';
import type { Logger } from '../shared/runtime/log.ts';
import type { EngineAdapter } from './engines/adapter.ts';
import type { EngineClient } from './engines/client.ts';
import { detectKind, type KindResult } from './engines/detect.ts';
import { GenericAdapter } from './engines/generic.ts';
import { LlamacppAdapter } from './engines/llamacpp.ts';
import { SglangAdapter } from './engines/sglang.ts';
import { TgiAdapter } from './engines/tgi.ts';
import { VllmAdapter } from './engines/vllm.ts';
import type { IdentityResult, ScrapeResult } from './events.ts';

const SCRAPE_TIMEOUT_MS = 5_000;
const IDENTIFY_TIMEOUT_MS = 5_000;

export interface EngineReaderOptions {
  readonly client: EngineClient;
  readonly clock: Clock;
  readonly log: Logger;
  /** Of the configuration; null: found out. */
  readonly kind: EngineKind | null;
}

const ADAPTERS = {
  vllm: VllmAdapter,
  sglang: SglangAdapter,
  tgi: TgiAdapter,
  llamacpp: LlamacppAdapter,
  generic: GenericAdapter,
} as const satisfies Record<EngineKind, unknown>;

export class EngineReader {
  readonly #options: EngineReaderOptions;
  #adapter: EngineAdapter | null = null;
  /** The kind that the log was last told of. */
  #said: EngineKind | null = null;
  #disagreed: EngineKind | null = null;
  #detected: EngineKind | null = null;

  constructor(options: EngineReaderOptions) {
    this.#options = options;
  }

  /** Null until it has been found out. */
  get kind(): EngineKind | null {
    return this.#adapter?.kind ?? null;
  }

  /** What it answers as, whatever the configuration says. */
  get detected(): EngineKind | null {
    return this.#detected;
  }

  async scrape(timeoutMs: number = SCRAPE_TIMEOUT_MS): Promise<ScrapeResult> {
    if (this.#adapter === null) {
      // Two rounds of questions before the figures themselves.
      const problem = this.#take(await detectKind(this.#options.client, timeoutMs / 4));
      if (problem !== null) return problem;
    }
    const result = await this.#current().scrape(timeoutMs);
    if (result.kind === 'refused') this.#adapter = null;
    return result;
  }

  async identify(timeoutMs: number = IDENTIFY_TIMEOUT_MS): Promise<IdentityResult> {
    const problem = this.#take(await detectKind(this.#options.client, timeoutMs));
    if (problem !== null && this.#adapter === null) {
      const detail = problem.kind === 'refused' ? 'refused' : problem.detail;
      return { kind: 'failed', detail };
    }
    const result = await this.#current().identify(timeoutMs);
    if (result.kind === 'ok') this.#say(result);
    return result;
  }

  #current(): EngineAdapter {
    if (this.#adapter === null) throw new Error('the engine has no adapter');
    return this.#adapter;
  }

  /** The adapter for what was found; or, where nothing was, what that means for a scrape. */
  #take(found: KindResult): Exclude<ScrapeResult, { readonly kind: 'ok' }> | null {
    const configured = this.#options.kind;
    // Busy engines answer late: what it was a minute ago it is still.
    if (found.kind === 'engine' && !found.sure && this.#adapter !== null) return null;
    if (found.kind === 'engine') this.#compare(found.engine, found.by);
    // The configuration knows better than an engine that answers nothing that is known.
    if (found.kind === 'failed' && configured !== null) return this.#use(configured);
    return found.kind === 'engine' ? this.#use(configured ?? found.engine) : found;
  }

  #use(kind: EngineKind): null {
    if (this.#adapter?.kind !== kind) {
      const { client, clock } = this.#options;
      this.#adapter = new ADAPTERS[kind]({ client, clock });
    }
    return null;
  }

  #compare(detected: EngineKind, by: string): void {
    const { kind, log, client } = this.#options;
    this.#detected = detected;
    if (kind === null || kind === detected || this.#disagreed === detected) return;
    this.#disagreed = detected;
    log.warn({ engine: client.url, configured: kind, detected, by }, 'engine_kind_mismatch');
  }

  #say({ identity }: Extract<IdentityResult, { readonly kind: 'ok' }>): void {
    const { kind, version, models } = identity;
    if (this.#said === kind) return;
    this.#said = kind;
    const { log, client } = this.#options;
    const fields = { engine: client.url, kind, version, models: models.map(({ id }) => id) };
    if (kind === 'generic') {
      const unknown = 'load, KV cache, preemptions, cached tokens';
      const follows = 'only what routers send is known: bounded concurrency, no foreign traffic';
      log.warn({ ...fields, unknown, follows }, 'engine_generic');
    } else log.info(fields, `engine is ${ENGINE_TITLES[kind]}`);
  }
}
