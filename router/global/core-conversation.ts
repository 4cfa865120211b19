// Where the conversation of a request lives, as far as is known. Nothing is changed here.
//
//   text    its last turn's end is known: that is where its cache is, whatever else is said
//   else    the newest of what is known by an earlier end of a turn, by its client's id, and by a hint that names either
//   id      where the text says nothing (a client that edits or condenses its history, a prompt without turns). It counts
//           while it is used as one conversation (`turn-pace.ts`), and as long as it has proved to be one: the last answer
//           under it found most of its history in the cache. What shares an id and nothing else is new each time, and goes
//           abroad on credit alone
//   hint    what another global router remembered, signed; good for the conversation that it was given for and no other
//
// What is found is used where the filter lets it: no id and no hint makes a region eligible.

import type { RegionId } from '../../shared/model/ids.ts';
import { HINT_REFUSALS, type Placement } from '../../shared/lib/placement-hint.ts';
import type { ConversationSight } from '../../shared/model/global-decision.ts';
import type { PromptChain, TurnEnd } from '../../shared/model/prompt.ts';
import { newer, TURNS_LOOKED_UP, type Dwelling } from '../policy/affinity.ts';
import type { RouteRequest } from '../policy/request-events.ts';
import type { GlobalState, RequestState } from './core-state.ts';

/** By what it was found. */
export type KnownBy = Extract<ConversationSight, 'text' | 'id' | 'hint'>;

export type Conversation =
  /** It has no earlier turn, or none that would be one. */
  | { readonly kind: 'new' }
  | {
      readonly kind: 'lives';
      readonly dwelling: Dwelling;
      readonly by: KnownBy;
    }
  /** Nobody knows where it lives, so it lives at home. */
  | { readonly kind: 'unknown' }
  /** It takes nothing of an engine's time: there is no queue to keep it out of. */
  | { readonly kind: 'none' };

/** What came of a hint. `other_conversation`: neither its text nor its id is that of the request. */
export const HINT_RESULTS = ['good', ...HINT_REFUSALS, 'other_conversation'] as const;
export type HintResult = (typeof HINT_RESULTS)[number];

/** What a request says of its conversation beside its text. Made out once. */
export interface Named {
  /** Its id by each secret, the one that makes keys first; none: it has no id, or more come under it than one has. */
  readonly idKeys: readonly string[];
  /** By which its id's requests are counted; null: it has none. */
  readonly paceKey: string | null;
  /** More requests come under its id than one conversation has. */
  readonly crowded: boolean;
  /** Null: it brought none. */
  readonly hint: HintResult | null;
  /** What a good one says. */
  readonly placement: Placement | null;
}

export interface Found {
  readonly conversation: Conversation;
  /** Where its id says that it lives, heeded or not; null: its text says it, or its id says nothing. */
  readonly byId: Dwelling | null;
}

const NEW: Found = { conversation: { kind: 'new' }, byId: null };
const UNKNOWN: Found = { conversation: { kind: 'unknown' }, byId: null };
const NONE: Found = { conversation: { kind: 'none' }, byId: null };
const UNNAMED: Named = {
  idKeys: [],
  paceKey: null,
  crowded: false,
  hint: null,
  placement: null,
};

/** The one conversation of a request; null where it has none. */
export function chainOf(asked: RouteRequest): PromptChain | null {
  if ((asked.work ?? 'generation') !== 'generation' || asked.prompts.length !== 1) return null;
  return asked.prompts[0] ?? null;
}

export function conversationOf(state: GlobalState, request: RequestState): Found {
  const asked = request.request;
  if (asked.work === 'light') return NONE;
  const chain = chainOf(asked);
  if (chain === null) return NEW;
  const named = namedOf(state, request, chain);
  const text = byText(state, asked.tenant, { ends: chain.turnEnds, placement: named.placement });
  const id = byId(state, named);
  if (text !== null && text.isLast) return livesBy(text, id?.dwelling ?? null);
  const isHeeded = id?.dwelling.vouched === true;
  const found = isHeeded && (text === null || id.dwelling.atMs > text.dwelling.atMs) ? id : text;
  if (found !== null) return livesBy(found, id?.dwelling ?? null);
  const share = state.matched.of(asked.tenant);
  const isNew = chain.turnEnds.length === 0 || share < state.settings.affinityMatchedRatio;
  if (id !== null) return { ...(isNew ? NEW : UNKNOWN), byId: id.dwelling };
  return isNew ? NEW : UNKNOWN;
}

/**
 * A point of a conversation as this router remembers it. It holds the running hash and never leaves the process: what others
 * are told of it goes under a key without content, which takes ten times as long to make.
 */
export function nameOf(tenant: string, { offset, hashLow, hashHigh }: TurnEnd): string {
  return `${offset}.${hashLow}.${hashHigh}.${tenant}`;
}

/** The key by which its id is remembered; null: it has none that counts. */
export function idKeyOf({ named }: RequestState): string | null {
  return named?.idKeys[0] ?? null;
}

interface Trace {
  readonly dwelling: Dwelling;
  readonly by: KnownBy;
  /** Its last turn: nothing newer can be known. */
  readonly isLast: boolean;
}

function livesBy({ dwelling, by }: Trace, byId: Dwelling | null): Found {
  return { conversation: { kind: 'lives', dwelling, by }, byId };
}

