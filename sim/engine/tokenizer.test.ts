import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { answerToken } from './answers.ts';
import {
  detokenize,
  END_TOKEN,
  PART_TOKENS,
  renderChat,
  tokenize,
  tokenText,
} from './tokenizer.ts';

const text = fc.string({ unit: 'grapheme', maxLength: 60 });

describe('tokenizer', () => {
  it('gives back the text it was given', () => {
    fc.assert(
      fc.property(text, (each) => {
        expect(detokenize(tokenize(each))).toBe(each);
      }),
    );
  });

  it('keeps all full tokens when text is extended', () => {
    fc.assert(
      fc.property(text, text, (start, more) => {
        const full = Math.floor(new TextEncoder().encode(start).length / 4);
        expect(tokenize(start + more).slice(0, full)).toEqual(tokenize(start).slice(0, full));
      }),
    );
  });

  it('says the same of one token alone', () => {
    fc.assert(
      fc.property(text, (each) => {
        for (const id of [...tokenize(each), END_TOKEN])
          expect(tokenText(id)).toBe(detokenize([id]));
      }),
    );
  });

  it('takes about four bytes a token', () => {
    expect(tokenize('a'.repeat(401))).toHaveLength(101);
  });
});

describe('chat template', () => {
  const user = (content: string) => ({
    role: 'user',
    pieces: [{ kind: 'text' as const, text: content }],
  });

  it("extends a turn's prompt and answer, token by token, in the next turn's prompt", () => {
    fc.assert(
      fc.property(
        text,
        text,
        fc.nat(1e6),
        fc.integer({ min: 1, max: 40 }),
        (first, second, key, length) => {
          const prompt = renderChat([user(first)], null);
          const answer = Array.from({ length }, (_, at) => answerToken(key, at));
          const assistant = {
            role: 'assistant',
            pieces: [{ kind: 'text' as const, text: detokenize(answer) }],
          };
          const next = renderChat([user(first), assistant, user(second)], null);
          expect(next.slice(0, prompt.length + length + 1)).toEqual([
            ...prompt,
            ...answer,
            END_TOKEN,
          ]);
        },
      ),
    );
  });

  it('puts tools before the messages and counts a part that is no text', () => {
    const plain = renderChat([user('hello')], null);
    const tools = renderChat([user('hello')], '[{"type":"function"}]');
    expect(tools.length).toBeGreaterThan(plain.length);
    const image = { role: 'user', pieces: [{ kind: 'part' as const, json: '{"image_url":"a"}' }] };
    expect(renderChat([image], null)).toHaveLength(
      renderChat([user('')], null).length + PART_TOKENS,
    );
  });

  it('takes tools of any size', () => {
    expect(renderChat([], JSON.stringify(['x'.repeat(2_000_000)])).length).toBeGreaterThan(500_000);
  });

  it('tells parts of different content apart', () => {
    const part = (json: string) =>
      renderChat([{ role: 'user', pieces: [{ kind: 'part', json }] }], null);
    expect(part('{"a":1}')).not.toEqual(part('{"a":2}'));
    expect(part('{"a":1}')).toEqual(part('{"a":1}'));
  });
});
