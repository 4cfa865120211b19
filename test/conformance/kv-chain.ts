// What KV events say of the cache: chains of blocks, their tokens, which of them are still held.

import assert from 'node:assert/strict';
import type { WireEvent } from './kv-feed.ts';

export const isStored = ({ type }: WireEvent): boolean => type === 'BlockStored';
export const isRemoved = ({ type }: WireEvent): boolean => type === 'BlockRemoved';

/** Blocks that events have stored, removals left out of account. */
export function storedBlocks(events: readonly WireEvent[]): number {
  return events.filter(isStored).reduce((sum, each) => sum + each.block_hashes.length, 0);
}

/** Token ids by walking from each stored block to its parents: the sequence of the longest chain. */
export function chainOf(events: readonly WireEvent[]): { tokens: number[]; hashes: unknown[] } {
  const tokens: number[] = [];
  const hashes: unknown[] = [];
  for (const event of events.filter(isStored)) {
    assert.equal(event.parent_block_hash, hashes.at(-1) ?? null, 'the parent is the block before');
    tokens.push(...event.token_ids);
    hashes.push(...event.block_hashes);
  }
  return { tokens, hashes };
}

/** How many of a chain's first blocks were stored more often than removed. */
export function heldBlocks(
  events: readonly WireEvent[],
  chain: readonly (bigint | number)[],
): number {
  const counts = new Map<bigint | number, number>();
  for (const event of events) {
    const step = isStored(event) ? 1 : -1;
    for (const hash of event.block_hashes ?? []) counts.set(hash, (counts.get(hash) ?? 0) + step);
  }
  const missing = chain.findIndex((hash) => (counts.get(hash) ?? 0) < 1);
  return missing === -1 ? chain.length : missing;
}

/** Hashes of a prompt's blocks, found by its tokens in what was stored. */
export function hashesOf(
  events: readonly WireEvent[],
  prompt: readonly number[],
  blockTokens: number,
): (bigint | number)[] {
  const found: (bigint | number)[] = [];
  for (const event of events.filter(isStored)) {
    const parent = found.at(-1) ?? null;
    const next = prompt.slice(found.length * blockTokens, (found.length + 1) * blockTokens);
    const first = event.token_ids.slice(0, blockTokens);
    if (event.parent_block_hash !== parent || first.join() !== next.join()) continue;
    found.push(...event.block_hashes);
  }
  return found;
}
