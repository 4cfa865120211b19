// What the agent asks of an engine, whatever its kind. One adapter lives as long as one engine process, as far as
// the agent can tell: what is asked once (limits, versions, paths that an older engine lacks) it keeps.
//
// An adapter tells what the engine says and no more: what is absent stays null, what stands for something else is
// named in `derived`.

import type { EngineKind } from '../../shared/model/engine-kind.ts';
import type { Clock } from '../../shared/runtime/clock.ts';
import { absentRank } from '../events.ts';
import type { EngineScrape, IdentityResult, ScrapeResult } from '../events.ts';
import type { EngineClient } from './client.ts';

export interface EngineAdapter {
  readonly kind: EngineKind;
  /** Figures of every rank, within `timeoutMs`. */
  scrape(timeoutMs: number): Promise<ScrapeResult>;
  /** Version and models. */
  identify(timeoutMs: number): Promise<IdentityResult>;
}

export interface AdapterContext {
  readonly client: EngineClient;
  readonly clock: Clock;
}

/** An engine whose figures are switched off, or that has none: everything unknown, nothing zero. */
export function nothingKnown(): EngineScrape {
  return { startTimeSeconds: null, ranks: [absentRank(0)] };
}
