// A load of multi-turn conversations as people hold them: they arrive at random, each turn sends the whole history, the
// person thinks, then answers. Half of the conversations share one long system prompt. The plan is made from a seed
// before anything runs, so that two arms of a comparison see the same conversations.

import OpenAI from 'openai';
import type { Random } from '../../shared/lib/random.ts';
import { prose, question } from './prose.ts';
import { delay } from './wait.ts';
import { MODEL } from './vllm.ts';

export interface LoadShape {
  readonly conversations: number;
  /** New conversations per second. */
  readonly perSecond: number;
  readonly turns: number;
  /** Least and most tokens of an answer; short ones where absent. */
  readonly answerTokens?: readonly [number, number];
}

export interface PlannedConversation {
  readonly index: number;
  readonly startAtMs: number;
  readonly system: string | null;
  readonly turns: readonly PlannedTurn[];
}

export interface PlannedTurn {
  readonly text: string;
  readonly maxTokens: number;
  readonly streamed: boolean;
  /** Whether the client asks for the usage chunk of a stream. */
  readonly asksUsage: boolean;
  /** ms that the person reads and writes before this turn. */
  readonly thinkMs: number;
}

export interface TurnRecord {
  readonly conversation: number;
  readonly turn: number;
  readonly streamed: boolean;
  readonly askedUsage: boolean;
  /** Turns of this load that were open when it was sent. */
  readonly othersOpen: number;
  readonly headers: Readonly<Record<string, string>>;
  /** To the first piece of text; null when not streamed or failed. */
  readonly ttftMs: number | null;
  readonly totalMs: number;
  readonly text: string;
  readonly finished: boolean;
  readonly usage: TurnUsage | null;
  readonly error: string | null;
}

export interface TurnUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number | null;
  readonly completionTokens: number;
}

type Messages = OpenAI.ChatCompletionMessageParam[];

const SYSTEM_BYTES = 2_400;
const FIRST_BYTES = [2_500, 10_000] as const;
const NEXT_BYTES = [150, 900] as const;
const THINK_MS = [500, 3_000] as const;
const ANSWER_TOKENS = [16, 48] as const;

/** `name` stands at the head of every prompt, so that loads of different names share no prefix at all. */
export function planConversations(
  name: string,
  shape: LoadShape,
  random: Random,
): PlannedConversation[] {
  const head = `Notes of ${name}. `;
  const system = `${head}You answer questions about long texts.\n${prose(random, SYSTEM_BYTES)}`;
  const plan: PlannedConversation[] = [];
  let startAtMs = 0;
  for (let index = 0; index < shape.conversations; index++) {
    plan.push({
      index,
      startAtMs,
      system: index % 2 === 0 ? system : null,
      turns: Array.from({ length: shape.turns }, (_, turn) => {
        const planned = planTurn(turn, shape.answerTokens ?? ANSWER_TOKENS, random);
        return turn === 0 ? { ...planned, text: head + planned.text } : planned;
      }),
    });
    startAtMs += (-Math.log(1 - random.next()) / shape.perSecond) * 1_000;
  }
  return plan;
}

function planTurn(
  turn: number,
  answerTokens: readonly [number, number],
  random: Random,
): PlannedTurn {
  const bytes = Math.round(between(random, turn === 0 ? FIRST_BYTES : NEXT_BYTES));
  return {
    text: `${prose(random, bytes)}\n${question(random)}`,
    maxTokens: Math.round(between(random, answerTokens)),
    streamed: random.next() < 0.75,
    asksUsage: random.next() < 0.5,
    thinkMs: turn === 0 ? 0 : between(random, THINK_MS),
  };
}

function between(random: Random, [low, high]: readonly [number, number]): number {
  return low + (high - low) * random.next();
}

/** Holds all conversations; `clientOf` says whom each of them speaks to. */
export async function holdConversations(
  plan: readonly PlannedConversation[],
  clientOf: (conversation: number) => OpenAI,
): Promise<TurnRecord[]> {
  const records: TurnRecord[] = [];
  const open = { turns: 0 };
  await Promise.all(
    plan.map(async (conversation) => {
      await delay(conversation.startAtMs);
      await holdOne({ conversation, client: clientOf(conversation.index), records, open });
    }),
  );
  return records;
}

