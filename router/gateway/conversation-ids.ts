// What a client calls its conversation, and the hint that it brings: read from headers and members that the configuration
// names, in its order. None of it is believed beyond that: an id says which requests belong together, and a hint counts by
// its signature.

import type { IncomingHttpHeaders } from 'node:http';
import { MAX_HINT_LENGTH } from '../../shared/lib/placement-hint.ts';
import {
  CONVERSATION_ID_MAX,
  type ConversationIdSources,
} from '../../shared/model/conversation-ids.ts';
import type { JsonObject } from './canonical.ts';

export const HINT_HEADER = 'x-spillway-hint';

export interface ConversationId {
  /** Null: there is none that can be used. */
  readonly id: string | null;
  /** One was left out for its length. */
  readonly tooLong: boolean;
}

const NONE: ConversationId = { id: null, tooLong: false };

/** `inBody`: as `idInBody` has found it. */
export function conversationIdOf(
  { headers: names }: ConversationIdSources,
  headers: IncomingHttpHeaders,
  inBody: ConversationId,
): ConversationId {
  let tooLong = false;
  for (const name of names) {
    const value = headers[name];
    if (typeof value !== 'string' || value === '') continue;
    if (value.length <= CONVERSATION_ID_MAX) return { id: value, tooLong };
    tooLong = true;
  }
  return tooLong ? { id: inBody.id, tooLong } : inBody;
}

export function idInBody(
  { members }: Pick<ConversationIdSources, 'members'>,
  body: JsonObject,
): ConversationId {
  let tooLong = false;
  for (const member of members) {
    const id = textOf(valueAt(body, member));
    if (id === null) continue;
    if (id.length <= CONVERSATION_ID_MAX) return { id, tooLong };
    tooLong = true;
  }
  return tooLong ? { id: null, tooLong } : NONE;
}

/** The hint that came, or the wish for one; null: neither. A longer one than any of ours is kept no longer than can be told. */
export function hintOf(headers: IncomingHttpHeaders): string | null {
  const value = headers[HINT_HEADER];
  if (typeof value !== 'string' || value === '') return null;
  return value.slice(0, MAX_HINT_LENGTH + 1);
}

/** `metadata.session_id`: of an object one level below. */
function valueAt(body: JsonObject, member: string): unknown {
  const dot = member.indexOf('.');
  if (dot < 0) return own(body, member);
  return own(own(body, member.slice(0, dot)), member.slice(dot + 1));
}

function own(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  return (value as JsonObject)[name];
}

function textOf(value: unknown): string | null {
  if (typeof value === 'string') return value === '' ? null : value;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return String(value);
  const id = own(value, 'id');
  return typeof id === 'string' && id !== '' ? id : null;
}
