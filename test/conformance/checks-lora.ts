// Adapters: named as models, apart in the cache and in events.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { call, json } from './client.ts';
import { untilIdle, untilReads } from './counters.ts';
import { cachedOf, stream } from './generate.ts';
import { KvFeed, type WireEvent } from './kv-feed.ts';
import { freshTokens } from './prompts.ts';
import { recordedText } from './recorded.ts';
import { shapeOfText } from './shape.ts';
import type { ConformanceSubject } from './subject.ts';

const NEEDS = ['lora'] as const;

function adapterOf({ adapter }: ConformanceSubject): string {
  assert.ok(adapter !== null);
  return adapter;
}

const checks: readonly Check[] = [
  {
    name: 'the model list has the adapter behind its base, with a parent and without a context length',
    needs: NEEDS,
    async run(subject) {
      const { text } = await call(subject.url, '/v1/models');
      assert.equal(shapeOfText(text), shapeOfText(recordedText('models-lora.json')));
      const { data } = JSON.parse(text) as { data: { id: string; parent: string | null }[] };
      assert.deepEqual(
        data.map(({ id, parent }) => [id, parent]),
        [
          [subject.model, null],
          [adapterOf(subject), subject.model],
        ],
      );
    },
  },
  {
    name: 'base and adapter share nothing in the cache',
    needs: NEEDS,
    async run(subject) {
      const prompt = freshTokens(321);
      const adapted = { model: adapterOf(subject) };
      assert.equal(await cachedOf(subject, prompt), 0);
      assert.equal(await cachedOf(subject, prompt, adapted), 0);
      assert.equal(await cachedOf(subject, prompt, adapted), 320);
      assert.equal(await cachedOf(subject, prompt), 320);
    },
  },
  {
    name: 'an adapter stands in the extra keys of each block, before a salt in the first',
    needs: [...NEEDS, 'kv-events'],
    async run(subject) {
      const name = adapterOf(subject);
      const prompt = freshTokens(3 * subject.sizes.blockTokens + 1);
      const feed = await KvFeed.open(subject);
      try {
        await untilIdle(subject);
        for (const [extra, first] of [
          [{}, [name]],
          [{ cache_salt: 'tenant-a' }, [name, 'tenant-a']],
        ] as const) {
          const from = feed.batches.length;
          await cachedOf(subject, prompt, { model: name, ...extra });
          const isStored = ({ type }: WireEvent): boolean => type === 'BlockStored';
          const events = await feed.until('its blocks', from, (all) => all.some(isStored));
          const stored = events.filter(isStored);
          assert.deepEqual(
            stored.flatMap((each) => each.extra_keys ?? []),
            [first, [name], [name]],
          );
          assert.deepEqual([stored[0]?.lora_name, stored[0]?.lora_id], [name, 1]);
        }
      } finally {
        feed.close();
      }
    },
  },
  {
    name: 'lora_requests_info names the adapters that run',
    needs: NEEDS,
    async run(subject) {
      const name = adapterOf(subject);
      const extra = { model: name };
      const open = await stream(subject, { prompt: freshTokens(50), tokens: 2_000, extra });
      const reading = await untilReads(
        subject,
        'it is named',
        (each) => each.value('lora_requests_info', { running_lora_adapters: name }) !== null,
      );
      const { series = [] } = reading.families.get('vllm:lora_requests_info') ?? {};
      for (const { labels } of series) {
        assert.deepEqual(Object.keys(labels), [
          'max_lora',
          'running_lora_adapters',
          'waiting_lora_adapters',
        ]);
      }
      open.leave();
      const idle = await json<{ data: unknown[] }>(subject.url, '/v1/models');
      assert.equal(idle.data.length, 2);
    },
  },
];

export const LORA: Theme = { name: 'adapters', checks };
