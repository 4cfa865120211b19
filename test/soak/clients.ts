// The clients of a soak: many short answers as JSON, some conversations in streams whose turns build on the answers, a few
// long streams; all together at a steady pace, so that the region has room. Each asks its own router as long as that calls itself
// ready, else another one, as behind a balancer. Every answer is checked against what the simulated engine must say to its
// prompt.

import { Agent, errors, request, type Dispatcher } from 'undici';
import type { Random } from '../../shared/lib/random.ts';
import { expectedAnswer, type ChatMessage } from './answers.ts';
import { differenceOf, readEvents, readJson, type Told } from './reading.ts';
import type { Ended, Kind } from './verdict.ts';

/** Base URLs; asked each time, since a port may change. */
export interface Door {
  readonly clients: () => string;
  readonly admin: () => string;
}

export interface ClientsOptions {
  readonly model: string;
  /** One a router. */
  readonly doors: readonly Door[];
  /** Requests a second of all together, at most. */
  readonly rate: number;
  readonly random: Random;
  readonly ended: (ended: Ended) => void;
}

/** More than are ever at work at once at the highest rate that two cores take: the pace is kept although some wait long. */
const CLIENTS = 64;
/** Between two looks at who is ready, ms: far less than a router goes on accepting for once it is not. */
const LOOK_MS = 100;
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
  private readonly watching: Promise<void>;
  private readonly ready = new Set<number>();
  private asked = 0;
  /** When whoever is free next asks, ms. */
  private nextMs = performance.now();
  private stopped = false;

  constructor(options: ClientsOptions) {
    this.options = options;
    this.watching = this.watch();
    this.running = Array.from({ length: CLIENTS }, (_, number) => this.client(number));
  }

  /** What is under way ends first. */
  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.running);
    await this.watching;
    await this.agent.close();
  }

  private async watch(): Promise<void> {
    while (!this.stopped) {
      await Promise.all(this.options.doors.map((door, at) => this.look(door, at)));
      await pause(LOOK_MS);
    }
  }

  private async look(door: Door, at: number): Promise<void> {
    const answer = await request(`${door.admin()}/readyz`).catch(() => null);
    await answer?.body.dump();
    if (answer?.statusCode === 200) this.ready.add(at);
    else this.ready.delete(at);
  }

  /** The client's own router, or one that is ready in its place. */
  private routerOf(number: number): number {
    const own = number % this.options.doors.length;
    const [other = own] = this.ready;
    return this.ready.has(own) ? own : other;
  }

  private async client(number: number): Promise<void> {
    while (!this.stopped) {
      const kind = this.kind();
      const messages: ChatMessage[] = [];
      for (let turn = 0; turn < (kind === 'talk' ? TURNS : 1) && !this.stopped; turn += 1) {
        await this.turn();
        const ask = this.next(kind, messages);
        const ended = await this.ask(this.routerOf(number), ask);
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

  /** What was missed is not made up for: that would be a flood after each trouble. */
  private async turn(): Promise<void> {
    const atMs = Math.max(this.nextMs, performance.now());
    this.nextMs = atMs + 1_000 / this.options.rate;
    await pause(atMs - performance.now());
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
    const told: Told = { text: '', ended: false, error: null };
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
      // Behind an error event the connection is cut: the event is what was told.
      if (told.error === null) {
        detail = String(error);
        end = endOf(error, told.text !== '');
      }
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
    const url = this.options.doors[router]?.clients() ?? '';
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

function endOf(error: unknown, begun: boolean): Ended['end'] {
  const { BodyTimeoutError, HeadersTimeoutError, HTTPParserError } = errors;
  if (error instanceof HeadersTimeoutError || error instanceof BodyTimeoutError) return 'hung';
  // It came to its end, and is neither HTTP nor JSON.
  if (error instanceof HTTPParserError || error instanceof SyntaxError) return 'wrong';
  return begun ? 'interrupted' : 'unconnected';
}

function pause(ms: number): Promise<void> {
  return ms <= 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, ms));
}