interface Talk {
  readonly conversation: PlannedConversation;
  readonly client: OpenAI;
  readonly records: TurnRecord[];
  readonly open: { turns: number };
}

async function holdOne({ conversation, client, records, open }: Talk): Promise<void> {
  const history: Messages =
    conversation.system === null ? [] : [{ role: 'system', content: conversation.system }];
  for (const [turn, planned] of conversation.turns.entries()) {
    await delay(planned.thinkMs);
    history.push({ role: 'user', content: planned.text });
    const othersOpen = open.turns;
    open.turns += 1;
    const answer = await askModel(client, history, planned);
    open.turns -= 1;
    records.push({
      conversation: conversation.index,
      turn,
      streamed: planned.streamed,
      askedUsage: planned.streamed && planned.asksUsage,
      othersOpen,
      ...answer,
    });
    if (answer.error !== null) return;
    history.push({ role: 'assistant', content: answer.text });
  }
}

export type Answer = Omit<
  TurnRecord,
  'conversation' | 'turn' | 'streamed' | 'askedUsage' | 'othersOpen'
>;

export interface Question {
  readonly maxTokens: number;
  readonly streamed: boolean;
  readonly asksUsage: boolean;
}

/** One request through the official SDK; a failure is a value. */
export async function askModel(
  client: OpenAI,
  messages: Messages,
  question: Question,
): Promise<Answer> {
  const startMs = performance.now();
  const progress: Progress = {
    headers: {},
    ttftMs: null,
    text: '',
    finished: false,
    usage: null,
    error: null,
  };
  try {
    await (question.streamed
      ? readStream(client, messages, { question, startMs, progress })
      : readWhole(client, messages, { question, startMs, progress }));
  } catch (error) {
    progress.error = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  }
  return { ...progress, totalMs: performance.now() - startMs };
}

interface Progress {
  headers: Record<string, string>;
  ttftMs: number | null;
  text: string;
  finished: boolean;
  usage: TurnUsage | null;
  error: string | null;
}

interface Reading {
  readonly question: Question;
  readonly startMs: number;
  readonly progress: Progress;
}

async function readStream(client: OpenAI, messages: Messages, reading: Reading): Promise<void> {
  const { question, startMs, progress } = reading;
  const { data, response } = await client.chat.completions
    .create({
      model: MODEL,
      messages,
      max_tokens: question.maxTokens,
      stream: true,
      ...(question.asksUsage ? { stream_options: { include_usage: true } } : {}),
    })
    .withResponse();
  progress.headers = Object.fromEntries(response.headers);
  for await (const chunk of data) {
    const choice = chunk.choices[0];
    if (choice?.delta.content) {
      progress.ttftMs ??= performance.now() - startMs;
      progress.text += choice.delta.content;
    }
    if (choice?.finish_reason) progress.finished = true;
    if (chunk.usage) progress.usage = usageOf(chunk.usage);
  }
}

async function readWhole(client: OpenAI, messages: Messages, reading: Reading): Promise<void> {
  const { question, progress } = reading;
  const { data, response } = await client.chat.completions
    .create({ model: MODEL, messages, max_tokens: question.maxTokens })
    .withResponse();
  progress.headers = Object.fromEntries(response.headers);
  const choice = data.choices[0];
  progress.text = choice?.message.content ?? '';
  progress.finished = Boolean(choice?.finish_reason);
  if (data.usage) progress.usage = usageOf(data.usage);
}

function usageOf(usage: OpenAI.CompletionUsage): TurnUsage {
  return {
    promptTokens: usage.prompt_tokens,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? null,
    completionTokens: usage.completion_tokens,
  };
}

/** The client carries a key of its own, which no engine may ever see, and never retries by itself. */
export function clientFor(baseUrl: string, fetcher?: typeof fetch): OpenAI {
  return new OpenAI({
    ...(fetcher === undefined ? {} : { fetch: fetcher }),
    apiKey: 'a-client-key',
    baseURL: `${baseUrl}/v1`,
    maxRetries: 0,
    timeout: 120_000,
  });
}
