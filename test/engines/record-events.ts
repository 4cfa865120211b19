// Recordings of what the engine does beside answering: sleep, resets under a running request, a full KV cache, clients
// that leave, and the KV events of two ranks. Each is a list of what was done and what was seen, in order.

import { call, type Call, type Stream } from '../conformance/client.ts';
import { complete, completionBody, stream } from '../conformance/generate.ts';
import { KvFeed, type WireBatch } from '../conformance/kv-feed.ts';
import { untilIdle, watch } from '../conformance/counters.ts';
import { freshTokens } from '../conformance/prompts.ts';
import { eventually } from '../conformance/run.ts';
import type { ConformanceSubject } from '../conformance/subject.ts';
import { sample } from './record-mixed.ts';

interface Step {
  /** ms since the recording began. */
  readonly atMs: number;
  readonly did: string;
  readonly status?: number;
  readonly body?: string;
  readonly seen?: object;
}

class Journal {
  readonly steps: Step[] = [];
  readonly #url: string;
  readonly #startMs = performance.now();

  constructor({ url }: ConformanceSubject) {
    this.#url = url;
  }

  add(did: string, rest: Omit<Step, 'atMs' | 'did'> = {}): void {
    this.steps.push({ atMs: Math.round(performance.now() - this.#startMs), did, ...rest });
  }

  async call(path: string, options: Call = {}): Promise<void> {
    const answer = await call(this.#url, path, options);
    const method = options.method ?? (options.body === undefined ? 'GET' : 'POST');
    this.add(`${method} ${path}`, { status: answer.status, body: answer.text });
  }

  async look(): Promise<void> {
    this.add('GET /metrics', { seen: await sample(this.#url) });
  }

  /** The lines of the exposition that match. */
  async lines(pattern: RegExp): Promise<void> {
    const { text } = await call(this.#url, '/metrics');
    const lines = text.split('\n').filter((line) => pattern.test(line));
    this.add(`lines of /metrics: ${pattern.source}`, { body: lines.join('\n') });
  }
}

/** Asleep at level 1: what answers, what waits, what is in the cache afterwards. */
export async function recordSleep(subject: ConformanceSubject): Promise<object> {
  const journal = new Journal(subject);
  const prompt = freshTokens(321);
  const ask = { body: completionBody(subject, { prompt, tokens: 2 }) };
  await journal.call('/v1/completions', ask);
  await journal.call('/v1/completions', ask);
  await journal.call('/sleep?level=1', { method: 'POST' });
  await journal.call('/is_sleeping');
  await journal.call('/health');
  await journal.lines(/sleep/);
  const waiting = journal.call('/v1/completions', ask);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await journal.look();
  await journal.call('/wake_up', { method: 'POST' });
  await waiting;
  await journal.call('/is_sleeping');
  await journal.lines(/sleep/);
  return { steps: journal.steps };
}

/** `/reset_prefix_cache` while a request runs, without and with `reset_running_requests`. */
export async function recordReset(subject: ConformanceSubject): Promise<object> {
  const journal = new Journal(subject);
  const feed = await KvFeed.open(subject);
  try {
    await untilIdle(subject);
    const from = feed.batches.length;
    const open = await stream(subject, { prompt: freshTokens(400), tokens: 300 });
    await eventually('tokens', () => (open.events.length > 5 ? true : null));
    for (const query of ['', '?reset_running_requests=true']) {
      await journal.look();
      await journal.call(`/reset_prefix_cache${query}`, { method: 'POST' });
    }
    await open.end;
    await journal.look();
    await journal.call('/reset_prefix_cache', { method: 'POST' });
    const chunksAtMs = open.events.map(({ atMs }) => Math.round(atMs));
    return { steps: journal.steps, chunksAtMs, kvEvents: wireLines(feed.batches.slice(from)) };
  } finally {
    feed.close();
  }
}

/** Eight answers that do not fit together: gauges and counters until all are whole. */
export async function recordPreemption(subject: ConformanceSubject): Promise<object> {
  const { kvBlocks, blockTokens, maxNumSeqs } = subject.sizes;
  await untilIdle(subject);
  const tokens = Math.floor(((kvBlocks - 1) * blockTokens * 0.6) / maxNumSeqs);
  const streams: Stream[] = [];
  const before = await sample(subject.url);
  for (let at = 0; at < maxNumSeqs; at += 1) {
    streams.push(await stream(subject, { prompt: freshTokens(tokens), tokens }));
  }
  const looks: object[] = [before];
  const { readings } = await watch(subject, Promise.all(streams.map((each) => each.end)), 200);
  for (const reading of readings) {
    looks.push({
      atMs: Math.round(reading.atMs - (streams[0]?.openedMs ?? 0)),
      running: reading.count('num_requests_running'),
      waiting: reading.count('num_requests_waiting'),
      kvUsage: reading.count('kv_cache_usage_perc'),
      preemptions: reading.count('num_preemptions_total'),
      generated: reading.count('generation_tokens_total'),
      promptTokens: reading.count('prompt_tokens_total'),
      queries: reading.count('prefix_cache_queries_total'),
      hits: reading.count('prefix_cache_hits_total'),
    });
  }
  const requests = streams.map((each) => ({
    sentAtMs: Math.round(each.openedMs - (streams[0]?.openedMs ?? 0)),
    promptTokens: tokens,
    answerTokens: tokens,
    tokensAtMs: each.events.map(({ atMs }) => Math.round(atMs)),
  }));
  return { kvBlocks, blockTokens, requests, looks, after: await sample(subject.url) };
}

/** A stream and an answer in one piece that are left: gauges until nothing is held. */
export async function recordLeaving(subject: ConformanceSubject): Promise<object> {
  const journal = new Journal(subject);
  for (const kind of ['mid-stream', 'mid-prefill', 'in one piece'] as const) {
    await untilIdle(subject);
    await journal.look();
    const long = kind === 'mid-prefill';
    const prompt = freshTokens(long ? Math.floor(subject.sizes.maxModelLen * 0.9) : 200);
    const away = new AbortController();
    const body = completionBody(subject, { prompt, tokens: 4_000 });
    const sent = call(subject.url, '/v1/completions', {
      body: { ...body, stream: kind !== 'in one piece' },
      signal: away.signal,
    }).catch(() => null);
    await new Promise((resolve) => setTimeout(resolve, long ? 400 : 700));
    await journal.look();
    away.abort();
    journal.add(`left ${kind}`);
    await sent;
    for (let at = 0; at < 6; at += 1) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      await journal.look();
    }
  }
  return { steps: journal.steps };
}

/** KV events of both ranks, as lines of a `.jsonl`. */
export async function recordRankEvents(subject: ConformanceSubject): Promise<string> {
  const feeds: KvFeed[] = [];
  const ask = (rank: number, prompt: readonly number[]): Promise<unknown> =>
    call(subject.url, '/v1/completions', {
      body: completionBody(subject, { prompt, tokens: 40 }),
      headers: { 'X-data-parallel-rank': String(rank) },
    });
  try {
    for (const rank of [0, 1]) {
      const nudge = () => ask(rank, freshTokens(subject.sizes.blockTokens + 1));
      feeds.push(await KvFeed.open(subject, rank, nudge));
    }
    const prompt = freshTokens(200);
    for (const rank of [0, 1, 0, 1]) await ask(rank, prompt);
    await Promise.all([0, 1].map((rank) => ask(rank, freshTokens(1_500))));
    await complete(subject, { prompt: freshTokens(300), tokens: 4 });
    await untilIdle(subject);
    await new Promise((resolve) => setTimeout(resolve, 500));
    return feeds.flatMap((feed) => wireLines(feed.batches)).join('\n') + '\n';
  } finally {
    for (const feed of feeds) feed.close();
  }
}

function wireLines(batches: readonly WireBatch[]): string[] {
  return batches.map(({ topic, seq, payload, atSeconds }) =>
    JSON.stringify({
      atMs: Math.round(atSeconds * 1_000),
      topic,
      seq,
      payloadBase64: payload.toString('base64'),
    }),
  );
}
