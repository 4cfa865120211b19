// The clients of a soak: many short answers as JSON, some conversations in streams whose turns build on the answers, a few
// long streams; each at its own pace, so that the region has room. Every answer is checked against what the simulated
// engine must say to its prompt.

import { Agent, errors, request, type Dispatcher } from 'undici';
import type { Random } from '../../shared/lib/random.ts';
import { expectedAnswer, type ChatMessage } from './answers.ts';
import type { Ended, Kind } from './verdict.ts';

export interface ClientsOptions {
  readonly model: string;
  /** One a router; asked each time, since a port may change. */
  readonly urls: readonly (() => string)[];
  /** Requests a second of all together, at most. */
  readonly rate: number;
  readonly random: Random;
  readonly ended: (ended: Ended) => void;
}

const CLIENTS = 32;
/** A client waits so long for anything to come. */
const HANG_MS = 40_000;
/** After an end that is no answer. */
const AGAIN_MS = 200;
const LONG_SHARE = 0.02;
const TALK_SHARE = 0.02;
const TURNS = 3;

interface Ask {
  readonly kind: Kind;
  readonly messages: readonly ChatMessage[];
  readonly tokens: number;
}

export class SoakClients {
  private readonly options: ClientsOptions;
  private readonly agent = new Agent({
    connections: null,
    headersTimeout: HANG_MS,
    bodyTimeout: HANG_MS,
  });
  private readonly running: Promise<void>[];
  private asked = 0;
  private stopped = false;

  constructor(options: ClientsOptions) {
    this.options = options;
    this.running = Array.from({ length: CLIENTS }, (_, number) => this.client(number));
  }

  /** What is under way ends first. */
  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.running);
    await this.agent.close();
  }

  private async client(number: number): Promise<void> {
    const { random, rate, urls } = this.options;
    const router = number % urls.length;
    const everyMs = (CLIENTS / rate) * 1_000;
    let nextMs = performance.now() + random.next() * everyMs;
    while (!this.stopped) {
      const kind = this.kind();
      const messages: ChatMessage[] = [];
      for (let turn = 0; turn < (kind === 'talk' ? TURNS : 1) && !this.stopped; turn += 1) {
        await pause(nextMs - performance.now());
        // What was missed is not made up for: that would be a flood after each trouble.
        nextMs = Math.max(nextMs + everyMs, performance.now());
        const ask = this.next(kind, messages);
        const ended = await this.ask(router, ask);
        this.options.ended(ended);
        if (ended.end !== 'complete') {
          await pause(AGAIN_MS);
          break;
        }
        const content = expectedAnswer(ask.messages, ask.tokens);
        messages.push(...ask.messages.slice(messages.length), { role: 'assistant', content });
      }
    }
  }

  private kind(): Kind {
    const drawn = this.options.random.next();
    if (drawn < LONG_SHARE) return 'long';
    return drawn < LONG_SHARE + TALK_SHARE ? 'talk' : 'json';
  }

  private next(kind: Kind, before: readonly ChatMessage[]): Ask {
    const { random } = this.options;
    this.asked += 1;
    const words = kind === 'json' ? '' : 'lorem ipsum dolor sit '.repeat(kind === 'talk' ? 40 : 12);
    const content = `Request ${this.asked}: say something of it. ${words}`;
    const tokens = {
      json: 1 + Math.floor(random.next() * 4),
      talk: 10 + Math.floor(random.next() * 20),
      long: 100 + Math.floor(random.next() * 200),
    }[kind];
    return { kind, messages: [...before, { role: 'user', content }], tokens };
  }

  private async ask(router: number, ask: Ask): Promise<Ended> {
    const fromMs = performance.now();
    const told = { text: '', ended: false, error: null as string | null };
    let end: Ended['end'] | null = null;
    let detail = '';
    try {
      const answer = await this.send(router, ask);
      if (answer.statusCode !== 200) {
        end = 'refused';
        detail = `${answer.statusCode} ${(await answer.body.text()).slice(0, 200)}`;
      } else if (ask.kind === 'json') readJson(await answer.body.text(), told);
      else await readEvents(answer.body, told);
    } catch (error) {
      detail = String(error);
      if (isTimeout(error)) end = 'hung';
      else end = told.text === '' ? 'unconnected' : 'interrupted';
    }
    if (end === null && told.error !== null) {
      end = told.text === '' ? 'refused' : 'interrupted';
      detail = told.error;
    }
    if (end === null) {
      detail = differenceOf(told, expectedAnswer(ask.messages, ask.tokens)) ?? '';
      end = detail === '' ? 'complete' : 'wrong';
    }
    return { kind: ask.kind, router, end, fromMs, toMs: performance.now(), detail };
  }

  private send(router: number, ask: Ask): Promise<Dispatcher.ResponseData> {
    const url = this.options.urls[router]?.() ?? '';
    const stream = ask.kind !== 'json';
    return request(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: this.options.model,
        messages: ask.messages,
        max_tokens: ask.tokens,
        stream,
      }),
      dispatcher: this.agent,
    });
  }
}

interface Told {
  text: string;
  /** As the protocol ends it, with the finish reason that is due. */
  ended: boolean;
  error: string | null;
}

function differenceOf(told: Told, expected: string): string | null {
  if (!told.ended) return `ended without an end after ${told.text.length} characters`;
  if (told.text === expected) return null;
  return `"${told.text.slice(0, 80)}" instead of "${expected.slice(0, 80)}"`;
}

function readJson(text: string, told: Told): void {
  const { choices } = JSON.parse(text) as {
    choices: { message: { content: string }; finish_reason: string }[];
  };
  told.text = choices[0]?.message.content ?? '';
  told.ended = choices[0]?.finish_reason === 'length';
}

async function readEvents(body: AsyncIterable<unknown>, told: Told): Promise<void> {
  let rest = '';
  let finish: string | null = null;
  for await (const piece of body) {
    const lines = (rest + String(piece)).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (!line.startsWith('data:')) continue;
      const data = line.slice(5).trim();
      if (data === '[DONE]') {
        told.ended = finish === 'length';
        continue;
      }
      const event = JSON.parse(data) as StreamEvent;
      if (event.error !== undefined) told.error = `error event ${event.error.code}`;
      told.text += event.choices?.[0]?.delta?.content ?? '';
      finish = event.choices?.[0]?.finish_reason ?? finish;
    }
  }
}

interface StreamEvent {
  readonly error?: { readonly code?: string };
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string };
    readonly finish_reason?: string | null;
  }[];
}

function isTimeout(error: unknown): boolean {
  return error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError;
}

function pause(ms: number): Promise<void> {
  return ms <= 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, ms));
}
