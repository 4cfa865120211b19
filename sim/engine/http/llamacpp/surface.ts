// A llama.cpp server over HTTP: its one thread that computes, and how it ends.
//
// The port is open from the start: until the model is loaded every path is 503. There is no limit on waiting requests.
// `/slots` and `/metrics` are answered between two steps, so they hang with a model that hangs while health is well.
// SIGTERM and a failure of the device cut everything at once.

import type { ServerResponse } from 'node:http';

import { GenerationRun, type GenerationListener } from '../generation.ts';
import type { EngineHost, EngineSurface, HttpCall } from '../surface.ts';
import { endEvents, tokenEvents, wholeAnswer, type AnswerHead } from './answers.ts';
import { renderLlamacppMetrics } from './metrics.ts';
import {
  errorReply,
  LLAMACPP_BUILD,
  LOADING,
  routeRequest,
  slotTokens,
  type LlamacppGeneration,
  type LlamacppReply,
  type LlamacppServer,
} from './routes.ts';
import { SlotTable, timingsOf, type Timings } from './slots.ts';

/** How often a question that waits for the computing thread looks again. */
const WAIT_MS = 5;
const DONE = 'data: [DONE]\n\n';

interface Answer {
  readonly head: AnswerHead;
  readonly generation: LlamacppGeneration;
  readonly response: ServerResponse;
}

export function llamacppSurface(host: EngineHost): EngineSurface {
  return new LlamacppSurface(host);
}

class LlamacppSurface implements EngineSurface, LlamacppServer {
  readonly opensAheadMs: number;
  readonly kvEncoding = null;
  readonly host: EngineHost;
  readonly slots: SlotTable;

  constructor(host: EngineHost) {
    this.host = host;
    const { options, engines } = host;
    this.opensAheadMs = options.loadingMs ?? options.profile.loadingMs;
    const { model } = engines[0]!;
    this.slots = new SlotTable(model.profile.maxNumSeqs);
    model.onStep = (step) => this.slots.step(step);
  }

  answer(call: HttpCall, response: ServerResponse): void {
    if (this.host.engines[0]!.model.phase === 'loading') return this.#send(response, LOADING);
    const routed = routeRequest(this, call);
    if (routed.kind === 'reply') this.#send(response, routed.reply);
    else if (routed.kind === 'generation') this.#generate(routed.generation, response);
    else this.#betweenSteps(response, () => this.#send(response, routed.reply()));
  }

  metrics(): string {
    return renderLlamacppMetrics(this.slots);
  }

  coreDied(): void {
    this.host.exit(1);
  }

  terminate(): void {
    this.host.exit();
  }

  #generate(generation: LlamacppGeneration, response: ServerResponse): void {
    const engine = this.host.engines[0]!;
    const head: AnswerHead = {
      kind: generation.kind,
      id: `chatcmpl-${this.host.hex(32)}`,
      created: Math.floor(this.host.runtime.clock.wallMs() / 1_000),
      model: this.host.options.model,
      fingerprint: LLAMACPP_BUILD,
    };
    const room = slotTokens(this.host);
    const longest = Math.max(...generation.prompts.map(({ length }) => length));
    const maxTokens =
      generation.maxTokens === null ? null : Math.min(generation.maxTokens, room - longest);
    const run = new GenerationRun(engine, { ...generation, id: head.id, maxTokens });
    for (const { index, promptTokens } of run.choices) {
      this.slots.add(`${head.id}.${index}`, promptTokens);
    }
    response.once('close', () => {
      if (response.writableFinished) return;
      run.abort();
      this.#leave(run);
    });
    const fault = run.submit(this.#listener(run, { head, generation, response }));
    if (fault === null) return;
    this.#leave(run);
    this.#send(response, errorReply(500, 'server_error', fault));
  }

  #listener(run: GenerationRun, { head, generation, response }: Answer): GenerationListener {
    const { stream, includeUsage } = generation;
    return {
      token: (choice, piece) => {
        const atMs = run.driver.nowMs();
        const { cachedTokens } = choice;
        this.slots.token(`${head.id}.${choice.index}`, { atMs, cachedTokens });
        if (!stream) return;
        if (!response.headersSent) this.#beginStream(response);
        response.write(tokenEvents(head, choice, piece).map(event).join(''));
      },
      ended: () => {
        const timings = this.#leave(run);
        if (timings === null) return;
        if (!stream) {
          const body = wholeAnswer(head, run.choices, timings);
          return this.#send(response, { status: 200, body });
        }
        const events = endEvents(head, run.choices, { timings, includeUsage });
        response.end(events.map(event).join('') + DONE);
      },
      // The process goes with it: nobody answers.
      failed: () => {},
    };
  }

  /** Its slots are free again. Timings of its first answer; null where it had none. */
  #leave(run: GenerationRun): Timings | null {
    const nowMs = run.driver.nowMs();
    const [first] = run.choices.map(({ index }) =>
      this.slots.remove(`${run.plan.id}.${index}`, nowMs),
    );
    return first === undefined || first === null ? null : timingsOf(first, nowMs);
  }

  /** At the end of the step under way; at once where there is none. */
  #betweenSteps(response: ServerResponse, task: () => void): void {
    const engine = this.host.engines[0]!;
    if (response.destroyed) return;
    const hangs = engine.model.phase === 'frozen';
    const nextMs = this.slots.processing === 0 ? null : engine.model.nextEventMs();
    const waitMs = hangs ? WAIT_MS : (nextMs ?? engine.nowMs()) - engine.nowMs();
    if (waitMs <= 0) return task();
    this.host.after(waitMs, () => {
      engine.catchUp();
      if (engine.model.phase === 'frozen') this.#betweenSteps(response, task);
      else if (!response.destroyed) task();
    });
  }

  #beginStream(response: ServerResponse): void {
    this.#head(response);
    response.setHeader('content-type', 'text/event-stream');
    response.writeHead(200);
  }

  #send(response: ServerResponse, reply: LlamacppReply): void {
    const text = typeof reply.body === 'string' ? reply.body : JSON.stringify(reply.body);
    const bytes = Buffer.from(text, 'utf8');
    this.#head(response);
    response.setHeader('content-type', reply.contentType ?? 'application/json; charset=utf-8');
    response.setHeader('content-length', bytes.length);
    response.writeHead(reply.status);
    response.end(bytes);
  }

  #head(response: ServerResponse): void {
    response.sendDate = false;
    response.setHeader('server', 'llama.cpp');
    response.setHeader('access-control-allow-origin', '');
  }
}

function event(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`;
}
