import { describe, expect, test } from 'vitest';
import { FleetError } from '../../shared/errors.ts';
import { MAX_CHAINS } from '../../shared/protocol/limits.ts';
import { poolingPrompts } from './pooling-prompts.ts';

type Route = Parameters<typeof poolingPrompts>[0];
const sizes = (route: Route, body: object) =>
  poolingPrompts(route, body as Readonly<Record<string, unknown>>).map(
    ({ bytes, tokenIds, parts }) => [bytes, tokenIds, parts['other'] ?? 0],
  );

describe('the prompts of', () => {
  test.each<[string, object, unknown]>([
    ['a text', { input: 'grüß' }, [[6, null, 0]]],
    [
      'texts',
      { input: ['a', 'bc', ''] },
      [
        [1, null, 0],
        [2, null, 0],
        [0, null, 0],
      ],
    ],
    ['token ids', { input: [1, 2, 3] }, [[12, 3, 0]]],
    [
      'lists of token ids',
      { input: [[1], [2, 3]] },
      [
        [4, 1, 0],
        [8, 2, 0],
      ],
    ],
    [
      'parts',
      { input: [{ text: 'abc' }, { image: 'https://x' }] },
      [
        [3, null, 0],
        [0, null, 1],
      ],
    ],
    [
      'content',
      { input: [{ content: [{ type: 'text', text: 'abc' }, { type: 'image_url' }] }] },
      [[3, null, 1]],
    ],
    [
      'messages',
      {
        messages: [
          { role: 'user', content: 'abc' },
          { role: 'user', content: [{ text: 'de' }] },
        ],
      },
      [[5, null, 0]],
    ],
    ['nothing', { input: [] }, []],
  ])('embeddings of %s are one an input', (_name, body, expected) => {
    expect(sizes('embeddings', body)).toEqual(expected);
  });

  test.each<[string, Route, object, unknown]>([
    [
      'a rerank',
      'rerank',
      { query: 'ab', documents: ['c', 'def', { text: 'gh' }] },
      [
        [3, null, 0],
        [5, null, 0],
        [4, null, 0],
      ],
    ],
    [
      'a score of one with many',
      'score',
      { text_1: 'ab', text_2: ['c', 'def'] },
      [
        [3, null, 0],
        [5, null, 0],
      ],
    ],
    [
      'a score of many with many',
      'score',
      { data_1: ['a', 'bb'], data_2: ['c', 'dd'] },
      [
        [2, null, 0],
        [4, null, 0],
      ],
    ],
    ['a score of queries with items', 'score', { queries: 'a', items: [[1, 2]] }, [[9, null, 0]]],
    ['a score of token ids', 'score', { queries: [[1]], documents: [[2, 3]] }, [[12, 3, 0]]],
    ['a rerank of no document', 'rerank', { query: 'a', documents: [] }, []],
  ])('%s are its pairs', (_name, route, body, expected) => {
    expect(sizes(route, body)).toEqual(expected);
  });

  test('an input are no chain: they neither find a prefix nor leave one', () => {
    const [prompt] = poolingPrompts('embeddings', { input: 'x'.repeat(5_000) });
    expect(prompt?.hashes).toHaveLength(0);
    expect(prompt?.turnEnds).toEqual([]);
  });
});

describe('what cannot be placed', () => {
  test.each<[Route, object, string]>([
    ['embeddings', {}, 'input'],
    ['embeddings', { input: null }, 'input'],
    ['embeddings', { input: 7 }, 'input'],
    ['embeddings', { input: ['a', true] }, 'input'],
    ['rerank', { documents: ['a'] }, 'query'],
    ['rerank', { query: 'a' }, 'documents'],
    ['rerank', { query: 5, documents: ['a'] }, 'query'],
    ['score', { text_1: 'a' }, 'text_2'],
    ['score', {}, 'text_1'],
  ])('%s of %j is refused by name', (route, body, param) => {
    const run = () => poolingPrompts(route, body as Readonly<Record<string, unknown>>);
    expect(run).toThrow(FleetError);
    expect(run).toThrow(expect.objectContaining({ code: 'invalid_request', param }));
  });

  test('more elements than are weighed are refused by a limit', () => {
    const input = Array.from({ length: MAX_CHAINS + 1 }, () => 'a');
    expect(() => poolingPrompts('embeddings', { input })).toThrow(
      expect.objectContaining({ limit: 'prompts' }),
    );
    expect(poolingPrompts('embeddings', { input: input.slice(1) })).toHaveLength(MAX_CHAINS);
  });
});
