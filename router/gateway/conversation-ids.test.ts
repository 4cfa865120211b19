import { describe, expect, test } from 'vitest';
import { CONVERSATION_ID_MAX, CONVERSATION_IDS } from '../../shared/model/conversation-ids.ts';
import { conversationIdOf, hintOf, idInBody } from './conversation-ids.ts';

function idOf(headers: Record<string, string>, body: Record<string, unknown> = {}) {
  return conversationIdOf(CONVERSATION_IDS, headers, idInBody(CONVERSATION_IDS, body));
}

describe('an id of a conversation', () => {
  test.each([
    ['x-spillway-conversation-id', 'own'],
    ['x-session-id', 'ses_01'],
    ['x-claude-code-session-id', '3f6c'],
    ['session_id', 'codex'],
    ['x-session-affinity', 'open'],
    ['x-litellm-session-id', 'lite'],
  ])('is read from the header %s', (name, value) => {
    expect(idOf({ [name]: value }).id).toBe(value);
  });

  test.each([
    [{ prompt_cache_key: 'k' }, 'k'],
    [{ conversation: 'conv_1' }, 'conv_1'],
    [{ conversation: { id: 'conv_1' } }, 'conv_1'],
    [{ metadata: { session_id: 's' } }, 's'],
    [{ metadata: { conversation_id: 'c', session_id: 's' } }, 'c'],
    [{ session_id: 17 }, '17'],
    [{ conversation: 'c', prompt_cache_key: 'k' }, 'c'],
  ])('is read from the body %j', (body, id) => {
    expect(idOf({}, body).id).toBe(id);
  });

  test('of a header goes before one of the body, and one header before another', () => {
    expect(idOf({ 'x-session-id': 'h' }, { prompt_cache_key: 'k' }).id).toBe('h');
    expect(idOf({ 'x-dynamo-session-id': 'd', 'x-session-id': 'h' }).id).toBe('h');
  });

  test.each([
    {},
    { user: 'anna', safety_identifier: 'anna' },
    { conversation: '', prompt_cache_key: null, session_id: 1.5 },
    { conversation: { id: 7 }, metadata: 'session_id' },
    { metadata: ['session_id'] },
    { conversation: { __proto__: { id: 'x' } } },
  ])('is none of %j: nobody, or a person', (body) => {
    expect(idOf({ 'x-session-id': '' }, body).id).toBeNull();
  });

  test('that is too long is none, and the next one counts', () => {
    const long = 'x'.repeat(CONVERSATION_ID_MAX + 1);
    expect(idOf({ 'x-session-id': long })).toEqual({ id: null, tooLong: true });
    const both = idOf({ 'x-session-id': long }, { conversation: long, session_id: 's' });
    expect(both).toEqual({ id: 's', tooLong: true });
    expect(idOf({ 'x-session-id': long.slice(1) })).toEqual({ id: long.slice(1), tooLong: false });
  });

  test('is read from what the configuration names and nothing else', () => {
    const sources = { headers: ['x-chat'], members: [] };
    const body = idInBody(sources, { prompt_cache_key: 'k' });
    expect(conversationIdOf(sources, { 'x-session-id': 's' }, body).id).toBeNull();
    expect(conversationIdOf(sources, { 'x-chat': 'c' }, body).id).toBe('c');
  });
});

test('a hint is taken as it came, and cut where it is longer than any of ours', () => {
  expect(hintOf({})).toBeNull();
  expect(hintOf({ 'x-spillway-hint': '1' })).toBe('1');
  expect(hintOf({ 'x-spillway-hint': 'h'.repeat(20_000) })).toHaveLength(1_025);
});
