// Chunks of a prefix index as runs of consecutive ones, a parent's run before its children's.

import type { PrefixRun } from '../../shared/protocol/messages.ts';
import { FLAGS, NONE } from './prefix-nodes.ts';
import type { PrefixNodes } from './prefix-nodes.ts';

/** Runs of these nodes; leaves among them are left out. */
export function runsOf(nodes: PrefixNodes, chosen: readonly number[]): PrefixRun[] {
  const chunks = chosen.filter((node) => !nodes.has(node, FLAGS.leaf));
  // Parents come first and siblings' descendants stay together: order by depth, then follow single lines.
  const inSet = new Set(chunks);
  const next = new Map<number, number>();
  const heads: number[] = [];
  for (const node of chunks) {
    const parent = nodes.parent[node] ?? NONE;
    if (parent !== NONE && inSet.has(parent) && !next.has(parent)) next.set(parent, node);
    else heads.push(node);
  }
  heads.sort((a, b) => (nodes.depth[a] ?? 0) - (nodes.depth[b] ?? 0));
  return heads.map((head) => runFrom(nodes, head, next));
}

/** Runs of the whole index. */
export function allRuns(nodes: PrefixNodes): PrefixRun[] {
  const all: number[] = [];
  for (let at = nodes.newestNode; at !== NONE; at = nodes.olderThan(at)) all.push(at);
  return runsOf(nodes, all);
}

function runFrom(nodes: PrefixNodes, head: number, next: ReadonlyMap<number, number>): PrefixRun {
  const words: number[] = [];
  for (let at: number | undefined = head; at !== undefined; at = next.get(at)) {
    words.push(nodes.low[at] ?? 0, nodes.high[at] ?? 0);
  }
  const parent = nodes.parent[head] ?? NONE;
  return {
    parentLow: parent === NONE ? 0 : (nodes.low[parent] ?? 0),
    parentHigh: parent === NONE ? 0 : (nodes.high[parent] ?? 0),
    depth: nodes.depth[head] ?? 0,
    hashes: Uint32Array.from(words),
  };
}
