// What `up` learns of an engine before it starts anything.

import type { EngineSight } from '../../agent/look.ts';
import type { EngineKind } from '../../shared/model/engine-kind.ts';
import type { PeerTrust } from '../../shared/runtime/http-pool.ts';

/** Something that is missing and what that costs. */
export interface Finding {
  readonly missing: string;
  readonly cost: string;
}

export interface EngineFacts {
  readonly kind: EngineKind;
  /** What it answers as, where the person said another kind; else null. */
  readonly answersAs: EngineKind | null;
  readonly version: string | null;
  /** Base models, adapters left out. */
  readonly models: readonly string[];
  readonly maxModelLen: number | null;
  /** Data-parallel ranks. */
  readonly ranks: number;
  readonly findings: readonly Finding[];
  /** What no flag would change. */
  readonly unknown: readonly EngineSight['absent'][number][];
}

export type Detection =
  | { readonly kind: 'found'; readonly facts: EngineFacts }
  | { readonly kind: 'waiting'; readonly why: string }
  | { readonly kind: 'wrong'; readonly why: string };

export interface DetectOptions {
  readonly url: string;
  readonly apiKey: string | null;
  /** For an https engine; null or absent: the system's CAs. */
  readonly trust?: PeerTrust | null;
  /** Of what the person said; null: found out. */
  readonly engineKind: EngineKind | null;
  /** ms for each question. */
  readonly timeoutMs: number;
}
