// The model's KV events against those that a real vLLM 0.32.0 published for the same requests, and against its own
// cache: whoever applies the events, counting copies, knows exactly what can be found.

import { readFileSync } from 'node:fs';

import fc from 'fast-check';
import { Unpackr } from 'msgpackr';
import { describe, expect, it } from 'vitest';

import { drain, request, SMALL, started } from './model-test-harness.ts';
import type { EngineEvent } from './events.ts';
import type { KvEvent } from './kv-events.ts';
import type { EngineModel } from './model.ts';
import { engineProfile } from './profiles.ts';
import { tokenSequence, type SequenceIdentity } from './sequence.ts';

interface RecordedEvent {
  readonly type: 'BlockStored' | 'BlockRemoved';
  readonly block_hashes: readonly bigint[];
  /** These are absent from removals. */
  readonly parent_block_hash?: bigint | null;
  readonly token_ids?: readonly number[];
  readonly lora_name?: string | null;
  readonly extra_keys?: readonly (readonly string[] | null)[];
}

interface Recording {
  readonly seq: number;
  readonly payloadBase64: string;
}

interface Script {
  readonly requests: readonly {
    readonly extra: { readonly cache_salt?: string };
    readonly usage: {
      readonly prompt_tokens: number;
      readonly completion_tokens: number;
      readonly prompt_tokens_details: { readonly cached_tokens: number };
    };
  }[];
}

/** One event by what can be compared: blocks are numbered as they first appear. */
interface Told {
  readonly kind: string;
  readonly blocks: readonly number[];
  readonly parent: number | null;
  readonly tokenIds: readonly number[];
  readonly salt: string | null;
  readonly lora: string | null;
}

const FOLDER = new URL('../../test/fixtures/vllm-0.32.0/', import.meta.url);
const PROFILE = engineProfile('cpu-tiny-llama')!;

function lines(name: string): Recording[] {
  const text = readFileSync(new URL(name, FOLDER), 'utf8');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Recording);
}

function recordedBatches(name: string): RecordedEvent[][] {
  const unpackr = new Unpackr({ int64AsType: 'bigint', mapsAsObjects: true, useRecords: false });
  return lines(name).map(({ payloadBase64 }) => {
    const [, events] = unpackr.unpack(Buffer.from(payloadBase64, 'base64')) as [
      number,
      RecordedEvent[],
    ];
    return events;
  });
}

function numbering(): (key: bigint | number) => number {
  const numbers = new Map<bigint | number, number>();
  return (key) => {
    const number = numbers.get(key) ?? numbers.size;
    numbers.set(key, number);
    return number;
  };
}

function toldByRecording(batches: readonly RecordedEvent[][]): Told[][] {
  const number = numbering();
  return batches.map((events) =>
    events.map((event) => {
      const parent = event.parent_block_hash;
      const first = (event.extra_keys?.[0] ?? []).filter((key) => key !== event.lora_name);
      return {
        kind: event.type === 'BlockStored' ? 'stored' : 'removed',
        parent: typeof parent === 'bigint' ? number(parent) : null,
        blocks: event.block_hashes.map(number),
        tokenIds: event.token_ids ?? [],
        salt: first[0] ?? null,
        lora: event.lora_name ?? null,
      };
    }),
  );
}

function batchesOf(events: readonly EngineEvent[]): (readonly KvEvent[])[] {
  return events.flatMap((event) => (event.kind === 'blocks' ? [event.events] : []));
}

function toldByModel(batches: readonly (readonly KvEvent[])[]): Told[][] {
  const number = numbering();
  return batches.map((events) =>
    events.map((event) => {
      if (event.kind === 'cleared') throw new Error('nothing was cleared');
      const stored = event.kind === 'stored' ? event : null;
      return {
        kind: event.kind,
        parent: stored === null || stored.parentKey === null ? null : number(stored.parentKey),
        blocks: event.keys.map(number),
        tokenIds: Array.from(stored?.tokenIds ?? []),
        salt: stored?.salt ?? null,
        lora: stored?.lora ?? null,
      };
    }),
  );
}

