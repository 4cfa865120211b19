// Answers one generation request: streamed event by event, or whole.
//
// As in vLLM, a stream's 200 goes out before the request is queued, so what fails later is an event in it; the
// first data event comes with the first token; a client that goes away aborts the work.

import type { ServerResponse } from 'node:http';

import type { EngineDriver } from '../driver.ts';
import { GenerationRun, type GenerationListener, type GenerationPlan } from '../generation.ts';
import { CORE_DEAD, QUEUE_FULL, sendReply, sendStreamHead, type Reply } from '../reply.ts';
import type { Generation } from './parse.ts';
import type { Voice } from './voice.ts';

export interface GenerateContext {
  readonly driver: EngineDriver;
  /** Unique among open requests. */
  readonly id: string;
  readonly wallMs: () => number;
  readonly headers: Readonly<Record<string, string>>;
  /** Of a whole answer, as they are when it is sent. */
  readonly wholeHeaders: () => Readonly<Record<string, string>>;
  readonly voiceOf: (run: GenerationRun) => Voice;
  /** The protocol's own envelope. */
  readonly refusal: (reply: Reply) => Reply;
  /** It was taken. */
  readonly started: (run: GenerationRun) => void;
}

export function answerGeneration(
  context: GenerateContext,
  generation: Generation,
  response: ServerResponse,
): void {
  const run = new GenerationRun(context.driver, planOf(context.id, generation));
  const voice = context.voiceOf(run);
  response.once('close', () => {
    if (!response.writableFinished) run.abort();
  });
  const { stream } = generation;
  const listener = stream ? streamed(voice, response) : collected(context, voice, response);
  const fault = run.submit(listener);
  if (fault !== null) {
    const reply = context.refusal(fault === 'queue_full' ? QUEUE_FULL : CORE_DEAD);
    sendReply(response, { ...reply, headers: context.headers }, context.wallMs());
    return;
  }
  context.started(run);
  if (!stream) return;
  sendStreamHead(response, context.wallMs(), context.headers);
  const opening = voice.opening();
  if (opening !== '') response.write(opening);
}

function planOf(id: string, generation: Generation): GenerationPlan {
  const { prompts, n, maxTokens, minTokens, ignoreEos, stop, includeStop, seed } = generation;
  const { forced, cacheSalt, lora, priority, varied } = generation;
  return {
    ...{ id, prompts, n, maxTokens, minTokens, ignoreEos, stop, includeStop, seed },
    ...{ forced, cacheSalt, lora, priority, varied },
  };
}

function streamed(voice: Voice, response: ServerResponse): GenerationListener {
  const write = (text: string): void => {
    if (text !== '') response.write(text);
  };
  return {
    token: (choice, piece) => write(voice.token(choice, piece)),
    cut: (choice, reason) => write(voice.cut(choice, reason)),
    ended: () => response.end(voice.ending()),
    failed: () => {
      const failure = voice.failure();
      if (failure === null) response.destroy();
      else response.end(failure);
    },
  };
}

function collected(
  context: GenerateContext,
  voice: Voice,
  response: ServerResponse,
): GenerationListener {
  return {
    token: () => {},
    ended: () => {
      const headers = { ...context.headers, ...context.wholeHeaders() };
      sendReply(response, { status: 200, body: voice.whole(), headers }, context.wallMs());
    },
    failed: () => {
      const reply = context.refusal(CORE_DEAD);
      sendReply(response, { ...reply, headers: context.headers }, context.wallMs());
    },
  };
}
