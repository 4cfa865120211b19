// Too much work: a full KV cache preempts, a full queue refuses.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { call, type Answer, type Stream } from './client.ts';
import { grown, untilIdle, untilReads, watch } from './counters.ts';
import { completionBody, stream, type Usage } from './generate.ts';
import { freshTokens } from './prompts.ts';
import { assertHeadLike, headerOf, recordedAnswer } from './recorded.ts';
import type { ConformanceSubject } from './subject.ts';

async function fillQueue(subject: ConformanceSubject, upTo: number) {
  const streams = [];
  for (let at = 0; at < upTo; at += 1) {
    streams.push(await stream(subject, { prompt: freshTokens(40), tokens: 1_500 }));
  }
  return streams;
}

function ask(subject: ConformanceSubject, extra: object): Promise<Answer> {
  const body = completionBody(subject, { prompt: freshTokens(40), tokens: 1, extra });
  return call(subject.url, '/v1/completions', { body });
}

const checks: readonly Check[] = [
  {
    name: 'a full KV cache preempts who came last; every answer still comes whole, and preemptions are counted',
    needs: ['small-kv'],
    limitMs: 90_000,
    async run(subject) {
      const { kvBlocks, blockTokens, maxNumSeqs } = subject.sizes;
      const before = await untilIdle(subject);
      // Prompts fill 80 % of the cache and answers would need 40 % more.
      const share = ((kvBlocks - 1) * blockTokens) / maxNumSeqs;
      const [length, tokens] = [Math.floor(share * 0.8), Math.floor(share * 0.4)];
      const streams: Stream[] = [];
      const extra = { stream_options: { include_usage: true } };
      for (let at = 0; at < maxNumSeqs; at += 1) {
        streams.push(await stream(subject, { prompt: freshTokens(length), tokens, extra }));
      }
      const ends = Promise.all(streams.map((each) => each.end));
      const { value: ways, readings } = await watch(subject, ends, 100);
      assert.ok(ways.every((way) => way === 'whole'));
      for (const each of streams) {
        const { usage } = JSON.parse(each.events.at(-2)?.data ?? '{}') as { usage: Usage };
        assert.equal(usage.completion_tokens, tokens);
      }
      const endsMs = streams.map((each) => each.openedMs + (each.events.at(-1)?.atMs ?? 0));
      assert.equal(Math.max(...endsMs), endsMs.at(-1), 'who came last ends last');
      const after = await untilIdle(subject);
      const preemptions = grown(before, after, 'num_preemptions_total');
      assert.ok(preemptions >= 1, `${preemptions} preemptions`);
      assert.equal(grown(before, after, 'request_num_preemptions_sum'), preemptions);
      assert.equal(grown(before, after, 'prompt_tokens_total'), length * maxNumSeqs);
      assert.equal(grown(before, after, 'generation_tokens_total'), tokens * maxNumSeqs);
      assert.equal(grown(before, after, 'prefix_cache_queries_total'), length * maxNumSeqs);
      const fullest = Math.max(...readings.map((each) => each.count('kv_cache_usage_perc')));
      assert.ok(fullest > 0.95, `KV was used to ${fullest}`);
      assert.ok(
        readings.some((each) => each.count('num_requests_waiting') > 0),
        'who is preempted waits',
      );
    },
  },
  {
    name: 'a full queue refuses with 503 as recorded, without a time to come back, and is counted',
    needs: ['queue-limit'],
    async run(subject) {
      const limit = subject.sizes.maxInFlight ?? 0;
      const before = await untilIdle(subject);
      const streams = await fillQueue(subject, limit);
      assert.ok(
        streams.every((each) => each.status === 200),
        'running and waiting ones together are the limit',
      );
      const recorded = recordedAnswer('error-queue-full.http');
      for (const extra of [{}, { stream: true }]) {
        const answer = await ask(subject, extra);
        assertHeadLike(answer, recorded);
        assert.equal(answer.text, recorded.text);
        assert.equal(headerOf(answer.headers, 'retry-after'), null);
      }
      const reason = { reason: 'max_num_queued_reqs' };
      await untilReads(
        subject,
        'both are counted, and those that were in stay in',
        (each) =>
          grown(before, each, 'admission_rejections_total', reason) === 2 &&
          each.count('num_requests_running') + each.count('num_requests_waiting') === limit,
      );
      for (const each of streams) each.leave();
      await untilIdle(subject);
      assert.equal((await ask(subject, {})).status, 200);
    },
  },
  {
    name: 'a request for n answers takes n places in the queue',
    needs: ['queue-limit'],
    async run(subject) {
      const limit = subject.sizes.maxInFlight ?? 0;
      await untilIdle(subject);
      const streams = await fillQueue(subject, limit - 1);
      assert.equal((await ask(subject, { n: 2, temperature: 1 })).status, 503);
      for (const each of streams) each.leave();
      await untilIdle(subject);
    },
  },
];

export const PRESSURE: Theme = { name: 'pressure', checks };
