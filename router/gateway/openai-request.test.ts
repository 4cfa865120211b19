// What the routing reads of a request, by route.

import { beforeAll, describe, expect, test } from 'vitest';
import { createChainHasher } from '../../shared/lib/chain-hash.ts';
import { API_ROUTES, apiRouteNamed, apiRouteOf, type ApiRoute } from './api-routes.ts';
import { Canonicaliser } from './canonical.ts';
import { engineBody, parseOpenAiRequest, type OpenAiRequest } from './openai-request.ts';

let canonicaliser: Canonicaliser;
beforeAll(async () => {
  canonicaliser = new Canonicaliser(await createChainHasher());
});

function parse(route: ApiRoute | null, body: object | string): OpenAiRequest {
  const text = typeof body === 'string' ? body : JSON.stringify({ model: 'm', ...body });
  const seedOf = () => ({ saltGroup: 't', lora: null });
  return parseOpenAiRequest(route, Buffer.from(text), {
    canonicaliser,
    jsonDepth: 16,
    idMembers: null,
    seedOf,
  });
}
const MESSAGES = [{ role: 'user', content: 'hello' }];

describe('a route', () => {
  test.each<[object, ApiRoute]>([
    [{ messages: MESSAGES, input: 'a' }, 'chat'],
    [{ input: 'a' }, 'embeddings'],
    [{ query: 'q', documents: ['d'] }, 'rerank'],
    [{ prompt: 'a' }, 'completions'],
    [{}, 'completions'],
  ])('is told by %j where nobody names it', (body, route) => {
    expect(parse(null, body).route).toBe(route);
  });

  test('has paths of its own, and no other name than these', () => {
    const paths = Object.values(API_ROUTES).flatMap((row) => [...row.paths]);
    expect(new Set(paths).size).toBe(paths.length);
    for (const route of Object.keys(API_ROUTES) as ApiRoute[]) {
      expect(API_ROUTES[route].paths.map(apiRouteOf)).toEqual(
        API_ROUTES[route].paths.map(() => route),
      );
      expect(apiRouteNamed(route)).toBe(route);
    }
    for (const name of ['constructor', '__proto__', 'chats', '']) {
      expect(apiRouteNamed(name)).toBeNull();
      expect(apiRouteOf(`/${name}`)).toBeNull();
    }
  });
});

describe('what is read', () => {
  test.each([0, 1, 2, 3])('of a long body is its text, wherever that is cut (%i)', (shift) => {
    const content = 'x'.repeat(shift) + '🙂é'.repeat(200_000);
    const messages = [{ role: 'user', content }];
    const seed = { saltGroup: 't', lora: null };
    const expected = canonicaliser.chat({ messages }, messages, seed);
    expect(parse('chat', { messages }).prompts).toEqual([expected]);
  });

  test.each([
    ['chat', { messages: MESSAGES, n: 4 }, 4],
    ['chat', { messages: MESSAGES }, 1],
    ['completions', { prompt: ['a', 'b'], n: 2 }, 2],
    ['completions', { prompt: 'a', n: 0 }, 1],
    ['completions', { prompt: 'a', n: 'many' }, 1],
    ['completions', { prompt: 'a', n: null }, 1],
    ['embeddings', { input: 'a', n: 4 }, 1],
  ] as const)('of the answers to each prompt (%#)', (route, body, answers) => {
    expect(parse(route, body).answers).toBe(answers);
  });

  test('of a prefill: no stream, no tokens to come, whatever it asks for', () => {
    const body = { input: 'a', stream: true, stream_options: 7, max_tokens: 'many' };
    expect(parse('embeddings', body)).toMatchObject({
      work: 'prefill',
      stream: false,
      maxTokens: 0,
    });
  });

  test.each<[ApiRoute, object, boolean]>([
    ['embeddings', { input: 'a' }, false],
    ['embeddings', { input: 'a', truncate_prompt_tokens: -1 }, true],
    ['rerank', { query: 'q', documents: ['d'], max_tokens_per_doc: 8 }, true],
    ['completions', { prompt: 'a', truncate_prompt_tokens: 9 }, true],
    ['completions', { prompt: 'a', truncate_prompt_tokens: null }, false],
  ])('whether the engine cuts what is too long: %s %j', (route, body, truncates) => {
    expect(parse(route, body).truncates).toBe(truncates);
  });

  test.each<[ApiRoute, string, string]>([
    ['embeddings', '{"model":"m","input":"a","input":"b"}', 'input'],
    ['rerank', '{"model":"m","query":"a","documents":[],"docum\\u0065nts":["b"]}', 'documents'],
    ['score', '{"model":"m","text_1":"a","text_2":"b","text_2":"c"}', 'text_2'],
    ['tokenize', '{"model":"m","prompt":"a","mod\\u0065l":"b"}', 'model'],
  ])('twice is refused: %s', (route, text, param) => {
    expect(() => parse(route, text)).toThrow(
      expect.objectContaining({ code: 'repeated_member', param }),
    );
  });

  test('needs a model on every route: there is nothing else to route by', () => {
    for (const route of Object.keys(API_ROUTES) as ApiRoute[]) {
      expect(() => parse(route, '{"prompt":"a","input":"a","tokens":[1]}')).toThrow(
        expect.objectContaining({ code: 'invalid_request', param: 'model' }),
      );
    }
  });
});

describe('what an engine is sent', () => {
  const splices = { engineModel: 'real', cacheSalt: 's', enginePriority: true };
  test.each<[ApiRoute, string, string]>([
    [
      'embeddings',
      '{"model":"m", "input":"a", "cache_salt":"own", "priority":3}',
      '{"model":"real", "input":"a", "cache_salt":"s", "priority":3}',
    ],
    [
      'rerank',
      '{"model":"m","query":"q","documents":["d"]}',
      '{"model":"real","query":"q","documents":["d"],"cache_salt":"s","priority":0}',
    ],
    ['tokenize', '{"model":"m","prompt":"a"}', '{"model":"real","prompt":"a"}'],
  ])('for %s is what came, but for the closed list', (route, from, to) => {
    expect(String(engineBody(parse(route, from), splices))).toBe(to);
  });

  test('as it came where the pool wants nothing written', () => {
    const text = '{"input": [1,2 ], "model":"m", "encoding_format" :"base64"}';
    const none = { engineModel: 'm', cacheSalt: null, enginePriority: false };
    expect(String(engineBody(parse('embeddings', text), none))).toBe(text);
  });
});
