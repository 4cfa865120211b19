// Blocks of measurement put beside each other, pure.
//
//   a group      base, A, B, …, B, A, base: each arm's two blocks lie evenly about the same middle as the base's, so a
//                drift of the machine falls on both alike
//   cpuUs        CPU seconds of a block / requests completed in it
//   times        per group: both blocks of an arm over both of the base. Told: median, least, greatest over the groups
//   added TTFT   quantile of all of an arm's first-token times less the same one of the direct blocks of the same groups
//   settling     an arm's first block over the median of its others: above 1 it was still being compiled

import { quantile } from '../../test/engines/quantile.ts';

export interface Block {
  readonly cpuS: number;
  /** Of these, those of a second tier. Absent: there is none. */
  readonly cpuSBehind?: number;
  readonly completed: number;
  readonly ttftMs: readonly number[];
  readonly wrong: number;
  readonly fault: string | null;
}

/** One pass over some arms; `arms[i]` are the two blocks of arm `i`. */
export interface Group {
  readonly direct: Block;
  readonly base: readonly [Block, Block];
  readonly arms: readonly (readonly [Block, Block])[];
}

export interface Figures {
  readonly cpuUsPerRequest: number;
  readonly timesNginx: number;
  readonly timesNginxMin: number;
  readonly timesNginxMax: number;
  readonly addedTtftMsP50: number;
  readonly addedTtftMsP99: number;
  readonly settling: number;
  readonly requests: number;
  readonly wrong: number;
  readonly fault: string | null;
}

export type Turn = 'direct' | 'base' | number;

/** What is measured in which order in one group of `arms` arms. */
export function groupOrder(arms: number): Turn[] {
  const there = Array.from({ length: arms }, (_, index) => index);
  return ['direct', 'base', ...there, ...there.toReversed(), 'base'];
}

/** Measures one group by `groupOrder`. */
export async function runGroup(
  arms: number,
  measure: (turn: Turn) => Promise<Block>,
): Promise<Group> {
  const seen = new Map<Turn, Block[]>();
  for (const turn of groupOrder(arms)) {
    const block = await measure(turn);
    seen.set(turn, [...(seen.get(turn) ?? []), block]);
  }
  const pair = (turn: Turn): readonly [Block, Block] => seen.get(turn) as [Block, Block];
  return {
    direct: seen.get('direct')?.[0] as Block,
    base: pair('base'),
    arms: Array.from({ length: arms }, (_, index) => pair(index)),
  };
}

/** Of arm `index` over all groups; of the base itself where it is `base`. */
export function figuresOf(groups: readonly Group[], index: number | 'base'): Figures {
  const blocksOf = (group: Group): readonly Block[] =>
    index === 'base' ? group.base : (group.arms[index] ?? []);
  const ratios = groups.map((group) => cpuOf(blocksOf(group)) / cpuOf(group.base));
  const blocks = groups.flatMap(blocksOf);
  const added = (q: number): number =>
    ttft(blocks, q) -
    ttft(
      groups.map(({ direct }) => direct),
      q,
    );
  const costs = blocks.map(cpuUs);
  return {
    cpuUsPerRequest: median(costs),
    timesNginx: median(ratios),
    timesNginxMin: Math.min(...ratios),
    timesNginxMax: Math.max(...ratios),
    addedTtftMsP50: added(0.5),
    addedTtftMsP99: added(0.99),
    settling: (costs[0] ?? Number.NaN) / median(costs.slice(1)),
    requests: sum(blocks.map(({ completed }) => completed)),
    wrong: sum(blocks.map(({ wrong }) => wrong)),
    fault: blocks.find(({ fault }) => fault !== null)?.fault ?? null,
  };
}

export interface Times {
  readonly median: number;
  readonly least: number;
  readonly greatest: number;
}

/** CPU of several arms together over that of the base, by group: what a request costs that each of them does a part of. */
export function timesTogether(groups: readonly Group[], indices: readonly number[]): Times {
  const ratios = groups.map(({ base, arms }) => {
    const costs = indices.map((index) => cpuOf(arms[index] ?? []));
    return sum(costs) / cpuOf(base);
  });
  return { median: median(ratios), least: Math.min(...ratios), greatest: Math.max(...ratios) };
}

/** First-token time of some blocks together, ms. */
export function ttft(blocks: readonly Block[], q: number): number {
  const all = blocks.flatMap(({ ttftMs }) => ttftMs);
  return quantile(all, q) ?? Number.NaN;
}

/** CPU µs a request. */
export function cpuUs({ cpuS, completed }: Pick<Block, 'cpuS' | 'completed'>): number {
  return (cpuS * 1e6) / Math.max(1, completed);
}

function cpuOf(blocks: readonly Block[]): number {
  return sum(blocks.map(cpuUs));
}

function median(values: readonly number[]): number {
  return quantile(values, 0.5) ?? Number.NaN;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
