// What `up` learns of an engine before it starts anything.

/** Something that is missing and what that costs. */
export interface Finding {
  readonly missing: string;
  readonly cost: string;
}

export interface EngineFacts {
  readonly kind: 'vllm' | 'sglang' | 'tgi' | 'unknown';
  readonly version: string | null;
  /** Base models, adapters left out. */
  readonly models: readonly string[];
  readonly maxModelLen: number | null;
  readonly findings: readonly Finding[];
}

export type Detection =
  | { readonly kind: 'found'; readonly facts: EngineFacts }
  | { readonly kind: 'waiting'; readonly why: string }
  | { readonly kind: 'wrong'; readonly why: string };

export interface DetectOptions {
  readonly url: string;
  readonly apiKey: string | null;
  /** ms for each question. */
  readonly timeoutMs: number;
}
