// Real clients that ask without end, and what became of each request: the official SDK and raw HTTP, streamed and whole, in
// conversations whose turns build on the answers.
//
// The simulated engine's answer is a function of the prompt, four characters a token, and exactly `max_tokens` long. So
// whatever looks complete can be checked: its length, and its text against every other answer to the same prompt.

import OpenAI, { APIError } from 'openai';
import { Agent, request } from 'undici';

export type Way = 'sdk stream' | 'sdk whole' | 'raw stream' | 'raw whole';
type Message = { readonly role: 'user' | 'assistant'; readonly content: string };

export interface Outcome {
  readonly way: Way;
  readonly url: string;
  readonly client: number;
  /**
   * complete; interrupted: told so after tokens had come; failed: told so before any; wrong: it looks complete and is not,
   * or not this prompt's answer.
   */
  readonly end: 'complete' | 'interrupted' | 'failed' | 'wrong';
  readonly detail: string;
  readonly replica: string | null;
  readonly attempts: string | null;
}

export interface LoadOptions {
  readonly model: string;
  /** Where clients connect; one that is asked for each time may change. */
  readonly urls: readonly (() => string)[];
  readonly clientsPerUrl: number;
  /** Of the SDK and, for connections that fail, of raw clients. */
  readonly retries: number;
}

/** What came back, however it came. */
interface Answer {
  text: string;
  finish: string | null;
  /** An end as the protocol has it: `[DONE]`, or whole JSON. */
  ended: boolean;
  error: string | null;
  replica: string | null;
  attempts: string | null;
}

const WAYS: readonly Way[] = ['sdk stream', 'raw stream', 'sdk whole', 'raw whole'];
const TURNS = 4;
const NAMES = 6;
const TOKEN_CHARACTERS = 4;
const ASK_MS = 40_000;
/** ms before a raw client tries again, as long as the SDK waits. */
const RETRY_MS = 500;
/** ms before a client whose request has failed asks for something else. */
const AGAIN_MS = 100;

export class Load {
  readonly outcomes: Outcome[] = [];
  private readonly options: LoadOptions;
  private readonly known = new Map<string, string>();
  private readonly dispatcher = new Agent({ connections: null });
  private readonly clients: Promise<void>[];
  private stopped = false;

  constructor(options: LoadOptions) {
    this.options = options;
    this.clients = options.urls.flatMap((url, at) =>
      Array.from({ length: options.clientsPerUrl }, (_, each) =>
        this.client(url, at * options.clientsPerUrl + each),
      ),
    );
  }

  /** What ends from now on: `since(mark())`. */
  mark(): number {
    return this.outcomes.length;
  }

