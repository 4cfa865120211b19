// Runs one generation request against the model and answers it: streamed event by event, or whole.
//
// As in vLLM, a stream's 200 goes out before the request is queued, so what fails later is an event in it; the
// first data event comes with the first token; a client that goes away aborts the work.

import type { ServerResponse } from 'node:http';

import { answerLength } from '../../answers.ts';
import {
  dataEvent,
  DONE_EVENT,
  roleChunk,
  runningUsage,
  textChunk,
  usageChunk,
  wholeAnswer,
  type AnswerHead,
  type Choice,
} from './answers.ts';
import type { EngineDriver, RequestEvent } from '../driver.ts';
import type { Generation } from './parse.ts';
import {
  CORE_DEAD,
  CORE_DEAD_EVENT,
  QUEUE_FULL,
  sendReply,
  sendStreamHead,
  type Reply,
} from '../reply.ts';
import { tokenSequence } from '../../sequence.ts';
import { detokenize } from '../../tokenizer.ts';

export interface GenerateContext {
  readonly driver: EngineDriver;
  readonly head: AnswerHead;
  readonly wallMs: () => number;
}

interface Answering {
  readonly context: GenerateContext;
  readonly generation: Generation;
  readonly response: ServerResponse;
  readonly choices: readonly Choice[];
  readonly engineIds: readonly string[];
}

export function answerGeneration(
  context: GenerateContext,
  generation: Generation,
  response: ServerResponse,
): void {
  const choices = generation.prompts.flatMap((prompt, at) =>
    Array.from({ length: generation.n }, (_, copy): Choice => ({
      index: at * generation.n + copy,
      text: '',
      tokens: 0,
      first: copy === 0,
      promptTokens: prompt.length,
      cachedTokens: 0,
      finish: null,
    })),
  );
  const engineIds = choices.map(
    (choice) => `${context.head.id}#${context.head.serial}.${choice.index}`,
  );
  const answering = { context, generation, response, choices, engineIds };
  response.once('close', () => {
    if (!response.writableFinished) abortAll(answering);
  });
  const fault = submitAll(answering);
  if (fault !== null) sendReply(response, fault, context.wallMs());
  else if (generation.stream) sendStreamHead(response, context.wallMs());
}

function submitAll(answering: Answering): Reply | null {
  const { context, generation, choices, engineIds } = answering;
  const { profile } = context.driver.model;
  for (const choice of choices) {
    const prompt = generation.prompts[Math.floor(choice.index / generation.n)];
    const id = engineIds[choice.index];
    if (prompt === undefined || id === undefined) continue;
    const sequence = tokenSequence(prompt, profile.blockTokens, generation.cacheSalt);
    const { maxTokens } = generation;
    const answerTokens = maxTokens ?? answerLength(sequence.promptKey, profile.meanAnswerTokens);
    const finishReason = maxTokens === null ? 'stop' : 'length';
    const result = context.driver.submit({ id, sequence, answerTokens, finishReason }, (event) => {
      if (generation.stream) streamEvent(answering, choice, event);
      else collectEvent(answering, choice, event);
    });
    if (result.ok) continue;
    abortAll(answering);
    return result.reason === 'queue_full' ? QUEUE_FULL : CORE_DEAD;
  }
  return null;
}

function abortAll({ context, engineIds }: Answering): void {
  for (const id of engineIds) context.driver.abort(id);
}

function streamEvent(answering: Answering, choice: Choice, event: RequestEvent): void {
  const { response, generation, context } = answering;
  if (response.destroyed || response.writableEnded) return;
  if (event.kind === 'failed') {
    response.end(CORE_DEAD_EVENT + DONE_EVENT);
    abortAll(answering);
    return;
  }
  if (event.kind === 'token') {
    const usageNow = (): object | null =>
      generation.continuousUsage ? runningUsage(choice) : null;
    choice.cachedTokens = event.cachedTokens;
    if (event.index === 0 && context.head.kind === 'chat') {
      response.write(dataEvent(roleChunk(context.head, choice.index, usageNow())));
    }
    const text = detokenize([event.tokenId]);
    choice.tokens += 1;
    choice.finish = event.finish;
    const last = event.finish !== null && !generation.includeUsage && allEnded(answering);
    const options = { text, finish: event.finish, usage: usageNow(), last };
    response.write(dataEvent(textChunk(context.head, choice.index, options)));
    return;
  }
  if (allEnded(answering)) endStream(answering);
}

function endStream({ response, generation, context, choices }: Answering): void {
  const { blockTokens } = context.driver.model.profile;
  if (generation.includeUsage) {
    response.write(dataEvent(usageChunk(context.head, choices, blockTokens)));
  }
  response.end(DONE_EVENT);
}

function collectEvent(answering: Answering, choice: Choice, event: RequestEvent): void {
  const { response, context, choices } = answering;
  if (response.destroyed || response.writableEnded) return;
  if (event.kind === 'failed') {
    sendReply(response, CORE_DEAD, context.wallMs());
    abortAll(answering);
    return;
  }
  if (event.kind === 'token') {
    choice.cachedTokens = event.cachedTokens;
    choice.text += detokenize([event.tokenId]);
    choice.tokens += 1;
    choice.finish = event.finish;
    return;
  }
  if (!allEnded(answering)) return;
  const { blockTokens } = context.driver.model.profile;
  const body = wholeAnswer(context.head, choices, blockTokens);
  sendReply(response, { status: 200, body }, context.wallMs());
}

function allEnded({ choices }: Answering): boolean {
  return choices.every((choice) => choice.finish !== null);
}
