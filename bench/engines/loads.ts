// How much is asked of the two engines: from a load that leaves them idle at times to one that they cannot serve. Their KV
// caches (32,768 tokens each) hold all conversations of the first two; those of `small-kv` need about twice the room.

import type { LoadShape } from '../../test/engines/conversations.ts';

export interface Load {
  readonly name: string;
  readonly about: string;
  readonly shape: LoadShape;
}

const TURNS = 5;
const ANSWER_TOKENS = [32, 96] as const;

export const LOADS: readonly Load[] = [
  load('moderate', 14, 0.45),
  load('near-capacity', 26, 0.9),
  load('small-kv', 45, 1.6),
  load('over-capacity', 40, 2.4),
];

/** What `--quick` measures: the load at which routers differ most. */
export const QUICK = { load: 'small-kv', seeds: 3 } as const;
export const SEEDS = 8;

function load(name: string, conversations: number, perSecond: number): Load {
  const about = `${conversations} conversations of ${TURNS} turns, ${perSecond} new a second`;
  return {
    name,
    about,
    shape: { conversations, perSecond, turns: TURNS, answerTokens: ANSWER_TOKENS },
  };
}
