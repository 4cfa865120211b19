// Endpoints and errors: status, headers and body of each are those of the recordings.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { call, json } from './client.ts';
import { stream } from './generate.ts';
import { freshText, freshTokens, userMessage } from './prompts.ts';
import {
  assertHeadLike,
  assertShapeLike,
  assertTextLike,
  headerOf,
  recordedAnswer,
} from './recorded.ts';
import type { ConformanceSubject } from './subject.ts';
import { ANSWERS, CHAT, ERRORS, type Case } from './surface-cases.ts';

async function runCase(subject: ConformanceSubject, each: Case): Promise<void> {
  const recorded = recordedAnswer(each.recording);
  const answer = await call(subject.url, each.path, each.call?.(subject));
  assertHeadLike(answer, recorded);
  if (each.like === 'words') assertTextLike(answer.text, recorded, subject.sizes.maxModelLen);
  else assertShapeLike(answer.text, recorded);
}

const recordedCases: readonly Check[] = [
  ...ANSWERS.map((each) => ({
    name: `${each.rule}: ${each.path} answers as recorded in ${each.recording}`,
    run: (subject: ConformanceSubject) => runCase(subject, each),
  })),
  ...ERRORS.map((each) => ({
    name: `${each.rule}: ${each.path} refuses as recorded in ${each.recording}`,
    run: (subject: ConformanceSubject) => runCase(subject, each),
  })),
];

interface Tokens {
  readonly count: number;
  readonly tokens: readonly number[];
}

