// Answers one generation request of SGLang: streamed event by event, or whole.
//
// A stream's header waits for its first chunk. What the scheduler aborts before that is the first chunk, so a full queue
// is a 200 with an error and `[DONE]`; what is wrong with the request has its own status. Nothing is sent in silences. When
// a scheduler dies all connections are cut: no answer ends by its own words.

import type { ServerResponse } from 'node:http';

import type { GenerationListener, GenerationRun } from '../generation.ts';
import { sendReply, sendStreamHead } from '../reply.ts';
import { endEvent, tokenEvents, usageEvent, wholeAnswer, type AnswerHead } from './answers.ts';
import type { SglangGeneration } from './parse.ts';
import { faultEvent, faultReply, type SglangFault } from './reply.ts';

const DONE = 'data: [DONE]\n\n';

/** A request while it is answered. */
export interface Answering {
  readonly head: AnswerHead;
  readonly generation: SglangGeneration;
  readonly response: ServerResponse;
  readonly wallMs: () => number;
  /** Since it arrived. */
  readonly seconds: () => number;
}

export function answerOf(answering: Answering, run: GenerationRun): GenerationListener {
  return answering.generation.stream ? streamed(answering, run) : collected(answering, run);
}

function collected({ head, response, wallMs, seconds }: Answering, run: GenerationRun) {
  return {
    token: () => {},
    ended: () => {
      const body = wholeAnswer(head, run.choices, seconds());
      sendReply(response, { status: 200, body }, wallMs());
    },
    failed: () => {},
  };
}

function streamed(
  { head, generation, response, wallMs }: Answering,
  run: GenerationRun,
): GenerationListener {
  return {
    token: (choice, piece) => {
      if (!response.headersSent) sendStreamHead(response, wallMs());
      const events = tokenEvents(head, choice, { ...piece, usage: generation.continuousUsage });
      if (events.length > 0) response.write(events.map(event).join(''));
    },
    ended: () => {
      // Aborted before its first token.
      if (!response.headersSent) sendStreamHead(response, wallMs());
      const last = head.kind === 'chat' ? run.choices.map((each) => endEvent(head, each)) : [];
      if (generation.includeUsage) last.push(usageEvent(head, run.choices));
      response.end(last.map(event).join('') + DONE);
    },
    failed: () => {},
  };
}

/** It never ran. */
export function refuse(
  { head, generation, response, wallMs }: Omit<Answering, 'seconds'>,
  fault: SglangFault,
): void {
  if (!fault.aborted || !generation.stream) {
    sendReply(response, faultReply(fault, head.kind === 'native'), wallMs());
    return;
  }
  sendStreamHead(response, wallMs());
  response.end(event(faultEvent(fault)) + DONE);
}

function event(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`;
}
