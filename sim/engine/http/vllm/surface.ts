// A vLLM 0.32 over HTTP: what its endpoints say. How it ends is in ending.ts.

import type { ServerResponse } from 'node:http';

import { mixKey } from '../../sequence.ts';
import type { StepFacts } from '../../step-facts.ts';
import { vllmKvEncoding, type KvEncoding } from '../kv-wire.ts';
import { methodNotAllowed, NOT_FOUND, sendReply, UNAUTHORIZED, type Reply } from '../reply.ts';
import type { EngineHost, EngineSurface, HttpCall } from '../surface.ts';
import { Adapters } from './adapters.ts';
import { DevMode } from './dev-mode.ts';
import { VllmEnding } from './ending.ts';
import { GenerationDesk } from './generation-desk.ts';
import { HttpMetrics } from './http-metrics.ts';
import { LoraLog } from './lora-log.ts';
import { kvEventSources } from './kv-event-sources.ts';
import { modelList } from './models.ts';
import type { VllmOptions } from './options.ts';
import type { ParseContext } from './parse.ts';
import { renderExposition } from './exposition.ts';
import { GENERATION_PATHS, methodsOf } from './routes.ts';
import { detokenizeReply, tokenizeReply } from './tokenize.ts';
import { countTokensReply } from './messages-request.ts';
import { parseJsonBody, type JsonObject } from './validation.ts';

export const VLLM_VERSION = '0.32.0';
const GUARDED = ['/v1', '/v2', '/inference', '/cohere'];
/** Whatever the client asks for: the client library's, although the text is that of 0.0.4. */
const EXPOSITION_TYPE = 'text/plain; version=1.0.0; charset=utf-8';

export function vllmSurface(host: EngineHost): EngineSurface {
  return new VllmSurface(host);
}

class VllmSurface implements EngineSurface {
  readonly opensAheadMs = 0;
  readonly #host: EngineHost;
  readonly #options: VllmOptions;
  readonly #adapters: Adapters;
  readonly #http = new HttpMetrics();
  readonly #devMode: DevMode;
  readonly #desk: GenerationDesk;
  readonly #ending: VllmEnding;
  readonly #loraLog: LoraLog | null;

  constructor(host: EngineHost) {
    this.#host = host;
    this.#options = host.options.vllm ?? {};
    this.#adapters = new Adapters(host.options.model, this.#options.loraModules ?? []);
    this.#devMode = new DevMode(host.engines);
    const fingerprint = `vllm-${VLLM_VERSION}-${fingerprintOf(host)}`;
    this.#desk = new GenerationDesk(host, fingerprint);
    this.#ending = new VllmEnding(host, this.#options);
    this.#loraLog = this.#options.enableLora === true ? new LoraLog(host) : null;
    this.#listenToSteps();
  }

  readonly kvEncoding = (): KvEncoding => {
    const { options, engines, runtime } = this.#host;
    return vllmKvEncoding({
      form: options.kvEventForm ?? 'map',
      blockTokens: engines[0]!.model.profile.blockTokens,
      seed: Math.floor(runtime.random.next() * 2 ** 32),
      loraId: (name) => this.#adapters.idOf(name),
    });
  };

  answer(call: HttpCall, response: ServerResponse): void {
    this.#count(call, response);
    if (this.#options.loadTracking !== false && GENERATION_PATHS.has(call.path)) {
      this.#desk.track(response);
    }
    const refusal = this.#refusal(call);
    if (refusal !== null) return this.#send(call, response, refusal);
    const later = this.#devMode.answer(call);
    if (later === null) return this.#answerNow(call, response);
    void later.then((reply) => this.#send(call, response, reply));
  }

  coreDied(): void {
    this.#ending.coreDied();
  }

  rested(): void {
    this.#devMode.rested();
  }

  stopped(): void {
    this.#ending.stopped();
  }

  terminate(): void {
    this.#ending.terminate();
  }

  #listenToSteps(): void {
    const log = this.#loraLog;
    const { timing } = this.#desk;
    for (const { model } of this.#host.engines) {
      const step = (facts: StepFacts): void => {
        timing?.step(facts);
        log?.look(model.stats.adapters);
      };
      model.onStep = log === null && timing === null ? null : step;
    }
  }

  /** What is wrong before the body is looked at; null when nothing is. */
  #refusal({ method, path, headers }: HttpCall): Reply | null {
    const { apiKey } = this.#host.options;
    const guarded = GUARDED.some((prefix) => path.startsWith(prefix));
    const asked = apiKey !== undefined && apiKey !== null && guarded;
    if (asked && headers.authorization !== `Bearer ${apiKey}`) return UNAUTHORIZED;
    const methods = methodsOf(path, this.#options);
    if (methods === null) return NOT_FOUND;
    return methods.includes(method) ? null : methodNotAllowed(methods[0] ?? 'GET');
  }