/** Tokens of the sequence that ends with the recorded block at that place of the numbering. */
function tokensUpTo(batches: readonly Told[][], last: number): number[] {
  const stored = batches.flat().find(({ blocks }) => blocks.includes(last));
  if (stored === undefined) return [];
  const at = (stored.blocks.indexOf(last) + 1) * PROFILE.blockTokens;
  const before = stored.parent === null ? [] : tokensUpTo(batches, stored.parent);
  return [...before, ...stored.tokenIds.slice(0, at)];
}

describe('KV events of a real engine', () => {
  it('are told for the same requests: the same batches, blocks, parents, tokens and salts', () => {
    const script = JSON.parse(
      readFileSync(new URL('kv-events-script.json', FOLDER), 'utf8'),
    ) as Script;
    const recorded = toldByRecording(recordedBatches('kv-events.jsonl').slice(0, 13));
    // The last block of each request, after which the next one begins.
    const ends = [30, 34, 65, 96, 122];
    const model = started(PROFILE, { kvEvents: true });
    const events: EngineEvent[] = [];
    script.requests.forEach(({ extra, usage }, at) => {
      const ids = tokensUpTo(recorded, ends[at]!);
      const identity: SequenceIdentity = {
        salt: extra.cache_salt,
        answerIds: Uint32Array.from(ids.slice(usage.prompt_tokens)),
      };
      const prompt = Uint32Array.from(ids.slice(0, usage.prompt_tokens));
      const sequence = tokenSequence(prompt, PROFILE.blockTokens, identity);
      const answerTokens = usage.completion_tokens;
      model.submit({ id: `${at}`, sequence, answerTokens, finishReason: 'length' }, at * 10_000);
      const told = drain(model);
      const end = told.find((event) => event.kind === 'finished');
      expect(end).toMatchObject({
        cachedTokens: usage.prompt_tokens_details.cached_tokens,
        promptTokens: usage.prompt_tokens,
      });
      events.push(...told);
    });
    expect(toldByModel(batchesOf(events))).toEqual(recorded);
  });

  it('are told for base model, adapter and salted adapter, which share nothing', () => {
    const recorded = toldByRecording(recordedBatches('kv-events-lora.jsonl').slice(0, 3));
    const model = started(PROFILE, { kvEvents: true });
    const events: EngineEvent[] = [];
    recorded.forEach(([stored], at) => {
      const identity = { salt: stored!.salt ?? undefined, lora: stored!.lora ?? undefined };
      const ids = Uint32Array.from([...stored!.tokenIds, 5]);
      const sequence = tokenSequence(ids, PROFILE.blockTokens, identity);
      model.submit({ id: `${at}`, sequence, answerTokens: 1, finishReason: 'stop' }, at * 10_000);
      events.push(...drain(model));
    });
    expect(toldByModel(batchesOf(events))).toEqual(recorded);
  });

  it('remove blocks one by one, of each sequence the last first', () => {
    const recorded = toldByRecording(recordedBatches('kv-events.jsonl'));
    const evicting = recorded.find((batch) => batch.some(({ kind }) => kind === 'removed'))!;
    const known = evicting.filter(({ kind }) => kind === 'removed').map(({ blocks }) => blocks);
    expect(known.every((blocks) => blocks.length === 1)).toBe(true);
    const ofOneSequence = known.slice(0, 14).map(([block]) => block!);
    expect(ofOneSequence).toEqual(ofOneSequence.toSorted((a, b) => b - a));

    const model = started({ ...SMALL, kvBlocks: 9 }, { kvEvents: true });
    model.submit(request('a', { tokens: 97, from: 1 }), 0);
    const [first] = toldByModel(batchesOf(drain(model)));
    expect(first).toMatchObject([{ kind: 'stored', blocks: [0, 1, 2, 3] }]);
    model.submit(request('b', { tokens: 81, from: 2 }), 1_000);
    const batches = batchesOf(drain(model)).flat();
    const gone = batches.flatMap((event) => (event.kind === 'removed' ? [event.keys] : []));
    const { sequence } = request('a', { tokens: 97, from: 1 });
    expect(gone).toEqual([5, 4, 3, 2].map((index) => [sequence.blockKey(index)]));
  });
});

