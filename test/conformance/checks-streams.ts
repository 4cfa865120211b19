// Framing of streams: which events there are, in which order, with which members.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { json, openStream, type Stream } from './client.ts';
import { freshText, userMessage } from './prompts.ts';
import { assertHeadLike, recordedAnswer } from './recorded.ts';
import { shapeOfText } from './shape.ts';
import type { ConformanceSubject } from './subject.ts';

const CHAT = '/v1/chat/completions';

interface Chunk {
  readonly choices: readonly {
    readonly index: number;
    readonly delta?: { readonly role?: string; readonly content?: string };
    readonly text?: string;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: Readonly<Record<string, unknown>> | null;
}

/** A stream to its end; a body that is cut or does not end in `[DONE]` breaks the rule. */
async function wholeStream(
  subject: ConformanceSubject,
  path: string,
  body: object,
): Promise<Stream> {
  const stream = await openStream(subject.url, path, { model: subject.model, ...body });
  assert.equal(await stream.end, 'whole');
  assert.equal(stream.events.at(-1)?.data, '[DONE]');
  return stream;
}

export function chunksOf(stream: Stream): Chunk[] {
  return stream.events
    .filter(({ data }) => data !== '[DONE]')
    .map(({ data }) => JSON.parse(data) as Chunk);
}

/** Shapes of a stream's events, equal neighbours once: streams of different lengths have one. */
function eventShapes(text: string): string[] {
  const shapes = text
    .split('\n\n')
    .filter((part) => part !== '')
    .map((part) => (part.startsWith('data: ') ? shapeOfText(part.slice(6)) : part));
  return shapes.filter((shape, at) => shape !== shapes[at - 1]);
}

const RECORDED: readonly (readonly [string, string, object])[] = [
  ['chat-stream.http', CHAT, {}],
  ['chat-stream-usage.http', CHAT, { stream_options: { include_usage: true } }],
  [
    'chat-stream-continuous-usage.http',
    CHAT,
    { stream_options: { include_usage: true, continuous_usage_stats: true } },
  ],
  ['completion-stream-usage.http', '/v1/completions', { stream_options: { include_usage: true } }],
];

const recordedChecks: readonly Check[] = RECORDED.map(([recording, path, extra]) => ({
  name: `a stream has the head and the events of ${recording}, one event a data line`,
  async run(subject: ConformanceSubject) {
    const prompt =
      path === CHAT ? { messages: userMessage(freshText(40)) } : { prompt: freshText(40) };
    const stream = await wholeStream(subject, path, { ...prompt, ...extra, max_tokens: 6 });
    const recorded = recordedAnswer(recording);
    assertHeadLike(stream, recorded);
    assert.deepEqual(eventShapes(stream.text()), eventShapes(recorded.text));
  },
}));

const others: readonly Check[] = [
  {
    name: 'the head of a stream comes before its prompt is computed, the role with the first token',
    async run(subject) {
      // Long enough that its computation can be told from the way of a packet.
      const body = { messages: userMessage(freshText(subject.sizes.maxModelLen * 0.7)) };
      const stream = await openStream(subject.url, CHAT, {
        ...body,
        model: subject.model,
        max_tokens: 2,
      });
      assert.equal(stream.events.length, 0, 'events at the time of the head');
      assert.equal(await stream.end, 'whole');
      const [first, second] = chunksOf(stream);
      assert.deepEqual(first?.choices[0]?.delta, { role: 'assistant', content: '' });
      assert.notEqual(second?.choices[0]?.delta?.content ?? '', '');
      const [role, token] = stream.events;
      assert.ok((token?.atMs ?? 1e9) - (role?.atMs ?? 0) < 50, 'role and token come together');
    },
  },
  {
    name: 'the usage chunk has no choices, is last before [DONE], and counts the tokens',
    async run(subject) {
      const stream = await wholeStream(subject, CHAT, {
        messages: userMessage(freshText(60)),
        max_tokens: 7,
        ignore_eos: true,
        stream_options: { include_usage: true },
      });
      const chunks = chunksOf(stream);
      const last = chunks.at(-1);
      assert.deepEqual(last?.choices, []);
      assert.equal(last?.usage?.['completion_tokens'], 7);
      assert.ok(chunks.slice(0, -1).every(({ usage }) => usage === undefined || usage === null));
      assert.equal(chunks.at(-2)?.choices[0]?.finish_reason, 'length');
    },
  },
  {
    name: 'continuous usage stands in every chunk and counts up',
    async run(subject) {
      const stream = await wholeStream(subject, CHAT, {
        messages: userMessage(freshText(30)),
        max_tokens: 8,
        ignore_eos: true,
        stream_options: { include_usage: true, continuous_usage_stats: true },
      });
      const counts = chunksOf(stream).map(({ usage }) => Number(usage?.['completion_tokens']));
      assert.ok(
        counts.every((count) => Number.isInteger(count)),
        counts.join(' '),
      );
      assert.deepEqual(
        counts,
        counts.toSorted((a, b) => a - b),
      );
      assert.equal(counts.at(-1), 8);
      assert.equal(counts[0], 0);
    },
  },
  {
    name: 'n answers come in one stream, told apart by index, each with a role and a finish reason',
    async run(subject) {
      const stream = await wholeStream(subject, CHAT, {
        messages: userMessage(freshText(30)),
        max_tokens: 4,
        n: 2,
      });
      for (const index of [0, 1]) {
        const own = chunksOf(stream).flatMap(({ choices }) =>
          choices.filter((choice) => choice.index === index),
        );
        assert.equal(own[0]?.delta?.role, 'assistant');
        assert.equal(own.filter((choice) => choice.finish_reason !== null).length, 1);
        assert.notEqual(own.at(-1)?.finish_reason ?? null, null);
      }
    },
  },
  {
    name: 'a stream says the same as an answer in one piece',
    async run(subject) {
      const body = {
        model: subject.model,
        messages: userMessage(freshText(50)),
        max_tokens: 12,
        temperature: 0,
      };
      const whole = await json<{ choices: { message: { content: string } }[] }>(subject.url, CHAT, {
        body,
      });
      const stream = await wholeStream(subject, CHAT, body);
      const said = chunksOf(stream).map(({ choices }) => choices[0]?.delta?.content ?? '');
      assert.equal(said.join(''), whole.choices[0]?.message.content);
    },
  },
];

/** Names of a stream's events, equal neighbours once. */
function eventNames(stream: Stream): (string | null)[] {
  const names = stream.events.map(({ name }) => name);
  return names.filter((name, at) => name !== names[at - 1]);
}

const protocols: readonly Check[] = [
  {
    name: "an Anthropic stream has that protocol's events, and counts its tokens in the last but one",
    async run({ url, model }) {
      const body = { model, max_tokens: 5, messages: userMessage(freshText(20)) };
      const open = await openStream(url, '/v1/messages', { ...body, ignore_eos: true });
      assert.equal(await open.end, 'whole');
      assert.deepEqual(eventNames(open).slice(0, 6), [
        'message_start',
        'content_block_start',
        'content_block_delta',
        'content_block_stop',
        'message_delta',
        'message_stop',
      ]);
      const delta = open.events.find(({ name }) => name === 'message_delta');
      const { usage } = JSON.parse(delta?.data ?? '{}') as { usage: Record<string, number> };
      assert.equal(usage['output_tokens'], 5);
      for (const { name, data } of open.events) {
        if (name !== null) assert.equal((JSON.parse(data) as { type: string }).type, name);
      }
    },
  },
  {
    name: "a stream of responses has that protocol's events, numbered without a gap",
    async run({ url, model }) {
      const body = { model, input: freshText(20), max_output_tokens: 5 };
      const open = await openStream(url, '/v1/responses', body);
      assert.equal(await open.end, 'whole');
      assert.deepEqual(eventNames(open), [
        'response.created',
        'response.in_progress',
        'response.output_item.added',
        'response.content_part.added',
        'response.output_text.delta',
        'response.output_text.done',
        'response.content_part.done',
        'response.output_item.done',
        'response.completed',
      ]);
      const numbers = open.events.map(
        ({ data }) => (JSON.parse(data) as { sequence_number: number }).sequence_number,
      );
      assert.deepEqual(
        numbers,
        numbers.map((_, at) => at),
      );
    },
  },
];

export const STREAMS: Theme = {
  name: 'streams',
  checks: [...recordedChecks, ...others, ...protocols],
};
