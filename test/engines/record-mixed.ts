// `load-mixed.json`: conversations that arrive at random, half of them streamed, while counters and gauges are looked at;
// the engine does nothing else. What a cost curve can be learned from and tried on, behind four lone prefills as an
// agent calibrates with.

import { seededRandom, type Random } from '../../shared/lib/random.ts';
import { call, openStream } from '../conformance/client.ts';
import { parseExposition, valueOf } from '../conformance/exposition.ts';
import { coresOfGroup, coresOfOthers, processGroup, readCpu } from './cpu.ts';
import { prose } from './prose.ts';
import { KV_TOKENS, MODEL, type Engine } from './vllm.ts';
import { delay } from './wait.ts';

const SEED = 4;
const REQUESTS = 40;
const SPAN_MS = 60_000;
const SAMPLE_MS = 250;
const TURNS_MAX = 4;
const SHARED_BYTES = 5_000;
const FIRST_BYTES = [600, 24_000] as const;
const NEXT_BYTES = [200, 6_000] as const;
const ANSWER_TOKENS = [16, 200] as const;
/** Some 256 and 2,048 tokens, after nothing and after some 8,000. */
const LONE_BYTES = [870, 6_900] as const;
const CONTEXT_BYTES = 27_000;

/** Sampled every `SAMPLE_MS`; of histograms sum and count. */
const SAMPLED = [
  ...['num_requests_running', 'num_requests_waiting', 'kv_cache_usage_perc'],
  ...['prompt_tokens_total', 'prompt_tokens_cached_total', 'generation_tokens_total'],
  ...['prefix_cache_queries_total', 'prefix_cache_hits_total', 'num_preemptions_total'],
  ...['request_success_total'],
  ...[
    'time_to_first_token_seconds',
    'inter_token_latency_seconds',
    'request_queue_time_seconds',
    'request_prefill_time_seconds',
    'request_decode_time_seconds',
    'request_prefill_kv_computed_tokens',
    'iteration_tokens_total',
  ].flatMap((name) => [`${name}_sum`, `${name}_count`]),
];

interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

interface Conversation {
  readonly messages: Message[];
  turns: number;
  open: boolean;
}

interface RecordedRequest {
  readonly i: number;
  readonly conversation: number;
  readonly turn: number;
  readonly streamed: boolean;
  /** Unix ms. */
  readonly sentAtMs: number;
  /** ms from sent to the first token; null where the answer came in one piece. */
  readonly ttftMs: number | null;
  readonly e2eMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** ms from sent to each event that carried text; null where the answer came in one piece. */
  readonly tokensAtMs: readonly number[] | null;
}

interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

export async function recordMixedLoad(engine: Engine): Promise<object> {
  const random = seededRandom(SEED);
  const { url } = engine.place;
  // What a first request of its kind costs once is not part of what is recorded.
  await warmUp(url, random);
  const calibration = await lonePrefills(url, random);
  const before = readCpu();
  const load = runLoad(url, random);
  const metrics = await sampleUntil(url, load);
  const after = readCpu();
  const groups = [engine.pid, processGroup()];
  return {
    note: 'one vLLM 0.32.0 (CPU) on one core, steps of 1,024 tokens, 8 slots; times in ms',
    seed: SEED,
    kvTokens: KV_TOKENS,
    cores: {
      engine: round(coresOfGroup(before, after, engine.pid)),
      others: round(coresOfOthers(before, after, groups)),
    },
    calibration,
    requests: await load,
    metrics,
  };
}

async function warmUp(url: string, random: Random): Promise<void> {
  for (const bytes of [400, 4_000, 16_000]) {
    const messages = [{ role: 'user', content: prose(random, bytes) }];
    const body = { model: MODEL, messages, max_tokens: 20 };
    await call(url, '/v1/chat/completions', { body });
  }
}

type LonePrefill = Pick<RecordedRequest, 'ttftMs' | 'promptTokens' | 'cachedTokens'>;

async function lonePrefills(url: string, random: Random): Promise<LonePrefill[]> {
  const context = prose(random, CONTEXT_BYTES);
  const ask = (content: string): Promise<TurnAnswer> =>
    streamed(url, { model: MODEL, messages: [{ role: 'user', content }], max_tokens: 1 });
  await ask(context);
  const measured: LonePrefill[] = [];
  for (const before of ['', context]) {
    for (const bytes of LONE_BYTES) {
      const { usage, openedMs } = await ask(before + prose(random, bytes));
      measured.push({
        ttftMs: openedMs,
        promptTokens: usage.prompt_tokens,
        cachedTokens: usage.prompt_tokens_details.cached_tokens,
      });
    }
  }
  return measured;
}

/** Arrivals of a Poisson process; each is the next turn of a conversation that is not open, or a new one. */
async function runLoad(url: string, random: Random): Promise<RecordedRequest[]> {
  const shared = `You answer questions about long texts.\n${prose(random, SHARED_BYTES)}`;
  const conversations: Conversation[] = [];
  const running: Promise<RecordedRequest>[] = [];
  let dueMs = performance.now();
  for (let i = 0; i < REQUESTS; i += 1) {
    dueMs += (-Math.log(1 - random.next()) * SPAN_MS) / REQUESTS;
    await delay(Math.max(0, dueMs - performance.now()));
    const conversation = nextConversation(conversations, shared, random);
    const bytes = between(random, conversation.turns === 0 ? FIRST_BYTES : NEXT_BYTES);
    conversation.messages.push({ role: 'user', content: prose(random, bytes) });
    const ask = { i, streamed: i % 2 === 0, tokens: between(random, ANSWER_TOKENS) };
    running.push(takeTurn(url, conversation, { ...ask, at: conversations.indexOf(conversation) }));
  }
  return Promise.all(running);
}

