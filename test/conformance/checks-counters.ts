// When counters and gauges move: at scheduling, at the first token, at each step, at the end.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { grown, read, untilIdle, untilReads, watch, type Reading } from './counters.ts';
import { complete, stream } from './generate.ts';
import { freshTokens } from './prompts.ts';
import { eventually } from './run.ts';
import type { ConformanceSubject } from './subject.ts';

const AT_FINISH = [
  'request_queue_time_seconds',
  'request_prefill_time_seconds',
  'request_decode_time_seconds',
  'request_inference_time_seconds',
  'e2e_request_latency_seconds',
  'request_prompt_tokens',
  'request_generation_tokens',
  'request_prefill_kv_computed_tokens',
  'request_params_n',
] as const;

/** Values that a counter took, each once, in order. */
function valuesOf(readings: readonly Reading[], from: Reading, name: string): number[] {
  return [...new Set(readings.map((reading) => grown(from, reading, name)))];
}

/** A prompt that takes seconds: nearly all of the context. */
function longPrompt({ sizes }: ConformanceSubject): number[] {
  return freshTokens(Math.floor(sizes.maxModelLen * 0.9));
}

const checks: readonly Check[] = [
  {
    name: 'prompt counters stand still through a long prefill and jump at its first token',
    async run(subject) {
      const before = await untilIdle(subject);
      const prompt = longPrompt(subject);
      const { readings } = await watch(subject, complete(subject, { prompt, tokens: 1 }));
      const prefilling = readings.filter((each) => each.count('num_requests_running') === 1);
      assert.ok(prefilling.length >= 3, `only ${prefilling.length} looks while it was prefilled`);
      for (const name of ['prompt_tokens_total', 'prompt_tokens_by_source_total']) {
        assert.deepEqual(valuesOf(readings, before, name), [0, prompt.length], name);
      }
      assert.deepEqual(valuesOf(readings, before, 'iteration_tokens_total_sum'), [
        0,
        prompt.length + 1,
      ]);
    },
  },
  {
    name: 'prefix queries and hits move when a request is scheduled, before its first token',
    async run(subject) {
      const before = await untilIdle(subject);
      const prompt = longPrompt(subject);
      const answer = complete(subject, { prompt, tokens: 1 });
      const { readings } = await watch(subject, answer);
      const early = readings.find((each) => grown(before, each, 'prefix_cache_queries_total') > 0);
      assert.ok(early !== undefined);
      assert.equal(grown(before, early, 'prefix_cache_queries_total'), prompt.length);
      assert.equal(grown(before, early, 'prompt_tokens_total'), 0, 'first token not yet');
      const again = await untilIdle(subject);
      await complete(subject, { prompt: [...prompt, ...freshTokens(200)], tokens: 1 });
      const after = await untilIdle(subject);
      const { blockTokens } = subject.sizes;
      const found = Math.floor(prompt.length / blockTokens) * blockTokens;
      assert.equal(grown(again, after, 'prefix_cache_hits_total'), found);
    },
  },
  {
    name: 'the histogram of first tokens counts at the first token, those of requests at the end',
    async run(subject) {
      const before = await untilIdle(subject);
      const open = await stream(subject, { prompt: freshTokens(300), tokens: 400 });
      await eventually('a token', () => (open.events.length > 1 ? true : null));
      const during = await read(subject);
      assert.equal(open.ended(), null, 'it still runs');
      assert.equal(grown(before, during, 'time_to_first_token_seconds_count'), 1);
      for (const name of AT_FINISH) assert.equal(grown(before, during, `${name}_count`), 0, name);
      assert.equal(grown(before, during, 'request_success_total'), 0);
      await open.end;
      const after = await untilIdle(subject);
      for (const name of AT_FINISH) assert.equal(grown(before, after, `${name}_count`), 1, name);
      const why = { finished_reason: 'length' };
      assert.equal(grown(before, after, 'request_success_total', why), 1);
      assert.equal(grown(before, after, 'request_success_total'), 1, 'of all reasons');
      assert.equal(grown(before, after, 'time_to_first_token_seconds_count'), 1);
    },
  },
  {
    name: 'generated tokens count step by step, and each but the first is one inter-token time',
    async run(subject) {
      const before = await untilIdle(subject);
      const { readings } = await watch(
        subject,
        complete(subject, { prompt: freshTokens(100), tokens: 300 }),
      );
      const values = valuesOf(readings, before, 'generation_tokens_total');
      assert.ok(values.length > 5, `seen in ${values.length} values`);
      assert.equal(values.at(-1), 300);
      const after = await untilIdle(subject);
      assert.equal(grown(before, after, 'inter_token_latency_seconds_count'), 299);
    },
  },
  {
    name: 'what sources, cache and steps count agrees once nothing is in flight',
    async run(subject) {
      const before = await untilIdle(subject);
      const first = freshTokens(640);
      await complete(subject, { prompt: first, tokens: 4 });
      await complete(subject, { prompt: [...first, ...freshTokens(100)], tokens: 9 });
      const after = await untilIdle(subject);
      const of = (name: string, source?: string): number =>
        grown(before, after, name, source === undefined ? {} : { source });
      const cached = of('prompt_tokens_by_source_total', 'local_cache_hit');
      const computed = of('prompt_tokens_by_source_total', 'local_compute');
      assert.equal(cached, 640);
      assert.equal(of('prefix_cache_hits_total'), cached);
      assert.equal(of('prompt_tokens_cached_total'), cached);
      assert.equal(of('prompt_tokens_total'), cached + computed);
      assert.equal(of('prefix_cache_queries_total'), cached + computed);
      assert.equal(of('request_prefill_kv_computed_tokens_sum'), computed);
      assert.equal(of('iteration_tokens_total_sum'), computed + of('generation_tokens_total'));
    },
  },
  {
    name: 'as many requests run as there are slots, the others wait for capacity, first come first served',
    limitMs: 60_000,
    async run(subject) {
      const { maxNumSeqs } = subject.sizes;
      await untilIdle(subject);
      const streams = [];
      for (let at = 0; at < maxNumSeqs + 3; at += 1) {
        streams.push(await stream(subject, { prompt: freshTokens(150), tokens: 150 + 4 * at }));
      }
      const full = await untilReads(
        subject,
        'all slots are taken and the rest waits',
        (each) =>
          each.count('num_requests_running') === maxNumSeqs &&
          each.count('num_requests_waiting') === 3,
      );
      const capacity = { reason: 'capacity' };
      assert.equal(full.count('num_requests_waiting_by_reason', capacity), 3);
      assert.equal(full.count('num_requests_waiting_by_reason', { reason: 'deferred' }), 0);
      assert.ok(streams.slice(maxNumSeqs).every((each) => each.events.length === 0));
      const { readings } = await watch(subject, Promise.all(streams.map((each) => each.end)));
      assert.ok(readings.every((each) => each.count('num_requests_running') <= maxNumSeqs));
      const firsts = streams.slice(maxNumSeqs).map((each) => each.openedMs + each.events[0]!.atMs);
      assert.deepEqual(
        firsts,
        firsts.toSorted((a, b) => a - b),
      );
    },
  },
  {
    name: 'KV in use is counted in blocks of the usable ones, prompt and answer so far',
    async run(subject) {
      const { blockTokens, kvBlocks } = subject.sizes;
      await untilIdle(subject);
      const length = blockTokens * 20 + 1;
      const open = await stream(subject, { prompt: freshTokens(length), tokens: 300 });
      await eventually('a token', () => (open.events.length > 1 ? true : null));
      const { readings } = await watch(subject, open.end);
      const blocks = readings
        .filter((each) => each.count('num_requests_running') === 1)
        .map((each) => each.count('kv_cache_usage_perc') * (kvBlocks - 1));
      assert.ok(blocks.length > 3);
      for (const each of blocks) {
        assert.ok(Math.abs(each - Math.round(each)) < 1e-6, `${each} blocks`);
        assert.ok(each > 20.5 && each < 21.5 + 300 / blockTokens, `${each} blocks`);
      }
      assert.ok(Math.max(...blocks) > Math.min(...blocks), 'it grows with the answer');
    },
  },
];

export const COUNTERS: Theme = { name: 'counters', checks };