  since(mark: number): readonly Outcome[] {
    return this.outcomes.slice(mark);
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.clients);
    await this.dispatcher.close();
  }

  private async client(url: () => string, number: number): Promise<void> {
    for (let turn = number; !this.stopped; turn += 1) {
      await this.conversation(url, number, `client ${number}, talk ${turn % NAMES}`);
    }
  }

  private async conversation(url: () => string, client: number, name: string): Promise<void> {
    const messages: Message[] = [];
    for (let turn = 0; turn < TURNS && !this.stopped; turn += 1) {
      messages.push({
        role: 'user',
        content: `${name}, turn ${turn}. ${'lorem ipsum '.repeat(60)}`,
      });
      const way = WAYS[(turn + client) % WAYS.length] ?? 'sdk stream';
      const base = url();
      const tokens = way.endsWith('stream') ? 60 : 12;
      const answer = await this.ask(way, base, { messages, tokens });
      const outcome = this.judge({ way, url: base, client }, { messages, tokens, answer });
      this.outcomes.push(outcome);
      if (outcome.end === 'failed') await pause(AGAIN_MS);
      if (outcome.end !== 'complete') return;
      messages.push({ role: 'assistant', content: answer.text });
    }
  }

  private judge(
    from: Pick<Outcome, 'way' | 'url' | 'client'>,
    asked: {
      readonly messages: readonly Message[];
      readonly tokens: number;
      readonly answer: Answer;
    },
  ): Outcome {
    const { answer, tokens, messages } = asked;
    const { replica, attempts } = answer;
    const told = { ...from, replica, attempts };
    if (answer.error !== null) {
      const end = answer.text === '' ? 'failed' : 'interrupted';
      return { ...told, end, detail: answer.error };
    }
    const fault = this.faultOf(JSON.stringify(messages), answer, tokens);
    return { ...told, end: fault === null ? 'complete' : 'wrong', detail: fault ?? '' };
  }

  /** Null where it is what it looks like. */
  private faultOf(key: string, { text, finish, ended }: Answer, tokens: number): string | null {
    if (!ended) return `ended without an end: ${text.length} characters`;
    if (finish !== 'length') return `finish reason ${finish}`;
    if (text.length !== tokens * TOKEN_CHARACTERS)
      return `${text.length} characters of ${tokens} tokens`;
    const before = this.known.get(key);
    this.known.set(key, text);
    // Streamed and whole answers to one prompt have different lengths.
    const length = Math.min(before?.length ?? 0, text.length);
    return before === undefined || before.slice(0, length) === text.slice(0, length)
      ? null
      : 'another answer than before';
  }

  private async ask(
    way: Way,
    url: string,
    asked: { readonly messages: readonly Message[]; readonly tokens: number },
  ): Promise<Answer> {
    const answer: Answer = {
      text: '',
      finish: null,
      ended: false,
      error: null,
      replica: null,
      attempts: null,
    };
    const body = {
      model: this.options.model,
      messages: [...asked.messages],
      max_tokens: asked.tokens,
    };
    try {
      if (way === 'sdk stream') await this.sdkStream(url, body, answer);
      else if (way === 'sdk whole') await this.sdkWhole(url, body, answer);
      else await this.raw(url, { ...body, stream: way === 'raw stream' }, answer);
    } catch (error) {
      // Behind an error event the connection is cut.
      answer.error ??= said(error);
    }
    return answer;
  }

  private sdk(url: string): OpenAI {
    return new OpenAI({
      baseURL: `${url}/v1`,
      apiKey: 'unused',
      maxRetries: this.options.retries,
      timeout: ASK_MS,
    });
  }

  private async sdkStream(url: string, body: Body, answer: Answer): Promise<void> {
    const { data, response } = await this.sdk(url)
      .chat.completions.create({ ...body, stream: true })
      .withResponse();
    noteHeaders(answer, (name) => response.headers.get(name));
    for await (const part of data) {
      answer.text += part.choices[0]?.delta.content ?? '';
      answer.finish = part.choices[0]?.finish_reason ?? answer.finish;
    }
    // The SDK takes any clean end for one; the finish reason tells.
    answer.ended = true;
  }

  private async sdkWhole(url: string, body: Body, answer: Answer): Promise<void> {
    const { data, response } = await this.sdk(url)
      .chat.completions.create({ ...body, stream: false })
      .withResponse();
    noteHeaders(answer, (name) => response.headers.get(name));
    answer.text = data.choices[0]?.message.content ?? '';
    answer.finish = data.choices[0]?.finish_reason ?? null;
    answer.ended = true;
  }

  private async raw(url: string, body: Body & { stream: boolean }, answer: Answer): Promise<void> {
    const response = await this.connect(url, body);
    noteHeaders(answer, (name) => String(response.headers[name] ?? '') || null);
    if (response.statusCode !== 200) {
      answer.error = `${response.statusCode} ${(await response.body.text()).slice(0, 200)}`;
      return;
    }
    if (body.stream) return readEvents(response.body, answer);
    const read = (await response.body.json()) as OpenAI.ChatCompletion;
    answer.text = read.choices[0]?.message.content ?? '';
    answer.finish = read.choices[0]?.finish_reason ?? null;
    answer.ended = true;
  }

  /** A client that tries again where nothing has been answered, as SDKs do. */
  private async connect(url: string, body: object): Promise<Awaited<ReturnType<typeof request>>> {
    const send = () =>
      request(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
        dispatcher: this.dispatcher,
        headersTimeout: ASK_MS,
        bodyTimeout: ASK_MS,
      });
    for (let left = this.options.retries; ; left -= 1) {
      const answer = await send().catch((error: unknown) => {
        if (left === 0) throw error;
        return null;
      });
      if (answer !== null && (left === 0 || answer.headers['x-should-retry'] !== 'true'))
        return answer;
      await answer?.body.dump();
      await pause(RETRY_MS);
    }
  }
}

interface Body {
  readonly model: string;
  readonly messages: Message[];
  readonly max_tokens: number;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function noteHeaders(answer: Answer, header: (name: string) => string | null): void {
  answer.replica = header('x-spillway-replica');
  answer.attempts = header('x-spillway-attempts');
}

async function readEvents(body: AsyncIterable<unknown>, answer: Answer): Promise<void> {
  let rest = '';
  for await (const piece of body) {
    const lines = (rest + String(piece)).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) readLine(line, answer);
  }
}

function readLine(line: string, answer: Answer): void {
  if (!line.startsWith('data:')) return;
  const data = line.slice(5).trim();
  if (data === '[DONE]') {
    answer.ended = true;
    return;
  }
  const event = JSON.parse(data) as OpenAI.ChatCompletionChunk & { error?: { code?: string } };
  if (event.error !== undefined) {
    answer.error = `error event ${event.error.code}`;
    return;
  }
  answer.text += event.choices[0]?.delta.content ?? '';
  answer.finish = event.choices[0]?.finish_reason ?? answer.finish;
}

function said(error: unknown): string {
  if (error instanceof APIError && error.status !== undefined)
    return `${error.status} ${error.code}`;
  if (error instanceof APIError && typeof error.code === 'string')
    return `error event ${error.code}`;
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
