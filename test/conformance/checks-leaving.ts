// Clients that go away: their work ends, what they held is freed, others go on.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { send, statusOf } from './client.ts';
import { grown, untilIdle, untilReads } from './counters.ts';
import { complete, completionBody, stream } from './generate.ts';
import { freshTokens } from './prompts.ts';
import { eventually } from './run.ts';
import type { ConformanceSubject } from './subject.ts';

/** Afterwards nothing is held, and no success was counted but the given number. */
async function assertFreed(
  subject: ConformanceSubject,
  before: Awaited<ReturnType<typeof untilIdle>>,
  successes = 0,
): Promise<void> {
  const after = await untilIdle(subject);
  assert.equal(after.count('kv_cache_usage_perc'), 0);
  assert.equal(grown(before, after, 'request_success_total'), successes);
  assert.equal(await statusOf(subject.url, '/health'), 200);
}

const running = (subject: ConformanceSubject, many: number) =>
  untilReads(subject, `${many} run`, (each) => each.count('num_requests_running') === many);

const checks: readonly Check[] = [
  {
    name: 'a stream that is left between two tokens ends, and counts as no success',
    async run(subject) {
      const before = await untilIdle(subject);
      const open = await stream(subject, { prompt: freshTokens(200), tokens: 4_000 });
      await eventually('tokens', () => (open.events.length > 3 ? true : null));
      open.leave();
      await assertFreed(subject, before);
    },
  },
  {
    name: 'an answer in one piece that nobody waits for any more is not computed on',
    async run(subject) {
      const before = await untilIdle(subject);
      const body = completionBody(subject, { prompt: freshTokens(200), tokens: 4_000 });
      const sent = send(subject.url, '/v1/completions', body);
      await running(subject, 1);
      sent.leave();
      await assertFreed(subject, before);
    },
  },
  {
    name: 'a prompt that is left in the midst of its prefill counts no prompt tokens',
    async run(subject) {
      const before = await untilIdle(subject);
      const prompt = freshTokens(Math.floor(subject.sizes.maxModelLen * 0.9));
      const open = await stream(subject, { prompt, tokens: 10 });
      await running(subject, 1);
      assert.equal(open.events.length, 0, 'no token yet');
      open.leave();
      await assertFreed(subject, before);
      const after = await untilIdle(subject);
      assert.equal(grown(before, after, 'prompt_tokens_total'), 0);
      assert.equal(grown(before, after, 'time_to_first_token_seconds_count'), 0);
    },
  },
  {
    name: 'what a left prefill had computed stays in the cache by whole blocks',
    async run(subject) {
      const before = await untilIdle(subject);
      const prompt = freshTokens(Math.floor(subject.sizes.maxModelLen * 0.9));
      const open = await stream(subject, { prompt, tokens: 10 });
      await untilReads(
        subject,
        'a chunk is computed',
        (each) => each.count('kv_cache_usage_perc') > 0.2,
      );
      open.leave();
      await untilIdle(subject);
      await complete(subject, { prompt, tokens: 1 });
      const after = await untilIdle(subject);
      const hits = grown(before, after, 'prefix_cache_hits_total');
      assert.ok(hits > 0 && hits < prompt.length, `${hits} of ${prompt.length}`);
      assert.equal(hits % subject.sizes.blockTokens, 0);
    },
  },
  {
    name: 'a request that is left while it waits leaves the queue, and those before and after it go on',
    limitMs: 60_000,
    async run(subject) {
      const { maxNumSeqs } = subject.sizes;
      const before = await untilIdle(subject);
      const others = [];
      for (let at = 0; at < maxNumSeqs; at += 1) {
        others.push(await stream(subject, { prompt: freshTokens(100), tokens: 300 }));
      }
      await running(subject, maxNumSeqs);
      const waiting = await stream(subject, { prompt: freshTokens(100), tokens: 5 });
      const behind = await stream(subject, { prompt: freshTokens(100), tokens: 5 });
      const queued = (many: number) =>
        untilReads(subject, `${many} wait`, (each) => each.count('num_requests_waiting') === many);
      await queued(2);
      waiting.leave();
      await queued(1);
      assert.equal(waiting.events.length, 0);
      for (const each of [...others, behind]) assert.equal(await each.end, 'whole');
      await assertFreed(subject, before, maxNumSeqs + 1);
    },
  },
];

export const LEAVING: Theme = { name: 'leaving', checks };