const others: readonly Check[] = [
  {
    name: 'the model list: /v1/models answers as recorded in models.http, adapters apart',
    async run({ url, model, sizes }) {
      const recorded = recordedAnswer('models.http');
      const answer = await call(url, '/v1/models');
      assertHeadLike(answer, recorded);
      const list = JSON.parse(answer.text) as { data: { id: string; max_model_len: number }[] };
      const base = list.data[0];
      assertShapeLike(JSON.stringify({ ...list, data: [base] }), recorded);
      assert.deepEqual([base?.id, base?.max_model_len], [model, sizes.maxModelLen]);
    },
  },
  {
    name: "in Anthropic's protocol a model that is not served is refused in that protocol's envelope",
    async run({ url, model }) {
      const body = { model: 'nope', max_tokens: 4, messages: userMessage(freshText(10)) };
      const answer = await call(url, '/v1/messages', { body });
      assert.equal(answer.status, 404);
      const message = `The model \`nope\` does not exist. Valid aliases: ${model}.`;
      const error = { type: 'NotFoundError', message };
      assert.equal(answer.text, JSON.stringify({ type: 'error', error }));
    },
  },
  {
    name: 'whether it sleeps: /is_sleeping answers as recorded',
    needs: ['dev-mode'],
    async run({ url }) {
      const recorded = recordedAnswer('is-sleeping.http');
      const answer = await call(url, '/is_sleeping');
      assertHeadLike(answer, recorded);
      assert.equal(answer.text, recorded.text);
    },
  },
  {
    name: '/health and /ping are 200 with an empty body',
    async run({ url }) {
      for (const [method, path] of [
        ['GET', '/health'],
        ['GET', '/ping'],
        ['POST', '/ping'],
      ] as const) {
        const answer = await call(url, path, { method });
        assert.deepEqual([answer.status, answer.text], [200, ''], `${method} ${path}`);
      }
    },
  },
  {
    name: '/metrics is text of version 1.0.0, whatever is asked for',
    async run({ url }) {
      for (const accept of ['*/*', 'text/plain;version=0.0.4']) {
        const answer = await call(url, '/metrics', { headers: { accept } });
        assert.equal(answer.status, 200);
        const type = headerOf(answer.headers, 'content-type');
        assert.equal(type, 'text/plain; version=1.0.0; charset=utf-8');
      }
    },
  },
  {
    name: '/tokenize of a conversation counts what usage counts, and /detokenize undoes it',
    async run({ url, model }) {
      const messages = userMessage(freshText(100));
      const ids = await json<Tokens>(url, '/tokenize', { body: { model, messages } });
      assert.equal(ids.count, ids.tokens.length);
      const answer = await json<{ usage: { prompt_tokens: number } }>(url, CHAT, {
        body: { model, messages, max_tokens: 1 },
      });
      assert.equal(ids.count, answer.usage.prompt_tokens);
      const text = 'Thou that art now the fresh ornament.';
      const plain = await json<Tokens>(url, '/tokenize', {
        body: { model, prompt: text, add_special_tokens: false },
      });
      const back = await json<{ prompt: string }>(url, '/detokenize', {
        body: { model, tokens: plain.tokens },
      });
      assert.equal(back.prompt, text);
    },
  },
  {
    name: 'tools and response_format are accepted',
    async run({ url, model }) {
      const parameters = { type: 'object', properties: { city: { type: 'string' } } };
      const tools = [{ type: 'function', function: { name: 'weather', parameters } }];
      const body = { model, messages: userMessage(freshText(30)), max_tokens: 4 };
      for (const extra of [
        { tools, tool_choice: 'none' },
        { response_format: { type: 'text' } },
        { response_format: { type: 'json_object' } },
      ]) {
        const answer = await call(url, CHAT, { body: { ...body, ...extra } });
        assert.equal(answer.status, 200, `${JSON.stringify(extra)}: ${answer.text}`);
      }
    },
  },
  {
    name: 'a request id that is given becomes the id of the answer',
    async run({ url, model }) {
      const body = { model, messages: userMessage(freshText(20)), max_tokens: 1 };
      const headers = { 'X-Request-Id': 'abc.1' };
      const answer = await json<{ id: string }>(url, CHAT, { body, headers });
      assert.equal(answer.id, 'chatcmpl-abc.1');
    },
  },
  {
    name: 'an answer that would not fit is cut to what the context leaves',
    async run({ url, model, sizes }) {
      const prompt = freshTokens(sizes.maxModelLen - 5);
      const body = { model, prompt, max_tokens: 100, ignore_eos: true };
      const answer = await json<{
        choices: { finish_reason: string }[];
        usage: Record<string, unknown>;
      }>(url, '/v1/completions', { body });
      assert.equal(answer.choices[0]?.finish_reason, 'length');
      assert.equal(answer.usage['prompt_tokens'], sizes.maxModelLen - 5);
      assert.equal(answer.usage['completion_tokens'], 5);
    },
  },
  {
    name: 'a rank that is out of range is refused, one that is no number is ignored',
    async run({ url, model }) {
      const body = { model, messages: userMessage(freshText(10)), max_tokens: 1 };
      const statuses: number[] = [];
      for (const rank of ['0', '1', 'first']) {
        const headers = { 'X-data-parallel-rank': rank };
        statuses.push((await call(url, CHAT, { body, headers })).status);
      }
      assert.deepEqual(statuses, [200, 400, 200]);
    },
  },
  {
    name: 'prompts in a list are answered n times each, and each counts its prompt once',
    async run({ url, model }) {
      const prompt = [freshText(10), freshText(12)];
      const answer = await json<{
        choices: { index: number }[];
        usage: Record<string, number>;
      }>(url, '/v1/completions', { body: { model, prompt, n: 2, max_tokens: 3 } });
      assert.deepEqual(
        answer.choices.map(({ index }) => index),
        [0, 1, 2, 3],
      );
      const counts = await Promise.all(
        prompt.map(async (text) => {
          const ids = await json<Tokens>(url, '/tokenize', { body: { model, prompt: text } });
          return ids.count;
        }),
      );
      assert.equal(
        answer.usage['prompt_tokens'],
        counts.reduce((sum, each) => sum + each, 0),
      );
    },
  },
];

const devMode: readonly Check[] = [
  {
    name: 'paused it keeps requests silently; resumed it answers them',
    needs: ['dev-mode'],
    async run(subject) {
      const { url } = subject;
      assert.deepEqual(await json(url, '/is_paused'), { is_paused: false });
      await json(url, '/pause?mode=keep', { method: 'POST' });
      assert.deepEqual(await json(url, '/is_paused'), { is_paused: true });
      const kept = await stream(subject, { prompt: freshTokens(50), tokens: 3 });
      assert.equal(kept.status, 200);
      assert.deepEqual([(await call(url, '/health')).status, kept.events.length], [200, 0]);
      await json(url, '/resume', { method: 'POST' });
      assert.equal(await kept.end, 'whole');
      assert.deepEqual(await json(url, '/is_paused'), { is_paused: false });
    },
  },
];

export const SURFACE: Theme = {
  name: 'surface',
  checks: [...recordedCases, ...others, ...devMode],
};
