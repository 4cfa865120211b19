// Several engines behind one port (`--data-parallel-size 2`): one exposition, a cache and a publisher for each rank.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { call, json, type Stream } from './client.ts';
import { grown, read, untilReads } from './counters.ts';
import { complete, completionBody, stream, type Completion } from './generate.ts';
import { KvFeed } from './kv-feed.ts';
import { freshText, freshTokens, userMessage } from './prompts.ts';
import { eventually } from './run.ts';
import type { ConformanceSubject } from './subject.ts';

const RANKS = [0, 1] as const;
/** What a step refreshes; the state of sleep is there from the start. */
const GAUGES = ['num_requests_running', 'num_requests_waiting', 'kv_cache_usage_perc'] as const;

const engine = (rank: number) => ({ engine: String(rank) });

function completeOn(
  subject: ConformanceSubject,
  rank: number | string,
  prompt: readonly number[],
): Promise<Completion> {
  const headers = { 'X-data-parallel-rank': String(rank) };
  const body = completionBody(subject, { prompt, tokens: 1 });
  return json<Completion>(subject.url, '/v1/completions', { body, headers });
}

const checks: readonly Check[] = [
  {
    name: 'before the first request no gauge of the scheduler is there, and never a start of the process',
    begins: 'stopped',
    limitMs: 450_000,
    async run(subject) {
      const { controls, startLimitMs } = subject;
      await controls.start();
      const first = await eventually('it answers', () => read(subject).catch(() => null), {
        limitMs: startLimitMs,
        everyMs: 200,
      });
      for (const name of GAUGES) assert.equal(first.value(name), null, name);
      assert.equal(first.count('prompt_tokens_total'), 0);
      for (const rank of RANKS) await completeOn(subject, rank, freshTokens(40));
      const after = await untilReads(subject, 'gauges come', (each) =>
        RANKS.every((rank) => each.value('num_requests_running', engine(rank)) !== null),
      );
      for (const rank of RANKS)
        assert.notEqual(after.value('kv_cache_usage_perc', engine(rank)), null);
      for (const reading of [first, after]) {
        const names = [...reading.families.keys()];
        assert.ok(!names.includes('process_start_time_seconds'));
        assert.deepEqual(
          names.filter((name) => name.endsWith('_created')),
          [],
        );
      }
    },
  },
  {
    name: 'the rank header pins a request, and each rank has a cache of its own',
    async run(subject) {
      const prompt = freshTokens(321);
      const before = await read(subject);
      const cached: (number | null | undefined)[] = [];
      for (const rank of [0, 0, 1, 1]) {
        const { usage } = await completeOn(subject, rank, prompt);
        cached.push(usage.prompt_tokens_details?.cached_tokens);
      }
      assert.deepEqual(cached, [0, 320, 0, 320]);
      const after = await untilReads(
        subject,
        'all are counted',
        (each) => grown(before, each, 'prompt_tokens_total') === 4 * prompt.length,
      );
      for (const rank of RANKS) {
        const of = (name: string) => grown(before, after, name, engine(rank));
        assert.equal(of('prompt_tokens_total'), 2 * prompt.length);
        assert.equal(of('prefix_cache_hits_total'), 320);
      }
    },
  },
  {
    name: 'of two ranks the third is refused, and one that is no number is ignored',
    async run({ url, model }) {
      const body = { model, messages: userMessage(freshText(10)), max_tokens: 1 };
      const statuses: number[] = [];
      for (const rank of ['1', '2', 'first']) {
        const headers = { 'X-data-parallel-rank': rank };
        statuses.push((await call(url, '/v1/chat/completions', { body, headers })).status);
      }
      assert.deepEqual(statuses, [200, 400, 200]);
    },
  },
  {
    name: 'without the header requests spread by load, whatever they share',
    async run(subject) {
      const shared = freshTokens(200);
      const before = await read(subject);
      const streams: Stream[] = [];
      for (let at = 0; at < 4; at += 1) {
        const prompt = [...shared, ...freshTokens(20)];
        streams.push(await stream(subject, { prompt, tokens: 250 }));
        await eventually('a token', () => ((streams[at]?.events.length ?? 0) > 0 ? true : null));
      }
      for (const each of streams) assert.equal(await each.end, 'whole');
      const after = await untilReads(
        subject,
        'all are counted',
        (each) => grown(before, each, 'request_success_total') === 4,
      );
      const spread = RANKS.map((rank) =>
        grown(before, after, 'request_success_total', engine(rank)),
      );
      assert.deepEqual(spread, [2, 2]);
    },
  },
  {
    name: 'usage tells found and created tokens of the rank that answered',
    async run({ url, model, sizes }) {
      const messages = userMessage(freshText(100));
      const body = { model, messages, max_tokens: 1 };
      const found: number[] = [];
      for (const rank of [0, 0, 1]) {
        const headers = { 'X-data-parallel-rank': String(rank) };
        const { usage } = await json<Completion>(url, '/v1/chat/completions', { body, headers });
        const details = usage.prompt_tokens_details;
        const blocks = Math.floor(usage.prompt_tokens / sizes.blockTokens);
        const cached = details?.cached_tokens ?? -1;
        assert.equal(details?.created_cache_tokens, blocks * sizes.blockTokens - cached);
        found.push(cached);
      }
      assert.deepEqual([found[0], found[2]], [0, 0]);
      assert.ok((found[1] ?? 0) > 0);
    },
  },
  {
    name: 'each rank publishes on its own port, one above the other, and says its rank in each batch',
    needs: ['kv-events'],
    async run(subject) {
      for (const rank of RANKS) {
        const feed = await KvFeed.open(subject, rank, () =>
          completeOn(subject, rank, freshTokens(subject.sizes.blockTokens + 1)),
        );
        try {
          const from = feed.batches.length;
          const prompt = freshTokens(3 * subject.sizes.blockTokens);
          await completeOn(subject, 1 - rank, freshTokens(200));
          await completeOn(subject, rank, prompt);
          const events = await feed.until('its blocks', from, (all) =>
            all.some(({ token_ids: ids }) => ids?.[0] === prompt[0]),
          );
          assert.deepEqual(
            events.flatMap((each) => each.token_ids),
            prompt,
          );
          assert.ok(feed.batches.every((batch) => batch.rank === rank));
        } finally {
          feed.close();
        }
      }
    },
  },
  {
    name: 'a whole completion of a rank is as of a lone engine',
    async run(subject) {
      const { choices, usage } = await complete(subject, { prompt: freshTokens(50), tokens: 5 });
      assert.equal(choices[0]?.finish_reason, 'length');
      assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [50, 5]);
    },
  },
];

export const RANKS_THEME: Theme = { name: 'ranks', checks };