  #answerNow(call: HttpCall, response: ServerResponse): void {
    const plain = this.#plainReply(call.path);
    if (plain !== null) return this.#send(call, response, plain);
    const type = call.headers['content-type'];
    const parsed = parseJsonBody(type, call.body.toString('utf8'));
    if (!parsed.ok) return this.#send(call, response, parsed.reply);
    const context = this.#context();
    const reply = this.#jsonReply(call.path, parsed.value, context);
    if (reply !== null) return this.#send(call, response, reply);
    const headers = this.#headersOf(call);
    this.#desk.answer({ call, body: parsed.value, context, headers }, response);
  }

  #plainReply(path: string): Reply | null {
    const { engines } = this.#host;
    switch (path) {
      case '/health':
      case '/ping':
        return {
          status: engines.some(({ model }) => model.phase === 'dead') ? 503 : 200,
          body: '',
        };
      case '/version':
        return { status: 200, body: { version: VLLM_VERSION } };
      case '/load':
        return { status: 200, body: { server_load: this.#desk.load } };
      case '/metrics':
        return { status: 200, body: this.#exposition(), contentType: EXPOSITION_TYPE };
      case '/kv_event_sources':
        return { status: 200, body: kvEventSources(this.#host) };
      case '/v1/models':
        return { status: 200, body: modelList(this.#host, this.#adapters.modules) };
      default:
        return null;
    }
  }

  #jsonReply(path: string, body: JsonObject, context: ParseContext): Reply | null {
    switch (path) {
      case '/tokenize':
        return tokenizeReply(body, context);
      case '/detokenize':
        return detokenizeReply(body, context);
      case '/v1/messages/count_tokens':
        return countTokensReply(body, context);
      case '/v1/load_lora_adapter':
        return this.#adapters.load(body);
      case '/v1/unload_lora_adapter':
        return this.#adapters.unload(body);
      default:
        return null;
    }
  }

  #context(): ParseContext {
    return {
      model: this.#host.options.model,
      maxModelLen: this.#host.engines[0]!.model.maxModelLen,
      adapters: this.#adapters.names,
      toolsEnabled: this.#options.tools ?? true,
    };
  }

  #exposition(): string {
    const { options, engines, startedWallMs, openedWallMs } = this.#host;
    const body = renderExposition({
      modelName: options.model,
      profile: engines[0]!.model.profile,
      maxModelLen: engines[0]!.model.maxModelLen,
      engines: engines.map(({ model }) => model.stats),
      http: this.#http,
      startTimeSeconds: startedWallMs / 1000,
      createdSeconds: openedWallMs / 1000,
      loras: this.#loraLog?.rows() ?? null,
    });
    const more = this.#devMode.expositionLines();
    return more.length === 0 ? body : `${body}${more.join('\n')}\n`;
  }

  #send(call: HttpCall, response: ServerResponse, reply: Reply): void {
    const headers = { ...reply.headers, ...this.#headersOf(call) };
    sendReply(response, { ...reply, headers }, this.#wallMs());
  }

  #headersOf({ headers }: HttpCall): Readonly<Record<string, string>> {
    if (this.#options.requestIdHeaders !== true) return {};
    const given = headers['x-request-id'];
    return { 'x-request-id': typeof given === 'string' ? given : this.#host.hex(32) };
  }

  #count(call: HttpCall, response: ServerResponse): void {
    const { clock } = this.#host.runtime;
    const startMs = clock.nowMs();
    response.once('finish', () => {
      const methods = methodsOf(call.path, this.#options);
      const exchange = {
        handler: methods?.includes(call.method) === true ? call.path : null,
        method: call.method,
        status: response.statusCode,
        requestBytes: Number(call.headers['content-length'] ?? 0),
        responseBytes: Number(response.getHeader('content-length') ?? 0),
        seconds: (clock.nowMs() - startMs) / 1000,
      };
      this.#http.observe(exchange, clock.wallMs() / 1000);
    });
  }

  #wallMs(): number {
    return this.#host.runtime.clock.wallMs();
  }
}

/** Equal configurations have equal ones, as vLLM's hash of its configuration. */
function fingerprintOf({ options }: EngineHost): string {
  const text = `${options.model} ${JSON.stringify(options.profile)} ${options.dataParallelSize ?? 1}`;
  let key = 1;
  for (let at = 0; at < text.length; at += 1) key = mixKey(key, text.charCodeAt(at));
  return (key >>> 0).toString(16).padStart(8, '0');
}
