// What an answer says of its routing, as headers (router/gateway/headers.ts has the table).

import type { Decision } from '../../shared/model/decision.ts';
import { explainHeader } from '../gateway/explain-header.ts';
import type { AnswerHeaders } from '../gateway/reply.ts';
import type { RoutedFacts } from '../gateway/tier-words.ts';
import type { Attempt } from './events.ts';

export function routedHeaders(facts: RoutedFacts<Attempt, Decision>): AnswerHeaders {
  const { attempt, decision, attempts, queueMs } = facts;
  const headers: AnswerHeaders = { 'server-timing': facts.timing };
  if (decision !== null && !facts.fromTier) {
    if (facts.explain) headers['x-spillway-explain'] = explainHeader(decision);
    headers['x-spillway-route-reason'] = decision.reason;
  }
  if (attempt === null) return headers;
  headers['x-spillway-pool'] = attempt.pool;
  headers['x-spillway-replica'] = replicaLabel(attempt);
  // A prompt has one token at least: none stands for no prompt, and nothing was predicted of it.
  if (attempt.predictedPromptTokens > 0) {
    headers['x-spillway-prompt-tokens'] = whole(attempt.predictedPromptTokens);
    headers['x-spillway-cached-tokens'] = whole(attempt.predictedCachedTokens);
  }
  if (facts.fromTier) return headers;
  headers['x-spillway-attempts'] = String(attempts);
  if (queueMs !== null) headers['x-spillway-queue-ms'] = whole(queueMs);
  if (attempt.predictedTtftMs !== null) {
    headers['x-spillway-predicted-ttft-ms'] = whole(attempt.predictedTtftMs);
  }
  return headers;
}

/** The replica's id, with its rank where it has several. */
export function replicaLabel(attempt: Attempt): string {
  const { replica, rank } = attempt.target;
  return attempt.rankHeader === null ? replica : `${replica}#${rank}`;
}

function whole(value: number): string {
  return String(Math.round(value));
}
