// KV events: how they are encoded, that none is missing, and that they say what is in the cache.

import assert from 'node:assert/strict';
import type { Check, Theme } from './check.ts';
import { json } from './client.ts';
import { untilIdle } from './counters.ts';
import { cachedOf, complete } from './generate.ts';
import { chainOf, hashesOf, heldBlocks, isRemoved, isStored, storedBlocks } from './kv-chain.ts';
import { decodePayload, KvFeed, replayFrom, type WireEvent } from './kv-feed.ts';
import { freshText, freshTokens, userMessage } from './prompts.ts';
import { recordedText } from './recorded.ts';
import { shapeOf } from './shape.ts';
import type { ConformanceSubject } from './subject.ts';

const NEEDS = ['kv-events'] as const;

/** Runs with a feed that has begun, on an idle engine; the feed is closed whatever happens. */
function withFeed(
  body: (subject: ConformanceSubject, feed: KvFeed) => Promise<void>,
): Check['run'] {
  return async (subject) => {
    const feed = await KvFeed.open(subject);
    try {
      await untilIdle(subject);
      await body(subject, feed);
    } finally {
      feed.close();
    }
  };
}

const reset = (subject: ConformanceSubject) =>
  json(subject.url, '/reset_prefix_cache', { method: 'POST' });

function shapesByType(events: readonly WireEvent[]): Map<string, Set<string>> {
  const shapes = new Map<string, Set<string>>();
  for (const event of events) {
    // Whether a parent, a salt or an adapter is there differs from event to event.
    const { parent_block_hash: parent, extra_keys: keys, ...rest } = event;
    const members = [Object.keys(event).join(), shapeOf(rest), typeof parent, Array.isArray(keys)];
    const known = shapes.get(event.type) ?? new Set();
    shapes.set(event.type, known.add(members.join(' ')));
  }
  return shapes;
}

function recordedEvents(name: string): WireEvent[] {
  const lines = recordedText(name).trim().split('\n');
  return lines.flatMap((line) => {
    const { payloadBase64 } = JSON.parse(line) as { payloadBase64: string };
    return decodePayload(Buffer.from(payloadBase64, 'base64')).events;
  });
}

/** Fills the cache until blocks are pushed out. */
async function overfill(subject: ConformanceSubject): Promise<void> {
  const { kvBlocks, blockTokens } = subject.sizes;
  const blocks = Math.floor(kvBlocks / 4);
  for (let at = 0; at < 5; at += 1) {
    await complete(subject, { prompt: freshTokens(blocks * blockTokens), tokens: 1 });
  }
}

