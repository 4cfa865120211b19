// The prefix cache: reuse by whole blocks, what isolates, what empties, what is evicted first.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { begun, json } from './client.ts';
import { untilIdle } from './counters.ts';
import { cachedOf, complete, stream } from './generate.ts';
import { freshText, freshTokens, type Message } from './prompts.ts';
import { recordedText } from './recorded.ts';
import { eventually } from './run.ts';
import type { ConformanceSubject } from './subject.ts';

function wholeBlocks(tokens: number, { sizes }: ConformanceSubject): number {
  return Math.floor(tokens / sizes.blockTokens) * sizes.blockTokens;
}

async function reset(subject: ConformanceSubject, query = ''): Promise<boolean> {
  const path = `/reset_prefix_cache${query}`;
  return (await json<{ success: boolean }>(subject.url, path, { method: 'POST' })).success;
}

interface ChatAnswer {
  readonly choices: readonly { readonly message: { readonly content: string } }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: Readonly<Record<string, number>>;
  };
}

const checks: readonly Check[] = [
  {
    name: 'what two prompts share is reused in whole blocks',
    async run(subject) {
      const shared = freshTokens(5 * subject.sizes.blockTokens + 7);
      await complete(subject, { prompt: [...shared, ...freshTokens(50)], tokens: 1 });
      const cached = await cachedOf(subject, [...shared, ...freshTokens(90)]);
      assert.equal(cached, wholeBlocks(shared.length, subject));
    },
  },
  {
    name: 'of a prompt that is cached whole, the block with its last token is computed again',
    async run(subject) {
      const { blockTokens } = subject.sizes;
      for (const length of [10 * blockTokens, 10 * blockTokens + 1, 10 * blockTokens + 31]) {
        const prompt = freshTokens(length);
        assert.equal(await cachedOf(subject, prompt), 0);
        assert.equal(
          await cachedOf(subject, prompt),
          wholeBlocks(length - 1, subject),
          `${length}`,
        );
      }
    },
  },
  {
    name: 'an answer is cached too, all but its last token',
    async run(subject) {
      const prompt = freshTokens(100);
      const extra = { return_token_ids: true };
      const { choices } = await complete(subject, { prompt, tokens: 60, extra });
      const ids = choices[0]?.token_ids ?? [];
      assert.equal(ids.length, 60);
      const cached = await cachedOf(subject, [...prompt, ...ids, ...freshTokens(40)]);
      assert.equal(cached, wholeBlocks(159, subject));
    },
  },
  {
    name: 'the second turn of a conversation finds the first, and created and cached tokens are told',
    async run(subject) {
      const { url, model } = subject;
      const messages: Message[] = [{ role: 'user', content: freshText(400) }];
      const ask = (): Promise<ChatAnswer> =>
        json(url, '/v1/chat/completions', { body: { model, messages, max_tokens: 8 } });
      const first = await ask();
      messages.push({ role: 'assistant', content: first.choices[0]?.message.content ?? '' });
      messages.push({ role: 'user', content: 'And then?' });
      const second = await ask();
      const details = [first, second].map(({ usage }) => usage.prompt_tokens_details);
      const length = first.usage.prompt_tokens;
      assert.equal(details[0]?.['cached_tokens'], 0);
      assert.equal(details[0]?.['created_cache_tokens'], wholeBlocks(length, subject));
      // The answer's text may be cut into other tokens than those that were generated.
      const found = details[1]?.['cached_tokens'] ?? 0;
      assert.ok(found >= wholeBlocks(length, subject) - subject.sizes.blockTokens, `${found}`);
      assert.equal(found % subject.sizes.blockTokens, 0);
    },
  },
  {
    name: 'recorded conversations: found and created tokens add up to the whole blocks of each prompt',
    async run(subject) {
      const { url, model } = subject;
      const script = JSON.parse(recordedText('kv-events-script.json')) as {
        requests: { messages: Message[]; extra: { cache_salt?: string } }[];
      };
      // Under a salt of this run's own nothing of them is there before.
      const own = freshText(5);
      const seen: { cached: number; length: number }[] = [];
      for (const { messages, extra } of script.requests) {
        const salt = `${own} ${extra.cache_salt ?? ''}`;
        const body = { model, messages, max_tokens: 40, cache_salt: salt };
        const { usage } = await json<ChatAnswer>(url, '/v1/chat/completions', { body });
        const { cached_tokens: cached = 0, created_cache_tokens: created = 0 } =
          usage.prompt_tokens_details;
        assert.equal(cached + created, wholeBlocks(usage.prompt_tokens, subject));
        seen.push({ cached, length: usage.prompt_tokens });
      }
      const [first, second, salted] = seen;
      assert.equal(first?.cached, 0);
      assert.equal(salted?.cached, 0);
      assert.ok((second?.cached ?? 0) >= wholeBlocks((first?.length ?? 0) - 32, subject));
    },
  },
  {
    name: 'a salt isolates: equal prompts share nothing under other salts, and all under the same',
    async run(subject) {
      const prompt = freshTokens(321);
      const salted = (salt: string) => cachedOf(subject, prompt, { cache_salt: salt });
      assert.equal(await cachedOf(subject, prompt), 0);
      assert.equal(await salted('one'), 0);
      assert.equal(await salted('two'), 0);
      assert.equal(await salted('one'), 320);
      assert.equal(await cachedOf(subject, prompt), 320);
    },
  },
  {
    name: '/reset_prefix_cache empties the cache',
    needs: ['dev-mode'],
    async run(subject) {
      await untilIdle(subject);
      const prompt = freshTokens(321);
      await complete(subject, { prompt, tokens: 1 });
      assert.equal(await reset(subject), true);
      assert.equal(await cachedOf(subject, prompt), 0);
    },
  },
  {
    name: 'while a request runs, /reset_prefix_cache does nothing and says so',
    needs: ['dev-mode'],
    async run(subject) {
      const prompt = freshTokens(321);
      await complete(subject, { prompt, tokens: 1 });
      const open = await stream(subject, { prompt: freshTokens(60), tokens: 400 });
      await eventually('a token', () => (open.events.length > 1 ? true : null));
      assert.equal(await reset(subject), false);
      open.leave();
      await untilIdle(subject);
      assert.equal(await cachedOf(subject, prompt), 320);
    },
  },
  {
    name: '/reset_prefix_cache?reset_running_requests=true empties it under a running request, which goes on',
    needs: ['dev-mode'],
    async run(subject) {
      const prompt = freshTokens(321);
      await complete(subject, { prompt, tokens: 1 });
      const work = begun(complete(subject, { prompt: freshTokens(60), tokens: 250 }));
      const open = await stream(subject, { prompt: freshTokens(60), tokens: 250 });
      await eventually('a token', () => (open.events.length > 1 ? true : null));
      assert.equal(await reset(subject, '?reset_running_requests=true'), true);
      assert.equal((await work).usage.completion_tokens, 250);
      assert.equal(await open.end, 'whole');
      assert.equal(await cachedOf(subject, prompt), 0);
    },
  },
  {
    name: 'the least recently used prefix is evicted first, and from its end',
    needs: ['dev-mode', 'small-kv'],
    async run(subject) {
      const { kvBlocks, blockTokens } = subject.sizes;
      await untilIdle(subject);
      assert.equal(await reset(subject), true);
      // Four prompts fill the cache but for less than a fifth: the fifth must push something out.
      const blocks = Math.floor((kvBlocks - 1) / 5) + 1;
      const prompts = Array.from({ length: 5 }, () => freshTokens(blocks * blockTokens));
      const [oldest = [], next = [], , , last = []] = prompts;
      for (const prompt of prompts.slice(0, 4)) assert.equal(await cachedOf(subject, prompt), 0);
      const full = (blocks - 1) * blockTokens;
      assert.equal(await cachedOf(subject, oldest), full, 'all four are held');
      assert.equal(await cachedOf(subject, last), 0);
      assert.equal(await cachedOf(subject, oldest), full, 'used since, so it stays');
      const left = (await cachedOf(subject, next)) ?? 0;
      assert.ok(
        left > 0 && left < full,
        `${left} of ${full} tokens are left of the one used least`,
      );
    },
  },
  {
    name: 'asleep it answers its health, keeps requests silently, and wakes with an empty cache',
    needs: ['sleep'],
    async run(subject) {
      const { url } = subject;
      await untilIdle(subject);
      const prompt = freshTokens(321);
      await complete(subject, { prompt, tokens: 1 });
      const slept = await json(url, '/sleep?level=1', { method: 'POST' });
      assert.deepEqual(slept, { status: 'sleeping', level: 1 });
      assert.deepEqual(await json(url, '/is_sleeping'), { is_sleeping: true });
      await json(url, '/v1/models');
      const asleep = await untilIdle(subject);
      const states = ['awake', 'weights_offloaded', 'discard_all'].map((state) =>
        asleep.count('engine_sleep_state', { sleep_state: state }),
      );
      assert.deepEqual(states, [0, 1, 0]);
      const kept = await stream(subject, { prompt, tokens: 2 });
      assert.equal(kept.status, 200);
      const woken = await json(url, '/wake_up', { method: 'POST' });
      assert.deepEqual(woken, { status: 'awake', tags: null });
      assert.equal(await kept.end, 'whole');
      assert.deepEqual(await json(url, '/is_sleeping'), { is_sleeping: false });
      const awake = await untilIdle(subject);
      assert.equal(awake.count('engine_sleep_state', { sleep_state: 'awake' }), 1);
      await json(url, '/sleep?level=1', { method: 'POST' });
      await json(url, '/wake_up', { method: 'POST' });
      assert.equal(await cachedOf(subject, prompt), 0);
    },
  },
];

export const CACHE: Theme = { name: 'cache', checks };
