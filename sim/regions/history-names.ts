// What clients of a random history say of their conversations beside the text: ids, one of them for everything, and hints,
// such as routers have given, old ones, other tenants', and forged ones, for any region there is.

import { PlacementHints } from '../../shared/lib/placement-hint.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import type { ConversationKeys } from '../../router/global/events.ts';
import { REGIONS, TENANTS, type Dice } from './history-fleet.ts';

/** ms since 1970. */
export const WALL_MS = 1_000_000_000;

/** Readable. */
export const HISTORY_KEYS: ConversationKeys = {
  generations: 1,
  keyOf: (tenant, { hashLow, offset }) => `${tenant}/${hashLow}@${offset}`,
  keyOfId: ({ tenant, model, id }) => `${tenant}/${model}#${id}`,
};
export const HISTORY_HINTS = new PlacementHints('a secret of the history');
const FORGERS = new PlacementHints('a secret of somebody else');
/** Under the first come more requests than one conversation has. */
const IDS = ['all', 'all', 'all', 'all', 'one', 'two', 'three'] as const;

type Names = Pick<RouteRequest, 'conversationId' | 'hint'>;

/** Mostly nothing. */
export function someNames(
  dice: Dice,
  { tenant, model, prompts }: Pick<RouteRequest, 'tenant' | 'model' | 'prompts'>,
): Names {
  const conversationId = dice.chance(0.4) ? dice.any(IDS) : undefined;
  const named = conversationId === undefined ? {} : { conversationId };
  const roll = dice.next();
  if (roll > 0.3) return named;
  if (roll > 0.25) return { ...named, hint: dice.any(['1', '', 'h1.e30.x', 'h1..', 'x']) };
  const end = prompts[0]?.turnEnds.at(-1);
  const whose = dice.chance(0.8) ? tenant : dice.any(TENANTS);
  const placement = {
    turnKey: end !== undefined && dice.chance(0.7) ? HISTORY_KEYS.keyOf(whose, end) : null,
    idKey: dice.chance(0.5)
      ? HISTORY_KEYS.keyOfId({ tenant: whose, model, id: conversationId ?? 'one' })
      : null,
    region: dice.any([...REGIONS, 'nowhere']) as RegionId,
    tokens: dice.chance(0.05) ? 1e18 : 900,
    atMs: WALL_MS - Math.floor((dice.next() - 0.1) * 5_000_000),
    sinceMs: WALL_MS - Math.floor(dice.next() * 1e9),
    movedMs: dice.chance(0.5) ? null : WALL_MS - Math.floor(dice.next() * 20_000),
  };
  return { ...named, hint: (dice.chance(0.9) ? HISTORY_HINTS : FORGERS).sign(placement, whose) };
}
