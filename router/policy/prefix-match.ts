// What a target holds of a prompt.

import type { Leaf } from './prefix-leaves.ts';

export interface PrefixMatch {
  /** Full chunks from the start. */
  readonly chunks: number;
  /** The deepest earlier turn within or at the end of these chunks whose end it holds. */
  readonly leaf: Leaf | null;
  /** Canonical bytes up to that leaf's end; 0 without one. */
  readonly leafOffset: number;
}
