// Takes generation requests of all four protocols: reads them, picks the engine, and has them answered.

import type { ServerResponse } from 'node:http';

import type { GenerationRun } from '../generation.ts';
import { sendReply, sendStreamHead, type Reply } from '../reply.ts';
import type { EngineHost, HttpCall } from '../surface.ts';
import { chatVoice } from './chat-voice.ts';
import { completionVoice } from './completion-voice.ts';
import { answerGeneration } from './generate.ts';
import { anthropicReply, parseMessages } from './messages-request.ts';
import { messagesVoice } from './messages-voice.ts';
import { parseChat, parseCompletion, type Generation, type ParseContext } from './parse.ts';
import { leastLoaded, namedRank } from './ranks.ts';
import { renderReply, SCALE_OUT_DISABLED } from './render.ts';
import { RequestTiming } from './request-timing.ts';
import { parseResponses } from './responses-request.ts';
import { responsesVoice } from './responses-voice.ts';
import { formatFloat } from './text-format.ts';
import type { JsonObject, Parsed } from './validation.ts';
import { DONE_EVENT, type AnswerHead, type Voice } from './voice.ts';

export interface GenerationCall {
  readonly call: HttpCall;
  readonly body: JsonObject;
  readonly context: ParseContext;
  readonly headers: Readonly<Record<string, string>>;
}

const RENDER = '/render';

export class GenerationDesk {
  readonly #host: EngineHost;
  readonly #fingerprint: string;
  /** Null where answers do not tell it. */
  readonly timing: RequestTiming | null;
  /** Requests that are being answered. */
  load = 0;
  #taken = 0;

  constructor(host: EngineHost, fingerprint: string) {
    this.#host = host;
    this.#fingerprint = fingerprint;
    this.timing = host.options.vllm?.perRequestMetrics === true ? new RequestTiming() : null;
  }

  track(response: ServerResponse): void {
    this.load += 1;
    response.once('close', () => (this.load -= 1));
  }

  answer(request: GenerationCall, response: ServerResponse): void {
    const { call, body, context, headers } = request;
    const rendering = call.path.endsWith(RENDER);
    if (rendering && this.#host.options.vllm?.scaleOut !== true) {
      return this.#refuse(response, { ...SCALE_OUT_DISABLED, headers });
    }
    const path = rendering ? call.path.slice(0, -RENDER.length) : call.path;
    const parsed = parserOf(path)(body, context);
    if (!parsed.ok) return this.#refuse(response, { ...parsed.reply, headers });
    const requestId = this.#requestIdOf(call);
    if (rendering) {
      return this.#refuse(response, { ...renderReply(parsed.value, body, requestId), headers });
    }
    const generation = withPriority(parsed.value, call);
    const rank = namedRank(headerOf(call, 'x-data-parallel-rank'), this.#host.engines.length);
    if (rank !== null && typeof rank !== 'number') {
      return this.#refuseRank({ ...rank, headers }, generation, response);
    }
    this.#run({ ...request, path, requestId, generation, rank }, response);
  }

  #run(
    request: GenerationCall & {
      readonly path: string;
      readonly requestId: string;
      readonly generation: Generation;
      readonly rank: number | null;
    },
    response: ServerResponse,
  ): void {
    const { engines } = this.#host;
    const { generation, body, call, headers, path } = request;
    this.#taken += 1;
    const driver = engines[request.rank ?? leastLoaded(engines, this.#taken)] ?? engines[0]!;
    const head = this.#headOf(generation, request.requestId);
    const { maxModelLen } = driver.model;
    const voiceOf = (run: GenerationRun): Voice => {
      const input = { head, generation, run };
      if (path === '/v1/messages') return messagesVoice(input);
      if (path === '/v1/completions') return completionVoice(input);
      if (path === '/v1/chat/completions') return chatVoice(input);
      const room = maxModelLen - (generation.prompts[0]?.length ?? 0);
      const maxOutputTokens = Math.min(generation.maxTokens ?? room, room);
      return responsesVoice({ ...input, body, maxOutputTokens });
    };
    const context = {
      driver,
      id: `${path} ${request.requestId}#${this.#taken}`,
      wallMs: () => this.#host.runtime.clock.wallMs(),
      headers,
      wholeHeaders: () => this.#loadHeaders(call),
      voiceOf,
      refusal: path === '/v1/messages' ? anthropicReply : (reply: Reply) => reply,
      started: (run: GenerationRun) => this.timing?.started(run),
    };
    answerGeneration(context, generation, response);
  }

  #headOf(generation: Generation, requestId: string): AnswerHead {
    const { options, engines, runtime } = this.#host;
    return {
      requestId,
      created: Math.floor(runtime.clock.wallMs() / 1000),
      model: generation.lora ?? options.model,
      fingerprint: this.#fingerprint,
      usage: {
        details: options.promptTokensDetails ?? true,
        created: true,
        blockTokens: engines[0]!.model.profile.blockTokens,
      },
      hex: (digits) => this.#host.hex(digits),
      timing: (run) => this.timing?.of(run) ?? null,
    };
  }

  #requestIdOf(call: HttpCall): string {
    const given = headerOf(call, 'x-request-id');
    return given === undefined || given === '' ? this.#host.hex(16) : given;
  }

