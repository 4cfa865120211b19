// What a tier says of an attempt and of a decision, for the gateway that serves both tiers: where it went, as metric labels,
// fields of the log line and headers, and how it is sent. All else of a request is the same before a region and in one.

import type { LabelValues } from '../../shared/runtime/metrics.ts';
import type { RequestAttempt } from '../policy/request-events.ts';
import type { AnswerRoom } from './answer-room.ts';
import type { ExchangeFacts } from './exchange-record.ts';
import type { OpenAiRequest } from './openai-request.ts';
import type { AnswerHeaders } from './reply.ts';
import type { UpstreamOrder } from './upstream.ts';

export interface RoutedDecision {
  readonly kind: string;
  readonly reason: string;
}

/** A request on its way out. */
export interface Outgoing {
  readonly facts: ExchangeFacts;
  readonly request: OpenAiRequest;
  /** For answers that are held until they are whole. */
  readonly room: AnswerRoom;
}

export interface RoutedFacts<Attempt, Decision> {
  /** The last one; null where the request never left the router. */
  readonly attempt: Attempt | null;
  readonly decision: Decision | null;
  readonly attempts: number;
  readonly queueMs: number | null;
  /** `Server-Timing`. */
  readonly timing: string;
  /** The decision goes with the answer. */
  readonly explain: boolean;
  /** The answer goes to the tier before: what that says itself, or does not read, is left out. */
  readonly fromTier: boolean;
}

export interface TierWords<Attempt extends RequestAttempt, Decision extends RoutedDecision> {
  /** The message of an answer that failed after its first data event. */
  readonly interrupted: string;
  /** Metric labels of where it went; of nowhere where there was no attempt. */
  place(attempt: Attempt | null): LabelValues;
  /** Fields of the log line: of the last attempt, and of the last decision what the attempt does not say. */
  logFields(
    attempt: Attempt | null,
    decision: Decision | null,
  ): Readonly<Record<string, string | number | null>>;
  headers(facts: RoutedFacts<Attempt, Decision>): AnswerHeaders;
  /** Prompt tokens that were predicted to be cached, to set beside what the answer reports; null: none were. */
  cachedTokens(attempt: Attempt): number | null;
  /** Where to send it, with which headers and bytes. */
  order(outgoing: Outgoing, attempt: Attempt): UpstreamOrder;
  /** The adapter that a public name stands for, by the engines' name of it; null where it is none: its KV is its own. */
  loraOf(model: string): string | null;
}
