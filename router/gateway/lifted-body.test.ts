// A large body, read piece by piece with its long texts lifted out, is understood as it would be read at once.

import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { FleetError } from '../../shared/errors.ts';
import { createChainHasher } from '../../shared/lib/chain-hash.ts';
import type { ApiRoute } from './api-routes.ts';
import { Canonicaliser } from './canonical.ts';
import { BodyLift, markOf } from './lifted-body.ts';
import {
  engineBody,
  isLifted,
  parseLifted,
  parseOpenAiRequest,
  type OpenAiRequest,
} from './openai-request.ts';

let canonicaliser: Canonicaliser;
beforeAll(async () => {
  canonicaliser = new Canonicaliser(await createChainHasher());
});

const MARK = markOf('0123456789abcdef0123456789abcdef');
const context = () => ({
  canonicaliser,
  jsonDepth: 7,
  idMembers: ['metadata.session_id', 'user'],
  seedOf: () => ({ saltGroup: 't', lora: null }),
});

/** What is understood, or what it is refused with. */
function outcome(understand: () => object): object {
  try {
    return understand();
  } catch (error) {
    if (!(error instanceof FleetError)) throw error;
    const { code, message, param } = error;
    return { code, message, param };
  }
}

/** Cut before each of these places, in order. */
function lifted(bytes: Buffer, cuts: readonly number[]): ReturnType<BodyLift['end']> {
  const lift = new BodyLift(MARK, cuts.length % 2 === 0 ? bytes.length : null);
  let from = 0;
  for (const to of [...cuts, bytes.length]) {
    lift.add(bytes.subarray(from, to));
    from = to;
  }
  return lift.end();
}

function inSteps(route: ApiRoute, bytes: Buffer, cuts: readonly number[] = []): object {
  return outcome(() => {
    const body = lifted(bytes, cuts);
    if (Buffer.isBuffer(body)) return parseOpenAiRequest(route, body, context());
    const steps = parseLifted(route, body, context());
    for (;;) {
      const { done, value } = steps.next();
      if (done === true) return value;
    }
  });
}

function atOnce(route: ApiRoute, bytes: Buffer): object {
  return outcome(() => parseOpenAiRequest(route, bytes, context()));
}

function liftedTexts(bytes: Buffer): number {
  const body = lifted(bytes, []);
  if (Buffer.isBuffer(body)) return 0;
  return body.texts.partsOf(body.skeleton.toString()).filter((part) => typeof part !== 'string')
    .length;
}

// ── bodies, in JSON as clients may write it ──────────────────────────────────────────────────────────────

const LONG = 700;
const SOME = { minLength: 1, maxLength: 5 };
/** A piece of a string's content as it is written: plain, escaped in every way, and what is no text. */
const written = fc.oneof(
  { weight: 6, arbitrary: fc.string({ unit: 'grapheme', maxLength: 30 }).map(contentOf) },
  fc.constantFrom(
    '\\n',
    '\\"',
    '\\\\',
    '\\/',
    '\\b\\f\\r\\t',
    '\\u0000',
    '\\u001F',
    '\\u00e9',
    '\\u000A',
  ),
  fc.constantFrom(
    '\\ud83d\\ude42',
    '\\uD83D',
    '\\ude42',
    '\\ud83d\\n',
    '\\ud83d\\ud83d\\ude42',
    '\\u2028',
  ),
  fc.constantFrom('🙂', 'é', '\u2028', '\u007f', '\u00ad', 'lifted-', '00000000'),
);
const content = fc.tuple(fc.array(written, { maxLength: 8 }), fc.nat(3)).map(([pieces, times]) => {
  const text = pieces.join('');
  const copies = times === 0 || text === '' ? 1 : Math.ceil((times * LONG) / text.length);
  return text.repeat(copies);
});
const text = content.map((inner) => `"${inner}"`);
const key = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.constantFrom('"name"', '"refusal"', '"text"', '"type"', '"7"', '"__proto__"'),
  },
  text,
);
const space = fc.constantFrom('', '', '', ' ', '\n\t ');
const scalar = fc.constantFrom('null', 'true', '1', '-0.50e2', '"user"', '[]', '{}');
const json = fc.letrec<{ value: string; object: string }>((tie) => ({
  object: fc
    .array(fc.tuple(key, space, tie('value')), { maxLength: 3 })
    .map(
      (members) =>
        `{${members.map(([name, gap, value]) => `${name}${gap}:${gap}${value}`).join(',')}}`,
    ),
  value: fc.oneof(
    { depthSize: 'small', maxDepth: 3 },
    scalar,
    text,
    fc.array(tie('value'), { maxLength: 3 }).map((items) => `[${items.join(', ')}]`),
    tie('object'),
  ),
}));
const part = fc.oneof(
  text.map((inner) => `{"type":"text","text":${inner}}`),
  text.map((inner) => `{"type":"image_url","image_url":{"url":${inner},"detail":"low"}}`),
  fc.tuple(text, text).map(([a, b]) => `{"type":"input_audio","a":${a},"x":[${b}]}`),
  text,
  json.value,
);
const message = fc
  .tuple(
    fc.oneof(fc.constantFrom('"user"', '"assistant"', '"tool"'), text),
    fc.oneof(
      text,
      fc.array(part, { maxLength: 3 }).map((parts) => `[${parts.join(',')}]`),
      json.value,
    ),
    fc.option(fc.tuple(key, json.value), { nil: null }),
  )
  .map(([role, inner, more]) => {
    const extra = more === null ? '' : `,${more[0]}:${more[1]}`;
    return `{"role":${role},"content":${inner}${extra}}`;
  });
