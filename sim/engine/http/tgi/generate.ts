// Answers one generation request of TGI: streamed event by event, or whole.
//
// A stream's 200 is out before the request is looked at, so that even "Model is overloaded" is an event of it. OpenAI's
// streams end with `[DONE]`, failed ones too; TGI's own with their last token.

import type { ServerResponse } from 'node:http';

import type { GenerationListener, GenerationRun } from '../generation.ts';
import { tokenEvents, wholeAnswer, type AnswerHead } from './answers.ts';
import type { EventStream } from './event-stream.ts';
import type { TgiGeneration } from './parse.ts';
import { event, faultBody, faultReply, send, type TgiFault } from './reply.ts';

/** A request while it is answered. */
export interface Answering {
  readonly head: AnswerHead;
  readonly generation: TgiGeneration;
  readonly response: ServerResponse;
  /** Null: it is answered whole. */
  readonly stream: EventStream | null;
  readonly wallMs: () => number;
  /** Of a whole answer: where its time went. */
  readonly headers: () => Readonly<Record<string, string>>;
}

/** The ends of a request, for whoever counts. */
export interface AnswerEnds {
  succeeded(): void;
  /** The engine failed under it: what the client is told. */
  failed(): TgiFault;
}

export function answerOf(
  answering: Answering,
  run: GenerationRun,
  ends: AnswerEnds,
): GenerationListener {
  const { head, generation, response, stream, wallMs } = answering;
  const failed = (): void => refuse(answering, ends.failed());
  if (stream === null) {
    return {
      token: () => {},
      ended: () => {
        ends.succeeded();
        const body = wholeAnswer(head, run.choices);
        send(response, { status: 200, body, headers: answering.headers() }, wallMs());
      },
      failed,
    };
  }
  const { includeUsage } = generation;
  return {
    token: (choice, piece) => {
      const events = tokenEvents(head, choice, { ...piece, includeUsage });
      stream.write(events.map(event).join(''));
    },
    ended: () => {
      ends.succeeded();
      stream.end(doneOf(head));
    },
    failed,
  };
}

/** Ends the answer with a fault: a status where none was sent, an event else. */
export function refuse(
  { head, response, stream, wallMs }: Pick<Answering, 'head' | 'response' | 'stream' | 'wallMs'>,
  fault: TgiFault,
): void {
  if (stream === null) send(response, faultReply(fault), wallMs());
  else stream.end(event(faultBody(fault)) + doneOf(head));
}

function doneOf({ kind }: AnswerHead): string {
  return kind === 'native' ? '' : event('[DONE]');
}
