// Chat completions, member by member as a vLLM 0.32.0 writes them (test/fixtures/vllm-0.32.0/chat-*.http).

import type { FinishReason } from '../../stats.ts';
import type { Choice, TokenPiece } from '../generation.ts';
import { CORE_DEAD_EVENT } from '../reply.ts';
import { chatLogprobs } from './logprobs.ts';
import { runningUsage, wholeUsage } from './usage.ts';
import { dataEvent, DONE_EVENT, endingEvents, type Voice, type VoiceInput } from './voice.ts';

export function chatVoice(input: VoiceInput): Voice {
  return new ChatVoice(input);
}

class ChatVoice implements Voice {
  readonly #input: VoiceInput;
  readonly #callIds = new Map<number, string>();
  #begun = false;

  constructor(input: VoiceInput) {
    this.#input = input;
  }

  opening(): string {
    return '';
  }

  token(choice: Choice, { tokenId, text, index, finish }: TokenPiece): string {
    const { generation } = this.#input;
    const body = {
      index: choice.index,
      delta: this.#delta(choice, text, index),
      logprobs: generation.logprobs === null ? null : chatLogprobs([tokenId], generation.logprobs),
      finish_reason: this.#reason(finish),
      ...(finish === null ? {} : { stop_reason: choice.stopReason }),
      token_ids: generation.returnTokenIds ? [tokenId] : null,
    };
    return this.#roles() + this.#chunk(choice, body);
  }

  cut(choice: Choice, reason: FinishReason): string {
    const body = {
      index: choice.index,
      delta: { content: '' },
      logprobs: null,
      finish_reason: reason,
      stop_reason: null,
      token_ids: this.#input.generation.returnTokenIds ? [] : null,
    };
    return this.#roles() + this.#chunk(choice, body);
  }

  ending(): string {
    return endingEvents(this.#input, this.#head(), this.#input.head.usage);
  }

  failure(): string {
    return CORE_DEAD_EVENT + DONE_EVENT;
  }

  whole(): object {
    const { head, generation, run } = this.#input;
    return {
      id: `chatcmpl-${head.requestId}`,
      object: 'chat.completion',
      created: head.created,
      model: head.model,
      choices: run.choices.map((choice) => this.#wholeChoice(choice)),
      service_tier: null,
      system_fingerprint: head.fingerprint,
      usage: wholeUsage(run.choices, head.usage),
      prompt_logprobs: null,
      prompt_token_ids: generation.returnTokenIds ? this.#promptIds() : null,
      prompt_text: null,
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: head.timing(run),
    };
  }

  #wholeChoice(choice: Choice): object {
    const { generation } = this.#input;
    const { call, logprobs, returnTokenIds, echoTexts } = generation;
    const calls =
      call === null
        ? {}
        : {
            tool_calls: [
              {
                id: this.#callId(choice),
                type: 'function',
                function: { name: call.name, arguments: choice.text },
              },
            ],
          };
    return {
      index: choice.index,
      message: {
        role: 'assistant',
        content: call === null ? (echoTexts[0] ?? '') + choice.text : '',
        refusal: null,
        annotations: null,
        audio: null,
        function_call: null,
        ...calls,
        reasoning: null,
      },
      logprobs: logprobs === null ? null : chatLogprobs(choice.tokenIds, logprobs),
      finish_reason: this.#reason(choice.finish),
      stop_reason: choice.stopReason,
      token_ids: returnTokenIds ? choice.tokenIds : null,
      routed_experts: null,
    };
  }

  /** Before the first token of any: a chunk with the role for each answer, and what is echoed. */
  #roles(): string {
    if (this.#begun) return '';
    this.#begun = true;
    const { generation, run } = this.#input;
    const [echoed] = generation.echoTexts;
    const roles = run.choices.map(({ index }) =>
      dataEvent({
        ...this.#head(),
        choices: [this.#bareChoice(index, { role: 'assistant', content: '' })],
        ...this.#runningUsage(run.choices[index], 0),
        prompt_token_ids: generation.returnTokenIds ? this.#promptIds() : null,
        prompt_text: null,
      }),
    );
    const echoes = run.choices.map(({ index }) =>
      echoed === undefined || echoed === ''
        ? ''
        : dataEvent({
            ...this.#head(),
            choices: [this.#bareChoice(index, { content: echoed })],
            ...this.#runningUsage(run.choices[index], 0),
          }),
    );
    return roles.join('') + echoes.join('');
  }

  #bareChoice(index: number, delta: object): object {
    return { index, delta, logprobs: null, finish_reason: null };
  }

  #chunk(choice: Choice, body: object): string {
    const { head, generation } = this.#input;
    const stamped = choice.finish !== null && !generation.includeUsage;
    return dataEvent({
      ...this.#head(),
      choices: [body],
      ...this.#runningUsage(choice, choice.tokens),
      ...(stamped ? { system_fingerprint: head.fingerprint } : {}),
    });
  }

  #delta(choice: Choice, text: string, index: number): object {
    const { call } = this.#input.generation;
    if (call === null) return { content: text };
    if (index > 0) return { tool_calls: [{ index: 0, function: { arguments: text } }] };
    const named = { name: call.name, arguments: text };
    return {
      tool_calls: [{ id: this.#callId(choice), type: 'function', index: 0, function: named }],
    };
  }

  /** A call that was required, not named, ends by its own word. */
  #reason(finish: FinishReason | null): string | null {
    const { call } = this.#input.generation;
    return finish === 'stop' && call !== null && !call.named ? 'tool_calls' : finish;
  }

  #runningUsage(choice: Choice | undefined, tokens: number): { readonly usage?: object } {
    if (!this.#input.generation.continuousUsage) return {};
    return { usage: runningUsage(choice?.promptTokens ?? 0, tokens, true) };
  }

  #callId({ index }: Choice): string {
    const known = this.#callIds.get(index) ?? `chatcmpl-tool-${this.#input.head.hex(16)}`;
    this.#callIds.set(index, known);
    return known;
  }

  #promptIds(): readonly number[] {
    return [...(this.#input.generation.prompts[0] ?? [])];
  }

  #head(): object {
    const { requestId, created, model } = this.#input.head;
    return { id: `chatcmpl-${requestId}`, object: 'chat.completion.chunk', created, model };
  }
}
