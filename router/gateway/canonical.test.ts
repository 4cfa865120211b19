import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { createChainHasher } from '../../shared/lib/chain-hash.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import { Canonicaliser, type JsonObject } from './canonical.ts';

let canonicaliser: Canonicaliser;
beforeAll(async () => {
  canonicaliser = new Canonicaliser(await createChainHasher());
});

const SEED = { saltGroup: 'default', lora: null };

function chat(messages: readonly JsonObject[], body: JsonObject = {}): PromptChain {
  return canonicaliser.chat({ model: 'm', messages, ...body }, messages, SEED);
}
function key(end: { hashLow: number; hashHigh: number }): string {
  return `${end.hashLow}:${end.hashHigh}`;
}
function shared(a: PromptChain, b: PromptChain): number {
  let i = 0;
  while (i < a.hashes.length && a.hashes[i] === b.hashes[i]) i += 1;
  return Math.floor(i / 2);
}

const text = fc.string({ unit: 'grapheme', maxLength: 1_500 });
const user = text.map((content) => ({ role: 'user', content }));
const assistant = text.map((content) => ({ role: 'assistant', content }));
const turns = fc.array(fc.tuple(user, assistant), { minLength: 1, maxLength: 4 });
const system = fc.option(
  text.map((content) => ({ role: 'system', content })),
  { nil: undefined },
);
const LONG = 'All work and no play makes a dull prompt. '.repeat(60);

describe('a conversation', () => {
  test('extends the chain of its earlier turns, whose ends stand before assistant messages', () => {
    fc.assert(
      fc.property(system, turns, user, (first, pairs, last) => {
        const head = first === undefined ? [] : [first];
        const whole = chat([...head, ...pairs.flat(), last]);
        pairs.forEach((pair, n) => {
          const earlier = chat([...head, ...pairs.slice(0, n).flat(), pair[0]]);
          expect(whole.turnEnds[n]).toEqual(earlier.end);
          expect(shared(earlier, whole)).toBe(earlier.hashes.length / 2);
        });
        expect(whole.turnEnds).toHaveLength(pairs.length);
      }),
    );
  });

  test('changed anywhere ends differently', () => {
    fc.assert(
      fc.property(turns, user, fc.nat(), (pairs, last, pick) => {
        const messages = [...pairs.flat(), last];
        const at = pick % messages.length;
        const changed = messages.map((m, i) => (i === at ? { ...m, content: `${m.content}!` } : m));
        expect(key(chat(changed).end)).not.toBe(key(chat(messages).end));
      }),
    );
  });

  test('two messages that differ at their end share the chunks before it', () => {
    const a = chat([{ role: 'user', content: `${LONG} one?` }]);
    const b = chat([{ role: 'user', content: `${LONG} two, or more?` }]);
    expect(shared(a, b)).toBe(Math.floor(LONG.length / 512));
  });

  test('permuted messages share nothing but what stands before the first of them', () => {
    const x = { role: 'user', content: `x${LONG}` };
    const y = { role: 'user', content: `y${LONG}` };
    expect(shared(chat([x, y]), chat([y, x]))).toBe(0);
  });
});

describe('what a template sees', () => {
  const messages = [{ role: 'user', content: LONG }];
  const tool = { type: 'function', function: { name: 'f', parameters: {} } };
  test.each<[string, JsonObject]>([
    ['tools', { tools: [tool] }],
    ['chat_template_kwargs', { chat_template_kwargs: { enable_thinking: false } }],
    ['documents', { documents: [{ text: 'd' }] }],
    ['chat_template', { chat_template: '{{ messages }}' }],
    ['reasoning_effort', { reasoning_effort: 'low' }],
    ['truncation', { truncate_prompt_tokens: 100 }],
    ['tools switched off', { tool_choice: 'none' }],
  ])('%s separates from the first chunk on', (_name, body) => {
    expect(shared(chat(messages), chat(messages, body))).toBe(0);
  });

  test('absent, null and no tools are the same', () => {
    const plain = key(chat(messages).end);
    expect(key(chat(messages, { tools: null }).end)).toBe(plain);
    expect(key(chat(messages, { tools: [] }).end)).toBe(plain);
    expect(key(chat(messages, { temperature: 1, seed: 4 }).end)).toBe(plain);
  });

  test('a final message to be continued shares its prefix and ends differently', () => {
    const plain = chat(messages);
    const continued = chat(messages, { continue_final_message: true });
    expect(shared(plain, continued)).toBe(plain.hashes.length / 2);
    expect(key(continued.end)).not.toBe(key(plain.end));
  });

  test('a string and its only text part are the same prompt', () => {
    const parts = [{ role: 'user', content: [{ type: 'text', text: LONG }] }];
    expect(key(chat(parts).end)).toBe(key(chat(messages).end));
  });

  test('role, name and tool calls count', () => {
    const ends = [
      [{ role: 'user', content: 'a' }],
      [{ role: 'system', content: 'a' }],
      [{ role: 'user', content: 'a', name: 'bob' }],
      [{ role: 'user', content: 'a', tool_calls: [{ id: '1' }] }],
      [
        { role: 'user', content: 'a' },
        { role: 'user', content: '' },
      ],
    ].map((each) => key(chat(each).end));
    expect(new Set(ends).size).toBe(ends.length);
  });

  test('text cannot forge a frame', () => {
    const forged = Buffer.from([0xff, 0xfd, 0xf9]).toString('latin1');
    const two = [
      { role: 'user', content: 'a' },
      { role: 'user', content: 'b' },
    ];
    const one = [{ role: 'user', content: `a${forged}user${forged}b` }];
    expect(key(chat(one).end)).not.toBe(key(chat(two).end));
  });
});

describe('parts that are not text', () => {
  const image = (url: string) => ({ type: 'image_url', image_url: { url } });
  const withParts = (...content: JsonObject[]) => chat([{ role: 'user', content }]);

  test('count by kind and not by bytes', () => {
    const plain = withParts({ type: 'text', text: LONG });
    const chain = withParts(
      { type: 'text', text: LONG },
      image(`data:image/png;base64,${'A'.repeat(100_000)}`),
      { type: 'input_audio', input_audio: { data: 'x' } },
      { type: 'mystery', x: 1 },
    );
    expect(chain.parts).toEqual({ image: 1, audio: 1, other: 1 });
    expect(chain.bytes).toBe(plain.bytes);
  });

  test('are told apart by their content, also far inside', () => {
    const long = 'A'.repeat(100_000);
    const ends = [image(`${long}a${long}`), image(`${long}b${long}`), image(long)].map((part) =>
      key(withParts(part).end),
    );
    expect(new Set(ends).size).toBe(3);
  });
});

describe('completions', () => {
  const completion = (prompt: string | number[]) => canonicaliser.completion(prompt, {}, SEED);

  test('a longer text extends a shorter one', () => {
    fc.assert(
      fc.property(text, text, (a, b) => {
        const short = completion(a);
        const long = completion(a + b);
        expect(shared(short, long)).toBe(short.hashes.length / 2);
      }),
    );
  });

  test('token ids have a key space of their own and an exact count', () => {
    const chain = completion(Array.from({ length: 300 }, (_, i) => i));
    expect(chain).toMatchObject({ keySpace: 'ids/1', tokenIds: 300, bytes: 1_200 });
    expect(chain.hashes.length).toBe(4);
  });

  test('a completion never matches a chat of the same text', () => {
    expect(shared(completion(LONG), chat([{ role: 'user', content: LONG }]))).toBe(0);
  });
});
