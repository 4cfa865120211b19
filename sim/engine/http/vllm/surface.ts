// A vLLM 0.32 over HTTP: state of the API server, and how it ends.

import type { ServerResponse } from 'node:http';

import { vllmKvEncoding, type KvEncoding } from '../kv-wire.ts';
import { sendReply, type Reply } from '../reply.ts';
import type { EngineHost, EngineSurface, HttpCall } from '../surface.ts';
import { answerGeneration } from './generate.ts';
import type { Generation } from './parse.ts';
import { routeRequest, VLLM_VERSION, type ServerState } from './routes.ts';

const CLOSE_AFTER_CORE_DEATH_MS = 2_000;

export function vllmSurface(host: EngineHost): EngineSurface {
  return new VllmSurface(host);
}

class VllmSurface implements EngineSurface {
  readonly opensAheadMs = 0;
  readonly #host: EngineHost;
  readonly #fingerprint: string;
  /** Generation requests that are being answered. */
  #generating = 0;
  #generated = 0;

  readonly kvEncoding = (): KvEncoding => {
    const { options, engines, runtime } = this.#host;
    return vllmKvEncoding({
      form: options.kvEventForm ?? 'map',
      blockTokens: engines[0]!.model.profile.blockTokens,
      seed: Math.floor(runtime.random.next() * 2 ** 32),
      loraId: () => 0,
    });
  };

  constructor(host: EngineHost) {
    this.#host = host;
    this.#fingerprint = `vllm-${VLLM_VERSION}-${host.hex(8)}`;
  }

  answer(call: HttpCall, response: ServerResponse): void {
    const reply = routeRequest(this.#state(), call);
    if (isReply(reply)) sendReply(response, reply, this.#wallMs());
    else this.#generate(reply, call, response);
  }

  coreDied(): void {
    this.#host.after(CLOSE_AFTER_CORE_DEATH_MS, () => this.#host.exit());
  }

  terminate(): void {
    this.#host.exit();
  }

  #generate(generation: Generation, call: HttpCall, response: ServerResponse): void {
    const { options, engines } = this.#host;
    const prefix = generation.kind === 'chat' ? 'chatcmpl' : 'cmpl';
    const given = call.headers['x-request-id'];
    const id = `${prefix}-${typeof given === 'string' && given !== '' ? given : this.#host.hex(16)}`;
    this.#generating += 1;
    response.once('close', () => (this.#generating -= 1));
    this.#generated += 1;
    const head = {
      kind: generation.kind,
      id,
      serial: this.#generated,
      created: Math.floor(this.#wallMs() / 1000),
      model: options.model,
      fingerprint: this.#fingerprint,
      details: options.promptTokensDetails ?? true,
    };
    const wallMs = (): number => this.#wallMs();
    answerGeneration({ driver: engines[0]!, head, wallMs }, generation, response);
  }

  #state(): ServerState {
    const { options, engines, startedWallMs, openedWallMs } = this.#host;
    return {
      modelName: options.model,
      apiKey: options.apiKey ?? null,
      model: engines[0]!.model,
      startedWallMs,
      createdWallMs: openedWallMs,
      nowWallMs: this.#wallMs(),
      generating: this.#generating,
      hex: (digits) => this.#host.hex(digits),
    };
  }

  #wallMs(): number {
    return this.#host.runtime.clock.wallMs();
  }
}

function isReply(value: Reply | Generation): value is Reply {
  return 'status' in value;
}