describe('KV events', () => {
  it('tell of a cleared cache with the next step, before what that step stores', () => {
    const model = started(SMALL, { kvEvents: true });
    model.submit(request('a', { tokens: 40 }), 0);
    drain(model);
    expect(model.resetPrefixCache()).toBe(true);
    expect(drain(model)).toEqual([]);
    model.submit(request('b', { tokens: 20 }), 1_000);
    const kinds = batchesOf(drain(model)).map((batch) => batch.map(({ kind }) => kind));
    expect(kinds).toEqual([['cleared', 'stored']]);
  });

  it('tell nothing of a restart, after which everything is stored anew', () => {
    const model = started(SMALL, { kvEvents: true });
    model.submit(request('a', { tokens: 40, answer: 20 }), 0);
    model.advance(5);
    model.crash(6);
    model.restart(1_000, 0);
    expect(batchesOf(drain(model))).toEqual([]);
    model.submit(request('a', { tokens: 40 }), 2_000);
    const [batch, ...others] = batchesOf(drain(model));
    expect([batch!.map(({ kind }) => kind), others]).toEqual([['stored'], []]);
  });

  it('are not told where nobody asked, nor for steps that change nothing', () => {
    const silent = started();
    silent.submit(request('a', { tokens: 40, answer: 30 }), 0);
    expect(batchesOf(drain(silent))).toEqual([]);
    const model = started(SMALL, { kvEvents: true });
    model.submit(request('a', { tokens: 40, answer: 9 }), 0);
    expect(batchesOf(drain(model)).map((batch) => batch.length)).toEqual([1, 1]);
  });

  it('tell of two blocks where two requests computed the same content at once', () => {
    const model = started(SMALL, { kvEvents: true });
    for (const id of ['a', 'b']) model.submit(request(id, { tokens: 32 }), 0);
    const stored = batchesOf(drain(model)).flat();
    const last = request('a', { tokens: 32 }).sequence.blockKey(1);
    const copies = stored.filter(({ kind, ...event }) => {
      return kind === 'stored' && 'keys' in event && event.keys.includes(last);
    });
    expect(copies.length).toBe(2);
  });

  const action = fc.oneof(
    fc.record({
      kind: fc.constant('submit' as const),
      from: fc.nat(3),
      tokens: fc.integer({ min: 1, max: 200 }),
      answer: fc.integer({ min: 1, max: 60 }),
      salt: fc.constantFrom(undefined, 'tenant'),
    }),
    fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(120) }),
    fc.record({ kind: fc.constant('abort' as const) }),
    fc.record({ kind: fc.constant('reset' as const) }),
  );

  it('applied with a count of copies, say after every step exactly what can be found', () => {
    fc.assert(
      fc.property(fc.array(action, { maxLength: 50 }), (actions) => {
        const model = started({ ...SMALL, kvBlocks: 25 }, { kvEvents: true });
        const mirror = new Mirror();
        let nowMs = 0;
        actions.forEach((each, at) => {
          if (each.kind === 'submit') {
            const { tokens, from, answer, salt } = each;
            model.submit(request(`${at}`, { tokens, from, answer, identity: { salt } }), nowMs);
          } else if (each.kind === 'abort') model.abort(`${at - 1}`);
          else if (each.kind === 'reset') model.resetPrefixCache();
          else nowMs += each.ms;
          mirror.follow(model, nowMs);
        });
        mirror.follow(model, Infinity);
      }),
      { numRuns: 150 },
    );
  });
});

/** What a listener believes, checked against the cache as it was when the step ended. */
class Mirror {
  readonly #copies = new Map<number, number>();

  follow(model: EngineModel, untilMs: number): void {
    let atStepEnd: Map<number, number> | null = null;
    model.onStep = () => (atStepEnd = model.cachedKeys());
    for (let next = model.nextEventMs(); next !== null && next <= untilMs;) {
      for (const batch of batchesOf(model.advance(next))) {
        expect(batch.length).toBeGreaterThan(0);
        for (const event of batch) this.#apply(event);
      }
      if (atStepEnd !== null) expect(this.#copies).toEqual(atStepEnd);
      atStepEnd = null;
      next = model.nextEventMs();
    }
  }

  #apply(event: KvEvent): void {
    if (event.kind === 'cleared') return this.#copies.clear();
    const change = event.kind === 'stored' ? 1 : -1;
    for (const key of event.keys) {
      const copies = (this.#copies.get(key) ?? 0) + change;
      expect(copies).toBeGreaterThanOrEqual(0);
      if (copies === 0) this.#copies.delete(key);
      else this.#copies.set(key, copies);
    }
  }
}