function byText(
  state: GlobalState,
  tenant: string,
  { ends, placement }: { ends: readonly TurnEnd[]; placement: Placement | null },
): Trace | null {
  const last = ends.length - 1;
  for (let k = last; k >= 0 && k > last - TURNS_LOOKED_UP; k -= 1) {
    const trace = atEnd(state, tenant, { end: ends[k] as TurnEnd, placement, isLast: k === last });
    if (trace !== null) return trace;
  }
  return null;
}

function atEnd(
  state: GlobalState,
  tenant: string,
  at: { readonly end: TurnEnd; readonly placement: Placement | null; readonly isLast: boolean },
): Trace | null {
  const { end, placement, isLast } = at;
  const { memory, settings, nowMs } = state;
  const own = memory.own(nameOf(tenant, end), settings, nowMs);
  const told = toldAt(state, tenant, { end, placement });
  const known = newer(own, told.away);
  const newest = newer(known, told.hinted);
  if (newest === null) return null;
  return { dwelling: newest, by: newest === known ? 'text' : 'hint', isLast };
}

interface ToldAt {
  readonly away: Dwelling | null;
  readonly hinted: Dwelling | null;
}

const UNTOLD: ToldAt = { away: null, hinted: null };

/** What others say of it: under a key without content, which is made only where anybody has said anything. */
function toldAt(
  state: GlobalState,
  tenant: string,
  { end, placement }: { readonly end: TurnEnd; readonly placement: Placement | null },
): ToldAt {
  const { memory, settings, nowMs, deps } = state;
  if (placement === null && memory.sizes.away === 0) return UNTOLD;
  const { keys } = deps;
  for (let generation = 0; generation < keys.generations; generation += 1) {
    const key = keys.keyOf(tenant, end, generation);
    const away = memory.away(key, settings, nowMs);
    const hinted = placement?.turnKey === key ? dwellingOf(state, placement) : null;
    if (away !== null || hinted !== null) return { away, hinted };
  }
  return UNTOLD;
}

function byId(state: GlobalState, { idKeys, placement }: Named): Trace | null {
  for (const key of idKeys) {
    const dwelling = state.memory.find(key, state.settings, state.nowMs);
    const hinted = placement?.idKey === key ? dwellingOf(state, placement) : null;
    const newest = newer(dwelling, hinted);
    if (newest === null) continue;
    const by = newest === dwelling ? 'id' : 'hint';
    return { dwelling: newest, by, isLast: false };
  }
  return null;
}

/** A hint's times are of another clock: made local as ages. */
function dwellingOf(state: GlobalState, placement: Placement): Dwelling {
  const { region, tokens, atMs, sinceMs, movedMs } = placement;
  const wallMs = state.deps.wallMs();
  const local = (ms: number): number => state.nowMs - Math.max(0, wallMs - ms);
  return {
    ...{ region: region as RegionId, tokens, atMs: local(atMs), sinceMs: local(sinceMs) },
    movedMs: movedMs === null ? null : local(movedMs),
    // An id that had not proved itself is in no hint.
    vouched: true,
  };
}

/** What a request says beside its text; looked at where it says anything, and once. */
function namedOf(state: GlobalState, request: RequestState, chain: PromptChain): Named {
  request.named ??= readNamed(state, request, chain);
  return request.named;
}

function readNamed(state: GlobalState, request: RequestState, chain: PromptChain): Named {
  const asked = request.request;
  const { conversationId: id, hint: token, tenant } = asked;
  const { model } = request.demanded;
  if (id === undefined && token === undefined) return UNNAMED;
  const { keys } = state.deps;
  const all =
    id === undefined
      ? []
      : Array.from({ length: keys.generations }, (_, generation) =>
          keys.keyOfId({ tenant, model, id }, generation),
        );
  const paceKey = all[0] ?? null;
  const crowded = paceKey !== null && state.pace.isCrowded(paceKey, state.nowMs);
  const idKeys = crowded ? [] : all;
  const { hint, placement } = readHint(state, asked, { chain, idKeys, token });
  return { idKeys, paceKey, crowded, hint, placement };
}

function readHint(
  state: GlobalState,
  asked: RouteRequest,
  of: {
    readonly chain: PromptChain;
    readonly idKeys: readonly string[];
    readonly token: string | undefined;
  },
): Pick<Named, 'hint' | 'placement'> {
  const { chain, idKeys, token } = of;
  if (token === undefined || token === ASKS_FOR_HINT) return { hint: null, placement: null };
  const { deps, settings } = state;
  const at = { wallMs: deps.wallMs(), lifeMs: settings.affinityLifeMs };
  const verdict = deps.hints.open(token, asked.tenant, at);
  if (verdict.kind === 'refused') return { hint: verdict.why, placement: null };
  const { placement } = verdict;
  const isOurs = names(state, placement, { tenant: asked.tenant, chain, idKeys });
  return isOurs ? { hint: 'good', placement } : { hint: 'other_conversation', placement: null };
}

/** What a client sends that has no hint yet, and wants one. */
export const ASKS_FOR_HINT = '1';

/** Whether it is of this conversation: by one of its last turns, or by its id. */
function names(
  state: GlobalState,
  { turnKey, idKey }: Placement,
  of: { readonly tenant: string; readonly chain: PromptChain; readonly idKeys: readonly string[] },
): boolean {
  if (idKey !== null && of.idKeys.includes(idKey)) return true;
  if (turnKey === null) return false;
  const { keys } = state.deps;
  const generations = Array.from({ length: keys.generations }, (_, generation) => generation);
  return of.chain.turnEnds
    .slice(-TURNS_LOOKED_UP)
    .some((end) => generations.some((each) => keys.keyOf(of.tenant, end, each) === turnKey));
}
