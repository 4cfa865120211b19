// Tokens of a prompt on one target, and how many of them its KV cache should hold.
//
//   prompt  = exact ids | leaf's exact tokens + later bytes / bytesPerToken
//           | bytes / bytesPerToken + parts
//   matched = deepest of: full chunks / bytesPerToken; leaf's prompt and answer
//   cached  = ⌊min(matched, prompt − 1)⌋ to blocks · κ      at least one token is always computed
//
// A router never tokenises: bytesPerToken, tokens per part and κ are learned by the agent from real
// usage.

import { CHUNK_BYTES, type PromptChain } from '../../shared/model/prompt.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { PrefixMatch } from './prefix-index.ts';

/** Bytes per token of a model that has not told its own. */
export const ASSUMED_BYTES_PER_TOKEN = 4;
/** Tokens of an image or other part whose kind has not been learned. */
export const ASSUMED_PART_TOKENS = 1_000;
const ASSUMED_BLOCK_TOKENS = 16;
const KAPPA_MAX = 1;

export interface PromptTokens {
  readonly prompt: number;
  /** What the index alone says, before blocks and κ. */
  readonly matched: number;
  readonly cached: number;
  /** prompt − cached, at least 1. */
  readonly uncached: number;
}

/** The figures of a report that turn bytes into tokens; null before any report. */
export type TokenFigures = Pick<
  ReplicaReport,
  'bytesPerToken' | 'partTokens' | 'blockTokens' | 'kappa'
>;

/** Those figures as the arithmetic takes them, with what stands for unknown ones. */
export interface TokenView {
  bytesPerToken: number;
  /** Of all non-text parts of the prompt together. */
  partTokens: number;
  blockTokens: number;
  kappa: number;
}

export function promptTokens(
  chain: PromptChain,
  match: PrefixMatch | null,
  figures: TokenFigures | null,
): PromptTokens {
  const meter = new PromptMeter(chain);
  meter.read(meter.viewOf(figures), match?.chunks ?? 0, match);
  const { prompt, matched, cached, uncached } = meter;
  return { prompt, matched, cached, uncached };
}

/** One prompt, measured for many targets: what `read` found last is in its fields. */
export class PromptMeter implements PromptTokens {
  prompt = 0;
  matched = 0;
  cached = 0;
  uncached = 0;
  readonly #chain: PromptChain;
  readonly #parts: readonly (readonly [kind: string, count: number])[];
  /** Where the prompt came as token ids; null where its targets' own figure counts. */
  readonly #bytesPerToken: number | null;

  constructor(chain: PromptChain) {
    this.#chain = chain;
    this.#parts = Object.entries(chain.parts);
    const { tokenIds, bytes } = chain;
    this.#bytesPerToken = tokenIds === null ? null : Math.max(0.01, bytes / Math.max(1, tokenIds));
  }

  viewOf(figures: TokenFigures | null): TokenView {
    return {
      bytesPerToken: bytesPerToken(figures),
      partTokens: this.partTokens(figures),
      blockTokens: blockTokens(figures),
      kappa: kappaOf(figures),
    };
  }

  /** Non-text tokens of the prompt; their number is in its token ids already where it has those. */
  partTokens(figures: TokenFigures | null): number {
    if (this.#chain.tokenIds !== null) return 0;
    let tokens = 0;
    for (const [kind, count] of this.#parts) {
      tokens += count * (figures?.partTokens[kind] ?? ASSUMED_PART_TOKENS);
    }
    return tokens;
  }

  /** `found`: the leaf that goes with these chunks; null for none. */
  read(view: TokenView, chunks: number, found: PrefixMatch | null): void {
    const { bytes, tokenIds } = this.#chain;
    const perToken = this.#bytesPerToken ?? view.bytesPerToken;
    const exact = this.#parts.length === 0 ? (found?.leaf?.promptTokens ?? null) : null;
    const estimated =
      tokenIds ??
      (exact === null ? bytes / perToken : exact + (bytes - (found?.leafOffset ?? 0)) / perToken) +
        view.partTokens;
    const prompt = Math.max(1, Math.round(estimated));
    const matched = Math.min(prompt - 1, Math.floor(this.#matchedTokens(view, chunks, found)));
    const { blockTokens: block, kappa } = view;
    const cached = Math.floor(Math.floor(matched / block) * block * kappa);
    this.prompt = prompt;
    this.matched = matched;
    this.cached = Math.min(cached, prompt - 1);
    this.uncached = Math.max(1, prompt - cached);
  }

  #matchedTokens(view: TokenView, chunks: number, found: PrefixMatch | null): number {
    const { bytes } = this.#chain;
    const perToken = this.#bytesPerToken ?? view.bytesPerToken;
    const chunkBytes = chunks * CHUNK_BYTES;
    const leaf = found?.leaf ?? null;
    if (found === null || leaf === null) {
      const share = bytes > 0 ? Math.min(1, chunkBytes / bytes) : 0;
      return chunkBytes / perToken + view.partTokens * share;
    }
    const upToLeaf = leaf.promptTokens ?? found.leafOffset / perToken;
    const beyond = Math.max(0, chunkBytes - found.leafOffset) / perToken;
    return upToLeaf + Math.max(leaf.answerTokens, beyond);
  }
}

export function bytesPerToken(figures: TokenFigures | null): number {
  return Math.max(0.01, figures?.bytesPerToken?.mean ?? ASSUMED_BYTES_PER_TOKEN);
}

export function blockTokens(figures: TokenFigures | null): number {
  return figures?.blockTokens ?? ASSUMED_BLOCK_TOKENS;
}

export function kappaOf(figures: TokenFigures | null): number {
  return Math.min(KAPPA_MAX, Math.max(0, figures?.kappa ?? 1));
}

/** The fewest tokens that the prompt can plausibly have; null where nothing was learned. */
export function leastPromptTokens(chain: PromptChain, figures: TokenFigures | null): number | null {
  if (chain.tokenIds !== null) return chain.tokenIds;
  const learned = figures?.bytesPerToken ?? null;
  return learned === null ? null : chain.bytes / learned.p95;
}
