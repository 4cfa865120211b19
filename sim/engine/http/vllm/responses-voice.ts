// OpenAI's responses, member by member as a vLLM 0.32.0 writes them (test/fixtures/vllm-0.32.0/responses.http;
// vllm/entrypoints/openai/responses/streaming_events.py). A stream that fails is cut: there is no event for it.

import type { FinishReason } from '../../stats.ts';
import type { Choice, TokenPiece } from '../generation.ts';
import { tokenCounts } from '../token-counts.ts';
import { createdTokens } from './usage.ts';
import {
  integerOf,
  isObject,
  numberOf,
  pythonNumber,
  textOf,
  type JsonObject,
} from './validation.ts';
import { namedEvent, type Voice, type VoiceInput } from './voice.ts';

export interface ResponsesInput extends VoiceInput {
  readonly body: JsonObject;
  /** Tokens that the answer may have. */
  readonly maxOutputTokens: number;
}

export function responsesVoice(input: ResponsesInput): Voice {
  return new ResponsesVoice(input);
}

class ResponsesVoice implements Voice {
  readonly #input: ResponsesInput;
  readonly #itemId: string;
  #sequence = 0;
  #itemOpen = false;

  constructor(input: ResponsesInput) {
    this.#input = input;
    this.#itemId = `${input.generation.call === null ? 'msg' : 'fc'}_${input.head.hex(16)}`;
  }

  opening(): string {
    const response = this.#response('in_progress', []);
    return (
      this.#event('response.created', (sequence_number) => ({ response, sequence_number })) +
      this.#event('response.in_progress', (sequence_number) => ({ response, sequence_number }))
    );
  }

  token(_choice: Choice, { text }: TokenPiece): string {
    if (text === '') return '';
    return this.#openItem() + this.#delta(text);
  }

  cut(_choice: Choice, _reason: FinishReason): string {
    return '';
  }