const member = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.array(message, { maxLength: 4 }).map((all) => `"messages":[${all.join(',')}]`),
  },
  { weight: 2, arbitrary: text.map((inner) => `"prompt":${inner}`) },
  fc
    .array(fc.oneof({ weight: 9, arbitrary: text }, scalar), { maxLength: 3 })
    .map((all) => `"prompt":[${all.join(',')}]`),
  { weight: 2, arbitrary: json.object.map((tool) => `"tools":[${tool}]`) },
  json.value.map((value) => `"documents":${value}`),
  json.value.map((value) => `"chat_template_kwargs":${value}`),
  fc
    .tuple(fc.constantFrom('user', 'metadata', 'x', 'stream_options', 'tool_choice'), json.value)
    .map(([name, value]) => `"${name}":${value}`),
  fc.constantFrom(
    '"stream":true',
    '"n":2',
    '"max_tokens":7',
    '"mess\\u0061ges":[]',
    '"tool_choice":"none"',
  ),
);
/** Mostly such as may stand beside each other. */
const members = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.uniqueArray(member, { ...SOME, selector: (each) => each.split(':', 1)[0] }),
  },
  fc.array(member, SOME),
);
const body = fc.tuple(members, fc.boolean(), space).map(([some, behind, gap]) => {
  const model = `"model":${gap}"m"`;
  const all = behind ? [...some, model] : [model, ...some];
  return Buffer.from(`${gap}{${gap}${all.join(`${gap},${gap}`)}${gap}}${gap}`);
});
const route = fc.constantFrom<ApiRoute>('chat', 'completions', 'tokenize');
const shares = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 6 });

function contentOf(value: string): string {
  return JSON.stringify(value).slice(1, -1);
}
function cutsOf(bytes: Buffer, parts: readonly number[]): number[] {
  return parts.map((share) => Math.round(share * bytes.length)).toSorted((a, b) => a - b);
}

const FIRST = `{"model":"m","messages":[{"role":"user","content":"`;
const LAST = '"}]}';
const PLAIN = 'x'.repeat(LONG);