  /** The balancer looks only once the answer has begun: a stream is refused by an event of it. */
  #refuseRank(reply: Reply, generation: Generation, response: ServerResponse): void {
    if (!generation.stream) return this.#refuse(response, reply);
    sendStreamHead(response, this.#host.runtime.clock.wallMs(), reply.headers ?? {});
    const spaced = JSON.stringify(reply.body, null, 1).replaceAll(/\n\s*/g, ' ');
    response.end(`data: ${spaced.replaceAll('{ ', '{').replaceAll(' }', '}')}\n\n${DONE_EVENT}`);
  }

  #refuse(response: ServerResponse, reply: Reply): void {
    sendReply(response, reply, this.#host.runtime.clock.wallMs());
  }

  /** The report that a balancer may ask for, of an answer in one piece. */
  #loadHeaders(call: HttpCall): Readonly<Record<string, string>> {
    const form = headerOf(call, 'endpoint-load-metrics-format')?.toLowerCase();
    if (form !== 'text' && form !== 'json') return {};
    const stats = this.#host.engines.map(({ model }) => model.stats);
    const rows: [string, number][] = [
      ...stats.map(({ waiting }): [string, number] => ['num_requests_waiting', waiting]),
      ...stats.map(({ kvUsageRatio }): [string, number] => ['kv_cache_usage_perc', kvUsageRatio]),
    ];
    const text = rows.map(([name, value]) => `named_metrics.${name}=${formatFloat(value)}`);
    const members = rows.map(([name, value]) => `"${name}": ${formatFloat(value)}`);
    const report =
      form === 'text'
        ? `TEXT ${text.join(', ')}`
        : `JSON {"named_metrics": {${members.join(', ')}}}`;
    return { 'endpoint-load-metrics': report };
  }
}

function parserOf(path: string): (body: JsonObject, context: ParseContext) => Parsed<Generation> {
  if (path === '/v1/chat/completions') return parseChat;
  if (path === '/v1/completions') return parseCompletion;
  return path === '/v1/messages' ? parseMessages : parseResponses;
}

/** The header goes before the body's member. */
function withPriority(generation: Generation, call: HttpCall): Generation {
  const given = headerOf(call, 'x-vllm-priority');
  if (given === undefined || !/^\s*[+-]?\d+\s*$/.test(given)) return generation;
  return { ...generation, priority: Number(given) };
}

function headerOf({ headers }: HttpCall, name: string): string | undefined {
  const value = headers[name];
  return typeof value === 'string' ? value : undefined;
}