  ending(): string {
    const done = this.#itemOpen ? this.#itemDone() : '';
    const response = this.whole();
    const ended = this.#event('response.completed', (sequence_number) => ({
      response,
      sequence_number,
    }));
    return done + ended;
  }

  failure(): null {
    return null;
  }

  whole(): object {
    const [choice] = this.#input.run.choices;
    // An answer that the engine ended itself (`abort`) is called complete as well: nothing tells.
    const status = choice?.finish === 'length' ? 'incomplete' : 'completed';
    return this.#response(status, [this.#item('completed')]);
  }

  #response(status: string, output: readonly object[]): object {
    const { head, body, run, maxOutputTokens } = this.#input;
    const ended = status !== 'in_progress';
    const timing = ended ? head.timing(run) : null;
    const tools = Array.isArray(body['tools']) ? (body['tools'] as unknown[]) : [];
    return {
      id: `resp_${head.requestId}`,
      created_at: head.created,
      incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      instructions: textOf(body['instructions']) ?? null,
      metadata: isObject(body['metadata']) ? body['metadata'] : null,
      model: head.model,
      object: 'response',
      output,
      parallel_tool_calls: body['parallel_tool_calls'] ?? true,
      temperature: pythonNumber(numberOf(body['temperature']) ?? 1),
      tool_choice: body['tool_choice'] ?? (tools.length > 0 ? 'auto' : 'none'),
      tools,
      top_p: pythonNumber(numberOf(body['top_p']) ?? 1),
      background: false,
      max_output_tokens: maxOutputTokens,
      max_tool_calls: integerOf(body['max_tool_calls']),
      previous_response_id: textOf(body['previous_response_id']) ?? null,
      prompt: null,
      reasoning: isObject(body['reasoning']) ? body['reasoning'] : null,
      service_tier: textOf(body['service_tier']) ?? 'auto',
      status,
      text: isObject(body['text']) ? body['text'] : null,
      top_logprobs: integerOf(body['top_logprobs']),
      truncation: textOf(body['truncation']) ?? 'disabled',
      usage: ended ? this.#usage() : null,
      user: textOf(body['user']) ?? null,
      ...(timing === null ? {} : { metrics: timing }),
      presence_penalty: pythonNumber(numberOf(body['presence_penalty']) ?? 0),
      frequency_penalty: pythonNumber(numberOf(body['frequency_penalty']) ?? 0),
      kv_transfer_params: null,
      ec_transfer_params: null,
      input_messages: null,
      output_messages: null,
    };
  }

  #usage(): object {
    const { run, head } = this.#input;
    const { prompt: input, completion: output, cached } = tokenCounts(run.choices);
    return {
      input_tokens: input,
      input_tokens_details: {
        cached_tokens: cached,
        cache_write_tokens: createdTokens(run.choices, head.usage) ?? 0,
        input_tokens_per_turn: [],
        cached_tokens_per_turn: [],
      },
      output_tokens: output,
      output_tokens_details: {
        reasoning_tokens: 0,
        tool_output_tokens: 0,
        output_tokens_per_turn: [],
        tool_output_tokens_per_turn: [],
      },
      total_tokens: input + output,
    };
  }

  #text(): string {
    return this.#input.run.choices[0]?.text ?? '';
  }

  #item(status: 'in_progress' | 'completed'): object {
    const { call } = this.#input.generation;
    const whole = status === 'completed';
    if (call !== null) {
      return {
        arguments: whole ? this.#text() : '',
        call_id: `call_${this.#itemId.slice(3)}`,
        name: call.name,
        type: 'function_call',
        id: this.#itemId,
        async: null,
        caller: null,
        namespace: null,
        status,
      };
    }
    return {
      id: this.#itemId,
      content: whole ? [this.#part(this.#text(), null)] : [],
      role: 'assistant',
      status,
      type: 'message',
      phase: null,
    };
  }

  #part(text: string, logprobs: readonly object[] | null): object {
    return { annotations: [], text, type: 'output_text', logprobs };
  }

  #openItem(): string {
    if (this.#itemOpen) return '';
    this.#itemOpen = true;
    const item = this.#item('in_progress');
    const added = this.#event('response.output_item.added', (sequence_number) => ({
      item,
      output_index: 0,
      sequence_number,
    }));
    if (this.#input.generation.call !== null) return added;
    const part = this.#event('response.content_part.added', (sequence_number) => ({
      content_index: 0,
      item_id: this.#itemId,
      output_index: 0,
      part: this.#part('', []),
      sequence_number,
    }));
    return added + part;
  }

  #delta(delta: string): string {
    const item_id = this.#itemId;
    if (this.#input.generation.call !== null) {
      return this.#event('response.function_call_arguments.delta', (sequence_number) => ({
        delta,
        item_id,
        output_index: 0,
        sequence_number,
      }));
    }
    return this.#event('response.output_text.delta', (sequence_number) => ({
      content_index: 0,
      delta,
      item_id,
      logprobs: [],
      output_index: 0,
      sequence_number,
    }));
  }

  #itemDone(): string {
    const text = this.#text();
    const item_id = this.#itemId;
    const { call } = this.#input.generation;
    const item = this.#item('completed');
    const itemDone = (): string =>
      this.#event('response.output_item.done', (sequence_number) => ({
        item,
        output_index: 0,
        sequence_number,
      }));
    if (call !== null) {
      const done = this.#event(
        'response.function_call_arguments.done',
        (sequence_number) => ({ arguments: text, item_id, output_index: 0, sequence_number }),
        { name: call.name },
      );
      return done + itemDone();
    }
    const said = this.#event('response.output_text.done', (sequence_number) => ({
      content_index: 0,
      item_id,
      logprobs: [],
      output_index: 0,
      sequence_number,
      text,
    }));
    const part = this.#event('response.content_part.done', (sequence_number) => ({
      content_index: 0,
      item_id,
      output_index: 0,
      part: this.#part(text, null),
      sequence_number,
    }));
    return said + part + itemDone();
  }

  /** `type` stands after the members, before `last`. */
  #event(type: string, members: (sequence: number) => object, last: object = {}): string {
    const sequence = this.#sequence;
    this.#sequence += 1;
    return namedEvent(type, { ...members(sequence), type, ...last });
  }
}
