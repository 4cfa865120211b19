// Anthropic's messages, as a vLLM 0.32.0 makes them of chat (test/fixtures/vllm-0.32.0/messages.http;
// vllm/entrypoints/anthropic/serving.py): named events, counts of the prompt less what the cache had and took.

import type { FinishReason } from '../../stats.ts';
import type { Choice, TokenPiece } from '../generation.ts';
import { tokenCounts } from '../token-counts.ts';
import { createdTokens } from './usage.ts';
import { namedEvent, type Voice, type VoiceInput } from './voice.ts';

/** vLLM reads its own chat stream, and the error event in it is no chunk to it: this is what reaches the client. */
const FAILURE_MESSAGE = [
  '2 validation errors for ChatCompletionStreamResponse',
  ...['model', 'choices'].flatMap((member) => [
    member,
    "  Field required [type=missing, input_value={'error': {'message': 'En...am': None, 'code': 500}}, input_type=dict]",
    '    For further information visit https://errors.pydantic.dev/2.14/v/missing',
  ]),
].join('\n');

export function messagesVoice(input: VoiceInput): Voice {
  return new MessagesVoice(input);
}

class MessagesVoice implements Voice {
  readonly #input: VoiceInput;
  #begun = false;
  #blockOpen = false;

  constructor(input: VoiceInput) {
    this.#input = input;
  }

  opening(): string {
    return '';
  }

  token(_choice: Choice, { text, index }: TokenPiece): string {
    const { call } = this.#input.generation;
    const begun = this.#begin();
    if (call === null && text === '') return begun;
    const opened = this.#openBlock(index);
    const delta =
      call === null
        ? { type: 'text_delta', text }
        : { type: 'input_json_delta', partial_json: text };
    const said =
      text === '' ? '' : namedEvent('content_block_delta', block('content_block_delta', { delta }));
    return begun + opened + said;
  }

  cut(_choice: Choice, _reason: FinishReason): string {
    return this.#begin();
  }

  ending(): string {
    const [choice] = this.#input.run.choices;
    const closed = this.#blockOpen
      ? namedEvent('content_block_stop', block('content_block_stop', {}))
      : '';
    const delta = {
      type: 'message_delta',
      delta: this.#stop(choice),
      usage: this.#usage(true),
    };
    const stop = { type: 'message_stop' };
    return closed + namedEvent('message_delta', delta) + namedEvent('message_stop', stop);
  }

  failure(): string {
    const error = { type: 'internal_error', message: FAILURE_MESSAGE };
    return namedEvent('error', { type: 'error', error });
  }

  whole(): object {
    const { head, generation, run } = this.#input;
    const [choice] = run.choices;
    const text = choice?.text ?? '';
    const { call } = generation;
    const content =
      call === null
        ? { type: 'text', text }
        : { type: 'tool_use', id: this.#callId(), name: call.name, input: parsedOr(text) };
    const { stop_reason, stop_sequence } = this.#stop(choice);
    return {
      id: `chatcmpl-${head.requestId}`,
      type: 'message',
      role: 'assistant',
      content: [content],
      model: head.model,
      ...(stop_reason === null ? {} : { stop_reason }),
      ...(stop_sequence === null ? {} : { stop_sequence }),
      usage: this.#usage(true),
    };
  }

  #begin(): string {
    if (this.#begun) return '';
    this.#begun = true;
    const { head } = this.#input;
    const message = {
      id: `chatcmpl-${head.requestId}`,
      type: 'message',
      role: 'assistant',
      content: [],
      model: head.model,
      stop_reason: null,
      stop_sequence: null,
      usage: this.#usage(false),
    };
    return namedEvent('message_start', { type: 'message_start', message });
  }

  #openBlock(index: number): string {
    if (this.#blockOpen) return '';
    this.#blockOpen = true;
    const { call } = this.#input.generation;
    const started =
      call === null || index > 0
        ? { type: 'text', text: '' }
        : { type: 'tool_use', id: this.#callId(), name: call.name, input: {} };
    return namedEvent('content_block_start', {
      type: 'content_block_start',
      content_block: started,
      index: 0,
    });
  }

  #callId(): string {
    return `chatcmpl-tool-${this.#input.head.requestId}`;
  }

  #stop(choice: Choice | undefined): {
    readonly stop_reason: string | null;
    readonly stop_sequence: string | null;
  } {
    if (choice?.finish === 'length') return { stop_reason: 'max_tokens', stop_sequence: null };
    if (choice?.finish !== 'stop') return { stop_reason: null, stop_sequence: null };
    if (this.#input.generation.call !== null) {
      return { stop_reason: 'tool_use', stop_sequence: null };
    }
    return choice.stopReason === null
      ? { stop_reason: 'end_turn', stop_sequence: null }
      : { stop_reason: 'stop_sequence', stop_sequence: choice.stopReason };
  }

  /** While it runs nothing is known of the cache. */
  #usage(ended: boolean): object {
    const { head, run } = this.#input;
    const { prompt, completion: output_tokens, cached } = tokenCounts(run.choices);
    if (!ended) return { input_tokens: prompt, output_tokens: 0 };
    if (!head.usage.details) return { input_tokens: prompt, output_tokens };
    const created = createdTokens(run.choices, head.usage);
    return {
      input_tokens: Math.max(0, prompt - cached - (created ?? 0)),
      output_tokens,
      ...(created === null ? {} : { cache_creation_input_tokens: created }),
      cache_read_input_tokens: cached,
    };
  }
}

function block(type: string, members: object): object {
  return { type, ...members, index: 0 };
}

function parsedOr(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return {};
  }
}
