// One look at an engine with an agent's eyes, for whoever sets one up: what it is, what it tells, what it does not.

import type { EngineKind } from '../shared/model/engine-kind.ts';
import type { ModelInfo } from '../shared/model/report.ts';
import { createHttpPools, type PeerTrust } from '../shared/runtime/http-pool.ts';
import type { RoleRuntime } from '../shared/runtime/role.ts';
import { EngineClient } from './engines/client.ts';
import { absentFigures, type EngineFigure } from './policy/engine-figures.ts';
import { EngineReader } from './scrape.ts';

export interface EngineSight {
  readonly kind: EngineKind;
  /** What it answers as; differs from `kind` where that was set. */
  readonly detected: EngineKind | null;
  readonly version: string | null;
  readonly models: readonly ModelInfo[];
  /** Data-parallel ranks that its figures tell of. */
  readonly ranks: number;
  /** Of rank 0. */
  readonly absent: readonly EngineFigure[];
}

export type Look =
  | { readonly kind: 'engine'; readonly sight: EngineSight }
  /** It loads, warms up or stops. */
  | { readonly kind: 'unready'; readonly detail: string }
  | { readonly kind: 'failed'; readonly detail: string };

export async function lookAtEngine(
  of: {
    readonly url: string;
    readonly apiKey: string | null;
    /** For an https engine; null: the system's CAs. */
    readonly trust: PeerTrust | null;
    readonly kind: EngineKind | null;
    /** ms for each question. */
    readonly timeoutMs: number;
  },
  { clock, timers, log }: Pick<RoleRuntime, 'clock' | 'timers' | 'log'>,
): Promise<Look> {
  const pools = createHttpPools(of.timeoutMs);
  try {
    const client = new EngineClient({ ...of, pools, timers });
    const reader = new EngineReader({ client, clock, log, kind: of.kind });
    const scraped = await reader.scrape(of.timeoutMs);
    if (scraped.kind === 'refused') return { kind: 'failed', detail: 'refused' };
    if (scraped.kind !== 'ok') return scraped;
    const identified = await reader.identify(of.timeoutMs);
    if (identified.kind !== 'ok') return identified;
    const { ranks } = scraped.scrape;
    const absent = absentFigures(ranks[0] ?? null);
    const { detected } = reader;
    const sight = { ...identified.identity, detected, ranks: ranks.length, absent };
    return { kind: 'engine', sight };
  } finally {
    await pools.close();
  }
}
