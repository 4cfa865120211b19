// Answers one generation request: streamed event by event, or whole.
//
// As in vLLM, a stream's 200 goes out before the request is queued, so what fails later is an event in it; the
// first data event comes with the first token; a client that goes away aborts the work.

import type { ServerResponse } from 'node:http';

import type { EngineDriver } from '../driver.ts';
import { GenerationRun, type GenerationListener } from '../generation.ts';
import { CORE_DEAD, CORE_DEAD_EVENT, QUEUE_FULL, sendReply, sendStreamHead } from '../reply.ts';
import {
  dataEvent,
  DONE_EVENT,
  roleChunk,
  runningUsage,
  textChunk,
  usageChunk,
  wholeAnswer,
  type AnswerHead,
} from './answers.ts';
import type { Generation } from './parse.ts';

export interface GenerateContext {
  readonly driver: EngineDriver;
  readonly head: AnswerHead;
  readonly wallMs: () => number;
}

interface Answering {
  readonly context: GenerateContext;
  readonly generation: Generation;
  readonly response: ServerResponse;
  readonly run: GenerationRun;
}

export function answerGeneration(
  context: GenerateContext,
  generation: Generation,
  response: ServerResponse,
): void {
  const { head, driver } = context;
  const run = new GenerationRun(driver, { ...generation, id: `${head.id}#${head.serial}` });
  const answering = { context, generation, response, run };
  response.once('close', () => {
    if (!response.writableFinished) run.abort();
  });
  const fault = run.submit(generation.stream ? streamed(answering) : collected(answering));
  if (fault !== null) {
    sendReply(response, fault === 'queue_full' ? QUEUE_FULL : CORE_DEAD, context.wallMs());
  } else if (generation.stream) sendStreamHead(response, context.wallMs());
}

function streamed({ context, generation, response, run }: Answering): GenerationListener {
  const { head } = context;
  const ended = (): boolean => run.choices.every(({ finish }) => finish !== null);
  const { blockTokens } = context.driver.model.profile;
  return {
    token: (choice, { text, index, finish }) => {
      const usage = generation.continuousUsage ? runningUsage(choice) : null;
      if (index === 0 && head.kind === 'chat') {
        const before = generation.continuousUsage ? runningUsage({ ...choice, tokens: 0 }) : null;
        response.write(dataEvent(roleChunk(head, choice.index, before)));
      }
      const last = finish !== null && !generation.includeUsage && ended();
      response.write(dataEvent(textChunk(head, choice.index, { text, finish, usage, last })));
    },
    ended: () => {
      if (generation.includeUsage) {
        response.write(dataEvent(usageChunk(head, run.choices, blockTokens)));
      }
      response.end(DONE_EVENT);
    },
    failed: () => response.end(CORE_DEAD_EVENT + DONE_EVENT),
  };
}

function collected({ context, response, run }: Answering): GenerationListener {
  const { blockTokens } = context.driver.model.profile;
  return {
    token: () => {},
    ended: () => {
      const body = wholeAnswer(context.head, run.choices, blockTokens);
      sendReply(response, { status: 200, body }, context.wallMs());
    },
    failed: () => sendReply(response, CORE_DEAD, context.wallMs()),
  };
}
