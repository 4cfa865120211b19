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

export function promptTokens(
  chain: PromptChain,
  match: PrefixMatch | null,
  figures: TokenFigures | null,
): PromptTokens {
  const perToken = bytesPerToken(chain, figures);
  const parts = partTokens(chain, figures);
  const exact = Object.keys(chain.parts).length === 0 ? (match?.leaf?.promptTokens ?? null) : null;
  const estimated =
    chain.tokenIds ??
    (exact === null
      ? chain.bytes / perToken
      : exact + (chain.bytes - (match?.leafOffset ?? 0)) / perToken) + parts;
  const matchedRaw = match === null ? 0 : matchedTokens(chain, match, { perToken, parts });
  const prompt = Math.max(1, Math.round(estimated));
  const matched = Math.min(prompt - 1, Math.floor(matchedRaw));
  const cached = cachedTokens(matched, figures);
  return {
    prompt,
    matched,
    cached: Math.min(cached, prompt - 1),
    uncached: Math.max(1, prompt - cached),
  };
}

/** The fewest tokens that the prompt can plausibly have; null where nothing was learned. */
export function leastPromptTokens(chain: PromptChain, figures: TokenFigures | null): number | null {
  if (chain.tokenIds !== null) return chain.tokenIds;
  const learned = figures?.bytesPerToken ?? null;
  return learned === null ? null : chain.bytes / learned.p95;
}

function matchedTokens(
  chain: PromptChain,
  match: PrefixMatch,
  per: { perToken: number; parts: number },
): number {
  const chunkBytes = match.chunks * CHUNK_BYTES;
  const share = chain.bytes > 0 ? Math.min(1, chunkBytes / chain.bytes) : 0;
  const byChunks = chunkBytes / per.perToken + per.parts * share;
  if (match.leaf === null) return byChunks;
  const upToLeaf = match.leaf.promptTokens ?? match.leafOffset / per.perToken;
  const beyond = Math.max(0, chunkBytes - match.leafOffset) / per.perToken;
  return upToLeaf + Math.max(match.leaf.answerTokens, beyond);
}

function cachedTokens(matched: number, figures: TokenFigures | null): number {
  const block = figures?.blockTokens ?? ASSUMED_BLOCK_TOKENS;
  const kappa = Math.min(KAPPA_MAX, Math.max(0, figures?.kappa ?? 1));
  return Math.floor(Math.floor(matched / block) * block * kappa);
}

function bytesPerToken(chain: PromptChain, figures: TokenFigures | null): number {
  if (chain.tokenIds !== null) return Math.max(0.01, chain.bytes / Math.max(1, chain.tokenIds));
  return Math.max(0.01, figures?.bytesPerToken?.mean ?? ASSUMED_BYTES_PER_TOKEN);
}

function partTokens(chain: PromptChain, figures: TokenFigures | null): number {
  if (chain.tokenIds !== null) return 0;
  let tokens = 0;
  for (const [kind, count] of Object.entries(chain.parts)) {
    tokens += count * (figures?.partTokens[kind] ?? ASSUMED_PART_TOKENS);
  }
  return tokens;
}
