// Completions, member by member as a vLLM 0.32.0 writes them (test/fixtures/vllm-0.32.0/completion*.http).

import type { FinishReason } from '../../stats.ts';
import type { Choice, TokenPiece } from '../generation.ts';
import { CORE_DEAD_EVENT } from '../reply.ts';
import { completionLogprobs } from './logprobs.ts';
import { runningUsage, wholeUsage } from './usage.ts';
import { dataEvent, DONE_EVENT, endingEvents, type Voice, type VoiceInput } from './voice.ts';

export function completionVoice(input: VoiceInput): Voice {
  return new CompletionVoice(input);
}

class CompletionVoice implements Voice {
  readonly #input: VoiceInput;

  constructor(input: VoiceInput) {
    this.#input = input;
  }

  opening(): string {
    return '';
  }

  token(choice: Choice, { tokenId, text, index, finish }: TokenPiece): string {
    const { logprobs, returnTokenIds } = this.#input.generation;
    const offset = choice.text.length - text.length;
    return this.#chunk(choice, {
      index: choice.index,
      text: (index === 0 ? this.#echoOf(choice) : '') + text,
      logprobs: logprobs === null ? null : completionLogprobs([tokenId], { top: logprobs, offset }),
      finish_reason: finish,
      stop_reason: choice.stopReason,
      prompt_token_ids: returnTokenIds && index === 0 ? this.#promptIds(choice) : null,
      token_ids: returnTokenIds ? [tokenId] : null,
    });
  }

  cut(choice: Choice, reason: FinishReason): string {
    return this.#chunk(choice, {
      index: choice.index,
      text: '',
      logprobs: null,
      finish_reason: reason,
      stop_reason: null,
      prompt_token_ids: null,
      token_ids: null,
    });
  }

  ending(): string {
    return endingEvents(this.#input, this.#head(), { ...this.#input.head.usage, created: false });
  }

  failure(): string {
    return CORE_DEAD_EVENT + DONE_EVENT;
  }

  whole(): object {
    const { head, run } = this.#input;
    return {
      ...this.#head(),
      choices: run.choices.map((choice) => this.#wholeChoice(choice)),
      service_tier: null,
      system_fingerprint: head.fingerprint,
      usage: wholeUsage(run.choices, { ...head.usage, created: false }),
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: head.timing(run),
    };
  }

  #wholeChoice(choice: Choice): object {
    const { logprobs, returnTokenIds } = this.#input.generation;
    return {
      index: choice.index,
      text: this.#echoOf(choice) + choice.text,
      logprobs:
        logprobs === null
          ? null
          : completionLogprobs(choice.tokenIds, { top: logprobs, offset: 0 }),
      finish_reason: choice.finish,
      stop_reason: choice.stopReason,
      token_ids: returnTokenIds ? choice.tokenIds : null,
      prompt_logprobs: null,
      prompt_token_ids: returnTokenIds ? this.#promptIds(choice) : null,
      routed_experts: null,
    };
  }

  #chunk(choice: Choice, body: object): string {
    const { head, generation } = this.#input;
    const stamped = choice.finish !== null && !generation.includeUsage;
    const usage = generation.continuousUsage
      ? { usage: runningUsage(choice.promptTokens, choice.tokens, false) }
      : {};
    return dataEvent({
      ...this.#head(),
      choices: [body],
      ...usage,
      ...(stamped ? { system_fingerprint: head.fingerprint } : {}),
    });
  }

  #echoOf(choice: Choice): string {
    return this.#input.generation.echoTexts[this.#promptAt(choice)] ?? '';
  }

  #promptIds(choice: Choice): readonly number[] {
    return [...(this.#input.generation.prompts[this.#promptAt(choice)] ?? [])];
  }

  #promptAt({ index }: Choice): number {
    return Math.floor(index / this.#input.generation.n);
  }

  #head(): object {
    const { requestId, created, model } = this.#input.head;
    return { id: `cmpl-${requestId}`, object: 'text_completion', created, model };
  }
}
