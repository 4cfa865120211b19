// Tokens of a prompt on one target, and how many of them its KV cache should hold.
//
//   prompt  = exact ids | leaf's exact tokens + later bytes / bytesPerToken
//           | bytes / bytesPerToken + parts;             the target's context at most: an engine computes no more
//   matched = deepest of: full chunks / bytesPerToken; leaf's prompt and answer
//   cached  = ⌊min(matched, prompt − 1)⌋ to blocks · κ      at least one token is always computed
//
// A router never tokenises: bytesPerToken, tokens per part and κ are learned by the agent from real
// usage.

import { CHUNK_BYTES, type PromptChain } from '../../shared/model/prompt.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { PrefixMatch } from './prefix-match.ts';

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

export function promptTokens(
  chain: PromptChain,
  match: PrefixMatch | null,
  figures: (TokenFigures & { readonly contextTokens?: number }) | null,
): PromptTokens {
  const meter = new PromptMeter(chain);
  meter.contextTokens = figures?.contextTokens ?? Number.POSITIVE_INFINITY;
  const { bytesPerToken, blockTokens, kappa } = tokenFigures(figures);
  meter.holds(match?.chunks ?? 0, match);
  meter.partTokens = meter.partTokensOf(figures);
  meter.read(Float64Array.of(bytesPerToken, blockTokens, kappa), 0, 1);
  const [prompt = 0, matched = 0, cached = 0, uncached = 0] = meter.found;
  return { prompt, matched, cached, uncached };
}

/** What turns bytes into tokens, with what stands for unknown figures. */
export function tokenFigures(figures: TokenFigures | null): {
  readonly bytesPerToken: number;
  readonly blockTokens: number;
  readonly kappa: number;
} {
  return {
    bytesPerToken: Math.max(0.01, figures?.bytesPerToken?.mean ?? ASSUMED_BYTES_PER_TOKEN),
    blockTokens: figures?.blockTokens ?? ASSUMED_BLOCK_TOKENS,
    kappa: Math.min(KAPPA_MAX, Math.max(0, figures?.kappa ?? 1)),
  };
}

/** One prompt, measured for many targets: numbers in, numbers out. */
export class PromptMeter {
  /** What was read last: prompt, matched, cached, uncached. */
  readonly found = new Float64Array(4);
  /** Of all non-text parts together; their number is in the token ids where the prompt came as those. */
  partTokens = 0;
  /** Of the target that is read next; Infinity where unknown. */
  contextTokens = Number.POSITIVE_INFINITY;
  readonly #parts: readonly (readonly [kind: string, count: number])[];
  /** Where the prompt came as token ids; 0 where its targets' own figure counts. */
  readonly #bytesPerToken: number;
  readonly #bytes: number;
  readonly #tokenIds: number;
  #match: PrefixMatch | null = null;
  #chunkBytes = 0;

  constructor(chain: PromptChain) {
    const { tokenIds, bytes } = chain;
    this.#parts = Object.entries(chain.parts);
    this.#bytesPerToken = tokenIds === null ? 0 : Math.max(0.01, bytes / Math.max(1, tokenIds));
    this.#bytes = bytes;
    this.#tokenIds = tokenIds ?? -1;
  }

  get hasParts(): boolean {
    return this.#parts.length > 0 && this.#tokenIds < 0;
  }

  /** Neither token ids nor parts: its tokens follow from its bytes. */
  get isText(): boolean {
    return this.#parts.length === 0 && this.#tokenIds < 0;
  }

  partTokensOf(figures: TokenFigures | null): number {
    if (this.#tokenIds >= 0) return 0;
    let tokens = 0;
    for (const [kind, count] of this.#parts) {
      tokens += count * (figures?.partTokens[kind] ?? ASSUMED_PART_TOKENS);
    }
    return tokens;
  }

  /** What the targets that are read next hold of it. */
  holds(chunks: number, match: PrefixMatch | null): void {
    this.#chunkBytes = chunks * CHUNK_BYTES;
    this.#match = match?.leaf === null ? null : match;
  }

  /** By bytes per token, tokens of a block and κ, which lie at `at` and each so many numbers after the one before. */
  read(figures: Float64Array, at: number, stride: number): void {
    const perToken = this.#bytesPerToken === 0 ? (figures[at] as number) : this.#bytesPerToken;
    const asked = Math.round(this.#promptTokens(perToken));
    const prompt = Math.max(1, Math.min(asked, this.contextTokens));
    const matched = Math.min(prompt - 1, Math.floor(this.#matchedTokens(perToken)));
    const block = figures[at + stride] as number;
    const kappa = figures[at + 2 * stride] as number;
    const cached = Math.floor(Math.floor(matched / block) * block * kappa);
    this.found[0] = prompt;
    this.found[1] = matched;
    this.found[2] = Math.min(cached, prompt - 1);
    this.found[3] = Math.max(1, prompt - cached);
  }

  #promptTokens(perToken: number): number {
    if (this.#tokenIds >= 0) return this.#tokenIds;
    const exact = this.#parts.length === 0 ? (this.#match?.leaf?.promptTokens ?? null) : null;
    if (exact === null) return this.#bytes / perToken + this.partTokens;
    return exact + (this.#bytes - (this.#match?.leafOffset ?? 0)) / perToken + this.partTokens;
  }

  #matchedTokens(perToken: number): number {
    const match = this.#match;
    if (match !== null && match.leaf !== null) {
      const upToLeaf = match.leaf.promptTokens ?? match.leafOffset / perToken;
      const beyond = Math.max(0, this.#chunkBytes - match.leafOffset) / perToken;
      return upToLeaf + Math.max(match.leaf.answerTokens, beyond);
    }
    if (this.#chunkBytes === 0) return 0;
    const byChunks = this.#chunkBytes / perToken;
    if (this.partTokens === 0) return byChunks;
    return byChunks + this.partTokens * Math.min(1, this.#chunkBytes / this.#bytes);
  }
}

/** The fewest tokens that the prompt can plausibly have; null where nothing was learned. */
export function leastPromptTokens(chain: PromptChain, figures: TokenFigures | null): number | null {
  if (chain.tokenIds !== null) return chain.tokenIds;
  const learned = figures?.bytesPerToken ?? null;
  return learned === null ? null : chain.bytes / learned.p95;
}