function nextConversation(
  conversations: Conversation[],
  shared: string,
  random: Random,
): Conversation {
  const idle = conversations.filter(({ open, turns }) => !open && turns < TURNS_MAX);
  const known = idle[Math.floor(random.next() * idle.length)];
  if (known !== undefined && random.next() < 0.7) return known;
  const system: Message[] = random.next() < 0.5 ? [{ role: 'system', content: shared }] : [];
  const fresh: Conversation = { messages: system, turns: 0, open: false };
  conversations.push(fresh);
  return fresh;
}

interface Turn {
  readonly i: number;
  readonly at: number;
  readonly streamed: boolean;
  readonly tokens: number;
}

async function takeTurn(
  url: string,
  conversation: Conversation,
  turn: Turn,
): Promise<RecordedRequest> {
  conversation.open = true;
  conversation.turns += 1;
  const number = conversation.turns;
  const body = {
    model: MODEL,
    messages: [...conversation.messages],
    max_tokens: turn.tokens,
    ignore_eos: true,
  };
  const sentAtMs = Date.now();
  const startMs = performance.now();
  const answer = turn.streamed ? await streamed(url, body) : await whole(url, body);
  conversation.messages.push({ role: 'assistant', content: answer.text });
  conversation.open = false;
  return {
    i: turn.i,
    conversation: turn.at,
    turn: number,
    streamed: turn.streamed,
    sentAtMs,
    ttftMs: answer.tokensAtMs?.[0] ?? null,
    e2eMs: round(performance.now() - startMs),
    promptTokens: answer.usage.prompt_tokens,
    cachedTokens: answer.usage.prompt_tokens_details.cached_tokens,
    completionTokens: answer.usage.completion_tokens,
    tokensAtMs: answer.tokensAtMs,
  };
}

interface TurnAnswer {
  readonly text: string;
  readonly usage: Usage;
  /** The role comes with the first token, whether that is text or not; null where the answer came in one piece. */
  readonly openedMs: number | null;
  readonly tokensAtMs: readonly number[] | null;
}

async function streamed(url: string, body: object): Promise<TurnAnswer> {
  const stream = await openStream(url, '/v1/chat/completions', {
    ...body,
    stream_options: { include_usage: true },
  });
  if ((await stream.end) === 'cut') throw new Error('a stream was cut');
  let text = '';
  let usage: Usage | null = null;
  const tokensAtMs: number[] = [];
  for (const { atMs, data } of stream.events) {
    if (data === '[DONE]') continue;
    const chunk = JSON.parse(data) as {
      choices: { delta: { content?: string } }[];
      usage?: Usage | null;
    };
    usage = chunk.usage ?? usage;
    const piece = chunk.choices[0]?.delta.content ?? '';
    if (piece !== '') tokensAtMs.push(round(atMs));
    text += piece;
  }
  if (usage === null) throw new Error('a stream without usage');
  const openedMs = round(stream.events[0]?.atMs ?? Number.NaN);
  return { text, usage, openedMs, tokensAtMs };
}

async function whole(url: string, body: object): Promise<TurnAnswer> {
  const answer = await call(url, '/v1/chat/completions', { body });
  const parsed = JSON.parse(answer.text) as {
    choices: { message: { content: string } }[];
    usage: Usage;
  };
  const text = parsed.choices[0]?.message.content ?? '';
  return { text, usage: parsed.usage, openedMs: null, tokensAtMs: null };
}

async function sampleUntil(url: string, work: Promise<unknown>): Promise<object[]> {
  const samples: object[] = [];
  let open = true;
  const done = work.finally(() => {
    open = false;
  });
  done.catch(() => undefined);
  while (open) {
    const startMs = performance.now();
    samples.push(await sample(url));
    await delay(Math.max(0, SAMPLE_MS - (performance.now() - startMs)));
  }
  await done;
  samples.push(await sample(url));
  return samples;
}

/** Gauges and counters by their names, `local_compute` and `local_cache_hit` of the prompt tokens beside them. */
export async function sample(url: string): Promise<object> {
  const families = parseExposition((await call(url, '/metrics')).text);
  const values: Record<string, number | null> = { atMs: Date.now() };
  for (const name of SAMPLED) values[`vllm:${name}`] = valueOf(families, `vllm:${name}`);
  for (const source of ['local_compute', 'local_cache_hit']) {
    const name = 'vllm:prompt_tokens_by_source_total';
    values[`${name}{source="${source}"}`] = valueOf(families, name, { source });
  }
  return values;
}

function between(random: Random, [low, high]: readonly [number, number]): number {
  // Evenly in the logarithm: many short ones, some long ones.
  return Math.round(low * (high / low) ** random.next());
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
