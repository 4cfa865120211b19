import { describe, expect, test } from 'vitest';
import { differenceOf, readEvents, readJson, type Told } from './reading.ts';

const told = (): Told => ({ text: '', ended: false, error: null });

function event(content: string, finish: string | null = null): string {
  return `data: ${JSON.stringify({ choices: [{ delta: { content }, finish_reason: finish }] })}\n\n`;
}

async function streamed(...pieces: string[]): Promise<Told> {
  const into = told();
  async function* body(): AsyncGenerator<string> {
    yield* pieces;
  }
  await readEvents(body(), into);
  return into;
}

const WHOLE = event('sea ') + event('sun ', 'length') + 'data: [DONE]\n\n';

describe('a stream is right', () => {
  test('wherever it is cut into pieces', async () => {
    for (let at = 0; at <= WHOLE.length; at += 1) {
      const read = await streamed(WHOLE.slice(0, at), WHOLE.slice(at));
      expect(differenceOf(read, 'sea sun ')).toBeNull();
    }
  });

  test.each([
    ['ends early, cleanly', event('sea '), 'sea '],
    ['has all text and no [DONE]', event('sea ', 'length'), 'sea '],
    ['is said to be done without a finish reason', `${event('sea ')}data: [DONE]\n\n`, 'sea '],
    ['stops by itself, which nobody asked for', `${event('sea ', 'stop')}data: [DONE]\n\n`, 'sea '],
    ['says something else', WHOLE, 'sea sky '],
    ['says a token twice', WHOLE, 'sea '],
    ['lacks one', WHOLE, 'sea sun and '],
  ])('not where it %s', async (_, text, expected) => {
    expect(differenceOf(await streamed(text), expected)).not.toBeNull();
  });

  test('not where an error event comes, which is kept', async () => {
    const read = await streamed(event('sea '), 'data: {"error":{"code":"replica_lost"}}\n\n');
    expect(read).toMatchObject({ text: 'sea ', ended: false, error: 'error event replica_lost' });
  });
});

describe('JSON is right', () => {
  const json = (content: string, finish: string) =>
    JSON.stringify({ choices: [{ message: { content }, finish_reason: finish }] });

  test.each([
    ['whole', json('sea ', 'length'), true],
    ['of another text', json('sky ', 'length'), false],
    ['ended otherwise', json('sea ', 'stop'), false],
  ])('%s: %s → %s', (_, text, right) => {
    const into = told();
    readJson(text, into);
    expect(differenceOf(into, 'sea ') === null).toBe(right);
  });

  test('not where it is cut', () => {
    expect(() => readJson(json('sea ', 'length').slice(0, -3), told())).toThrow();
  });
});