const checks: readonly Check[] = [
  {
    name: 'a batch is [float64 seconds, events, rank], three frames with the topic and 8 bytes of sequence',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      await complete(subject, { prompt: freshTokens(100), tokens: 1 });
      await feed.until('a block', 0, (events) => events.some(isStored));
      for (const batch of feed.batches) {
        assert.equal(batch.topic, subject.events?.topic);
        assert.deepEqual([batch.payload[0], batch.payload[1]], [0x93, 0xcb]);
        assert.equal(batch.rank, 0);
        assert.ok(Math.abs(batch.atSeconds - Date.now() / 1_000) < 60, `${batch.atSeconds}`);
      }
    }),
  },
  {
    name: 'stored and removed blocks have the members and types of the recordings, in order',
    needs: [...NEEDS, 'small-kv'],
    run: withFeed(async (subject, feed) => {
      await overfill(subject);
      const events = await feed.until('a removal', 0, (all) => all.some(isRemoved));
      const live = shapesByType(events);
      const recorded = shapesByType(recordedEvents('kv-events.jsonl'));
      for (const type of ['BlockStored', 'BlockRemoved']) {
        const known = recorded.get(type) ?? new Set();
        for (const shape of live.get(type) ?? []) assert.ok(known.has(shape), `${type}: ${shape}`);
      }
      for (const hash of events.flatMap((each) => each.block_hashes)) {
        assert.ok(hash >= 0 && BigInt(hash) < 2n ** 64n, 'hashes are unsigned, of 64 bits');
      }
    }),
  },
  {
    name: 'sequence numbers have no gap',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      const asks = Array.from({ length: 6 }, () =>
        complete(subject, { prompt: freshTokens(300), tokens: 70 }),
      );
      await Promise.all(asks);
      await feed.until('all blocks', 0, (events) => storedBlocks(events) >= 6 * 10);
      const seqs = feed.batches.map(({ seq }) => seq);
      assert.deepEqual(
        seqs,
        seqs.map((_, at) => (seqs[0] ?? 0) + at),
      );
    }),
  },
  {
    name: 'a step that changes nothing in the cache publishes nothing',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      const { blockTokens } = subject.sizes;
      const from = feed.batches.length;
      // Each block of the answer is filled by one step of many.
      await complete(subject, { prompt: freshTokens(blockTokens), tokens: 3 * blockTokens + 1 });
      await feed.until('the answer', from, (events) => storedBlocks(events) >= 4);
      assert.equal(feed.batches.length - from, 4);
      assert.ok(feed.batches.every(({ events }) => events.length > 0));
    }),
  },
  {
    name: 'stored blocks tell the token ids that /tokenize tells, in whole blocks chained by parents',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      const { blockTokens, maxBatchedTokens } = subject.sizes;
      const { url, model } = subject;
      // More than one step of prefill: the chain crosses events.
      const messages = userMessage(freshText(maxBatchedTokens * 1.5));
      const body = { model, messages };
      const { tokens } = await json<{ tokens: number[] }>(url, '/tokenize', { body });
      const from = feed.batches.length;
      await json(url, '/v1/chat/completions', { body: { ...body, max_tokens: 1 } });
      const blocks = Math.floor(tokens.length / blockTokens);
      const events = await feed.until('the prompt', from, (all) => storedBlocks(all) >= blocks);
      const chain = chainOf(events);
      assert.deepEqual(chain.tokens, tokens.slice(0, blocks * blockTokens));
      assert.equal(chain.hashes.length, blocks);
      assert.ok(events.filter(isStored).every((each) => each.block_size === blockTokens));
    }),
  },
  {
    name: 'blocks that an answer fills are stored too, behind those of its prompt',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      const prompt = freshTokens(40);
      const from = feed.batches.length;
      const extra = { return_token_ids: true };
      const { choices } = await complete(subject, { prompt, tokens: 90, extra });
      const all = [...prompt, ...(choices[0]?.token_ids ?? [])];
      // The last token is said but never computed.
      const blocks = Math.floor((all.length - 1) / subject.sizes.blockTokens);
      const events = await feed.until('the answer', from, (each) => storedBlocks(each) >= blocks);
      const { tokens } = chainOf(events);
      assert.deepEqual(tokens, all.slice(0, blocks * subject.sizes.blockTokens));
    }),
  },
  {
    name: 'a prefix that is found is not stored again, what follows it names it as parent',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      const shared = freshTokens(4 * subject.sizes.blockTokens);
      const more = (tokens: readonly number[]) => complete(subject, { prompt: tokens, tokens: 1 });
      const from = feed.batches.length;
      await more([...shared, ...freshTokens(3)]);
      const first = await feed.until('the prefix', from, (all) => storedBlocks(all) >= 4);
      const then = feed.batches.length;
      await more([...shared, ...freshTokens(2 * subject.sizes.blockTokens + 1)]);
      const second = await feed.until('what follows', then, (all) => storedBlocks(all) >= 2);
      assert.equal(storedBlocks(second), 2);
      assert.equal(second.find(isStored)?.parent_block_hash, chainOf(first).hashes.at(-1));
    }),
  },
  {
    name: 'a salt stands in the first block alone, and makes other hashes of equal tokens',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      const prompt = freshTokens(3 * subject.sizes.blockTokens + 1);
      const hashes: unknown[][] = [];
      for (const [extra, keys] of [
        [{}, [null, null, null]],
        [{ cache_salt: 'tenant-a' }, [['tenant-a'], null, null]],
      ] as const) {
        const from = feed.batches.length;
        await complete(subject, { prompt, tokens: 1, extra });
        const events = await feed.until('the blocks', from, (all) => storedBlocks(all) >= 3);
        const stored = events.filter(isStored);
        assert.deepEqual(
          stored.flatMap((each) => each.extra_keys ?? []),
          keys,
        );
        hashes.push(stored.flatMap((each) => each.block_hashes));
      }
      const [plain = [], salted = []] = hashes;
      assert.ok(salted.every((hash) => !plain.includes(hash)));
    }),
  },
  {
    name: 'a block that was computed twice is stored twice and removed twice',
    needs: [...NEEDS, 'dev-mode', 'small-kv'],
    run: withFeed(async (subject, feed) => {
      const { blockTokens } = subject.sizes;
      await reset(subject);
      const prompt = freshTokens(6 * blockTokens);
      const from = feed.batches.length;
      await complete(subject, { prompt, tokens: 1 });
      // Cached whole: the block with its last token is computed again, into another block of the cache.
      await complete(subject, { prompt, tokens: 1 });
      const events = await feed.until('both', from, (all) => storedBlocks(all) >= 7);
      const twice = events.findLast(isStored)?.block_hashes.at(-1);
      const times = (type: string, all: readonly WireEvent[]): number =>
        all
          .filter((each) => each.type === type)
          .flatMap((each) => each.block_hashes)
          .filter((hash) => hash === twice).length;
      assert.equal(times('BlockStored', events), 2);
      await overfill(subject);
      await feed.until('both gone', from, (all) => times('BlockRemoved', all) >= 2);
      assert.equal(times('BlockRemoved', feed.events(from)), 2);
    }),
  },
  {
    name: 'what events say is stored and not removed is what a prompt finds',
    needs: [...NEEDS, 'dev-mode', 'small-kv'],
    limitMs: 60_000,
    run: withFeed(async (subject, feed) => {
      const { blockTokens, kvBlocks } = subject.sizes;
      await reset(subject);
      const from = feed.batches.length;
      const blocks = Math.floor(kvBlocks / 4);
      const prompts = Array.from({ length: 5 }, () => freshTokens(blocks * blockTokens + 1));
      for (const prompt of prompts) await complete(subject, { prompt, tokens: 1 });
      // Newest and oldest: the one is there whole, of the other some is left or nothing.
      for (const prompt of [prompts.at(-1) ?? [], prompts[0] ?? []]) {
        const events = await settled(subject, feed, from);
        const chain = hashesOf(events, prompt, blockTokens);
        assert.ok(chain.length >= blocks, 'the whole prompt was stored once');
        const held = heldBlocks(events, chain.slice(0, blocks));
        if (prompt === prompts[0]) assert.ok(held < blocks, 'some of the oldest is gone');
        else assert.equal(held, blocks);
        assert.equal(await cachedOf(subject, prompt), held * blockTokens);
      }
    }),
  },
  {
    name: 'a reset says AllBlocksCleared, and nothing of single blocks',
    needs: [...NEEDS, 'dev-mode'],
    run: withFeed(async (subject, feed) => {
      await complete(subject, { prompt: freshTokens(200), tokens: 1 });
      await untilIdle(subject);
      const from = feed.batches.length;
      await reset(subject);
      // It is published with the next step.
      await complete(subject, { prompt: freshTokens(40), tokens: 1 });
      const events = await feed.until('the clearing', from, (all) =>
        all.some(({ type }) => type === 'AllBlocksCleared'),
      );
      const cleared = events.find(({ type }) => type === 'AllBlocksCleared');
      assert.deepEqual(cleared, { type: 'AllBlocksCleared' });
      assert.ok(!events.some(isRemoved));
    }),
  },
  {
    name: 'replay gives the batches from a sequence number on, byte for byte, and an end of −1',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      await complete(subject, { prompt: freshTokens(200), tokens: 40 });
      await feed.until('blocks', 1, (events) => storedBlocks(events) >= 6);
      const live = feed.batches.map(({ seq, payload }) => [seq, payload.toString('hex')]);
      const start = feed.batches[0]?.seq ?? 0;
      const replay = await replayFrom(subject, start);
      assert.deepEqual(
        replay.batches
          .slice(0, live.length)
          .map((each) => [each.seq, each.payload.toString('hex')]),
        live,
      );
      assert.deepEqual(replay.end, { seq: -1, payloadBytes: 0 });
      assert.ok(replay.batches.every(({ topic }) => topic === subject.events?.topic));
      assert.ok(replay.frameCounts.every((count) => count === 3));
    }),
  },
  {
    name: 'replay from 0 begins with 0, from the future on is empty',
    needs: NEEDS,
    run: withFeed(async (subject, feed) => {
      const whole = await replayFrom(subject, 0);
      assert.equal(whole.batches[0]?.seq, 0);
      const last = whole.batches.at(-1)?.seq ?? 0;
      assert.ok(last >= (feed.batches.at(-1)?.seq ?? 0));
      const none = await replayFrom(subject, last + 1_000);
      assert.deepEqual(none.batches, []);
      assert.deepEqual(none.end, { seq: -1, payloadBytes: 0 });
    }),
  },
];

/** All events so far: a last block is filled, and what it says has come. */
async function settled(
  subject: ConformanceSubject,
  feed: KvFeed,
  from: number,
): Promise<readonly WireEvent[]> {
  const marker = freshTokens(subject.sizes.blockTokens + 1);
  await complete(subject, { prompt: marker, tokens: 1 });
  const block = marker.slice(0, -1).join();
  return feed.until('the last block', from, (events) =>
    events.some((each) => isStored(each) && each.token_ids.join() === block),
  );
}

export const KV_EVENTS: Theme = { name: 'kv events', checks };