describe('a body in pieces', () => {
  test('is understood as it is at once, or refused with the same words', () => {
    fc.assert(
      fc.property(route, body, shares, (asked, bytes, parts) => {
        expect(inSteps(asked, bytes, cutsOf(bytes, parts))).toEqual(atOnce(asked, bytes));
      }),
      { numRuns: 600 },
    );
  });

  test('with a byte changed, too', () => {
    const change = fc.tuple(
      fc.double({ min: 0, max: 0.999, noNaN: true }),
      fc.oneof(fc.constantFrom(...Buffer.from('\0\n"\\{}[]:,u8')), fc.nat(255)),
    );
    fc.assert(
      fc.property(route, body, change, shares, (asked, before, [share, byte], parts) => {
        const bytes = Buffer.from(before);
        bytes[Math.floor(share * bytes.length)] = byte;
        expect(inSteps(asked, bytes, cutsOf(bytes, parts))).toEqual(atOnce(asked, bytes));
      }),
      { numRuns: 600 },
    );
  });

  test('is refused where one of its long texts is no JSON', () => {
    for (const wrong of ['\n', '\u0000', '\\x', '\\u12g4', '\\u']) {
      const bytes = Buffer.from(`${FIRST}${PLAIN}${wrong}${PLAIN}${LAST}`);
      expect(inSteps('chat', bytes, [400])).toMatchObject({ code: 'invalid_json' });
      expect(inSteps('chat', bytes, [400])).toEqual(atOnce('chat', bytes));
    }
    const latin1 = Buffer.from(`${FIRST}${PLAIN}é${LAST}`, 'latin1');
    expect(inSteps('chat', latin1)).toEqual(atOnce('chat', latin1));
  });

  test('is read alike whatever byte stands wherever in a word', () => {
    const around = ['x', 'é', '\u007f'];
    for (let byte = 0; byte < 256; byte += 1) {
      for (let shift = 0; shift < 4; shift += 1) {
        for (const next of around) {
          const bytes = Buffer.from(`${FIRST}${PLAIN}${'x'.repeat(shift)}${next}?${next}n${LAST}`);
          bytes[bytes.lastIndexOf('?')] = byte;
          expect(inSteps('chat', bytes)).toEqual(atOnce('chat', bytes));
        }
      }
    }
  });

  test('has the digests of its parts, also where a slice of one ends within a character', () => {
    for (const before of [16_300, 16_330, 32_700, 65_536]) {
      for (let shift = 0; shift < 64; shift += 1) {
        const url = `${'x'.repeat(before + shift)}🙂\\ud83d\\ude42${PLAIN}`;
        const bytes = Buffer.from(
          `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":"${url}"}]}]}`,
        );
        expect(inSteps('chat', bytes)).toEqual(atOnce('chat', bytes));
      }
    }
  });

  test('may be cut anywhere', () => {
    const inner = `${PLAIN}\\u00e9é🙂\\ud83d\\ude42\\n\\\\"`.slice(0, -1);
    const bytes = Buffer.from(
      `${FIRST}${inner}"},{"role":"assistant","content":[{"type":"image_url","image_url":"${inner}"}]}],"n":1}`,
    );
    const expected = atOnce('chat', bytes);
    expect(expected).toHaveProperty('prompts');
    for (let cut = 0; cut <= bytes.length; cut += 3) {
      expect(inSteps('chat', bytes, [cut])).toEqual(expected);
    }
    expect(inSteps('chat', bytes, [...bytes.keys()])).toEqual(expected);
  });
});

describe('what is lifted', () => {
  test.each<[string, string, number]>([
    ['a message', `${FIRST}${PLAIN}${LAST}`, 1],
    ['each long text of a prompt', `{"prompt":["${PLAIN}","a","${PLAIN}"],"model":"m"}`, 2],
    ['a part', `{"messages":[{"content":[{"image_url":{"url":"${PLAIN}"}}]}]}`, 1],
    ['no key', `{"messages":[{"${PLAIN}" :1,"a":{"${PLAIN}":2}}]}`, 0],
    ['no member with a meaning of its own', `{"model":"${PLAIN}","user":["${PLAIN}"]}`, 0],
    ['nothing behind the prompt', `{"messages":[],"x":"${PLAIN}"}`, 0],
    ['no short text', `${FIRST}${'x'.repeat(500)}${LAST}`, 0],
  ])('%s', (_, written, count) => {
    expect(liftedTexts(Buffer.from(written))).toBe(count);
  });

  test('leaves no more of a long prompt than its frame', () => {
    const body = lifted(Buffer.from(`${FIRST}${PLAIN.repeat(1_000)}${LAST}`), []);
    expect(Buffer.isBuffer(body) ? body.length : body.skeleton.length).toBeLessThan(128);
  });

  test('is not of inputs, whose length is all that counts, nor where a conversation is named by a prompt', () => {
    expect(isLifted('chat', null)).toBe(true);
    expect(isLifted('chat', ['user', 'metadata.messages'])).toBe(true);
    expect(isLifted('chat', ['messages'])).toBe(false);
    expect(isLifted('completions', ['documents.id'])).toBe(false);
    for (const route of ['embeddings', 'rerank', 'score'] as const) {
      expect(isLifted(route, null)).toBe(false);
    }
  });
});

test('an engine is sent what came, but for the closed list', () => {
  const splices = { engineModel: 'real', cacheSalt: 's', enginePriority: true };
  fc.assert(
    fc.property(route, body, (asked, bytes) => {
      const [now, later] = [atOnce(asked, bytes), inSteps(asked, bytes)];
      fc.pre('prompts' in now);
      const sent = [now, later].map((request) => engineBody(request as OpenAiRequest, splices));
      expect(sent[1]).toEqual(sent[0]);
    }),
    { numRuns: 300 },
  );
});
