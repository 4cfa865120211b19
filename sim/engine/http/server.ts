// A simulated engine as an HTTP server that speaks vLLM 0.32: the model of model.ts in real time behind vLLM's
// endpoints, statuses, headers and bodies, and `/sim/…` to break it.

import type { IncomingMessage, ServerResponse } from 'node:http';

import type { RoleRuntime } from '../../../shared/runtime/role.ts';
import { answerAdmin } from './admin.ts';
import { EngineDriver } from './driver.ts';
import { answerGeneration } from './vllm/generate.ts';
import { Listener } from './listener.ts';
import type { EngineServerOptions } from './options.ts';
import { parseJsonBody, type Generation } from './vllm/parse.ts';
import { ReceivedLog, type ReceivedRequest } from './received.ts';
import { NOT_FOUND, sendReply, type Reply } from './reply.ts';
import { routeRequest, VLLM_VERSION, type Surface } from './vllm/surface.ts';
import { EngineModel, type EngineTruth } from '../model.ts';

export type { EngineServerOptions } from './options.ts';

export type EngineRuntime = Pick<RoleRuntime, 'clock' | 'timers' | 'random' | 'log'>;

export interface RunningEngine {
  readonly port: number;
  /** Base URL, no path. */
  readonly url: string;
  /** When the port is open; at once if it is. */
  whenServing(): Promise<void>;
  state(): EngineState;
  received(): readonly ReceivedRequest[];
  clearReceived(): void;
  /** Connections are cut and the port closes; loads again after `restartAfterMs`, or stays down. */
  crash(options: { readonly restartAfterMs?: number }): Promise<void>;
  /** A new process, now. Only of use while it is down. */
  restart(): void;
  /** Streams end with an error event, `/health` is 503, the port closes 2 s later. */
  killCore(): void;
  freeze(): void;
  thaw(): void;
  slow(factor: number): void;
  close(): Promise<void>;
}

export interface EngineState extends EngineTruth {
  readonly model: string;
  readonly profile: string;
  readonly maxModelLen: number;
}

const BODY_BYTES_MAX = 64 * 1024 * 1024;
const BODY_TOO_LARGE: Reply = { status: 413, body: { detail: 'Request Entity Too Large' } };
const CLOSE_AFTER_CORE_DEATH_MS = 2_000;

/**
 * Starts an engine. Settled once the port number is known; the port opens `loadingMs` later, until when it
 * refuses connections. Rejects when the port is taken.
 */
export async function startEngineServer(
  options: EngineServerOptions,
  runtime: EngineRuntime,
): Promise<RunningEngine> {
  const server = new EngineServer(options, runtime);
  await server.start();
  return server;
}

class EngineServer implements RunningEngine {
  readonly #options: EngineServerOptions;
  readonly #runtime: EngineRuntime;
  readonly #driver: EngineDriver;
  readonly #listener: Listener;
  readonly #received: ReceivedLog;
  readonly #fingerprint: string;
  readonly #cancels = new Set<() => void>();
  readonly #waiters: (() => void)[] = [];
  #startedWallMs: number;
  #createdWallMs: number;
  #generating = 0;
  #generated = 0;

  constructor(options: EngineServerOptions, runtime: EngineRuntime) {
    this.#options = options;
    this.#runtime = runtime;
    this.#startedWallMs = runtime.clock.wallMs();
    this.#createdWallMs = this.#startedWallMs;
    const model = new EngineModel(options.profile, runtime.random, {
      nowMs: runtime.clock.nowMs(),
      loadingMs: this.#loadingMs(),
    });
    this.#driver = new EngineDriver(model, runtime, () => this.#open());
    this.#listener = new Listener(options, runtime.timers, (request, response) => {
      void this.#serve(request, response).catch((error: unknown) => {
        // A client that goes away while it sends is no fault of ours.
        const level = request.readableAborted ? 'debug' : 'error';
        runtime.log[level]({ err: error }, 'engine-sim request failed');
        response.destroy();
      });
    });
    this.#received = new ReceivedLog(options.receivedMax ?? 200);
    this.#fingerprint = `vllm-${VLLM_VERSION}-${this.#hex(8)}`;
  }

  get port(): number {
    return this.#listener.port;
  }

  get url(): string {
    const { host } = this.#options;
    return `http://${host.includes(':') ? `[${host}]` : host}:${this.port}`;
  }

  async start(): Promise<void> {
    await this.#listener.reserve();
    this.#driver.change(() => {});
    if (this.#loadingMs() === 0) await this.whenServing();
  }

  whenServing(): Promise<void> {
    if (this.#listener.isOpen) return Promise.resolve();
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  state(): EngineState {
    this.#driver.catchUp();
    const { model } = this.#driver;
    return {
      ...model.truth(this.#driver.nowMs()),
      model: this.#options.model,
      profile: model.profile.name,
      maxModelLen: model.maxModelLen,
    };
  }

  received(): readonly ReceivedRequest[] {
    return this.#received.list();
  }

  clearReceived(): void {
    this.#received.clear();
  }

  async crash({ restartAfterMs }: { readonly restartAfterMs?: number }): Promise<void> {
    this.#driver.stop();
    this.#driver.model.crash(this.#driver.nowMs());
    const shut = this.#listener.shut();
    if (restartAfterMs !== undefined) this.#after(restartAfterMs, () => this.restart());
    await shut;
  }

  restart(): void {
    this.#startedWallMs = this.#runtime.clock.wallMs();
    this.#driver.change((nowMs) => this.#driver.model.restart(nowMs, this.#loadingMs()));
  }

  killCore(): void {
    this.#driver.change((nowMs) => this.#driver.model.killCore(nowMs));
    const { incarnation } = this.#driver.model;
    this.#after(CLOSE_AFTER_CORE_DEATH_MS, () => {
      if (this.#driver.model.incarnation === incarnation) void this.crash({});
    });
  }

  freeze(): void {
    this.#driver.change((nowMs) => this.#driver.model.freeze(nowMs));
  }

  thaw(): void {
    this.#driver.change((nowMs) => this.#driver.model.thaw(nowMs));
  }

  slow(factor: number): void {
    this.#driver.change(() => this.#driver.model.slow(factor));
  }

  async close(): Promise<void> {
    for (const cancel of this.#cancels) cancel();
    this.#cancels.clear();
    this.#driver.stop();
    await this.#listener.shut();
  }

  #open(): void {
    this.#createdWallMs = this.#runtime.clock.wallMs();
    this.#listener.open().then(
      () => {
        for (const resolve of this.#waiters.splice(0)) resolve();
      },
      (error: unknown) =>
        this.#runtime.log.error({ err: error }, 'engine-sim cannot open its port'),
    );
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/' } = request;
    const path = url.split('?')[0] ?? url;
    const body = await readBody(request);
    if (response.destroyed) return;
    const atMs = this.#runtime.clock.wallMs();
    if (body === null) return sendReply(response, BODY_TOO_LARGE, atMs);
    if (path.startsWith('/sim/')) return this.#serveAdmin({ method, path, body }, response);
    this.#received.add({ atMs, method, path: url }, { headers: request.rawHeaders, body });
    this.#driver.catchUp();
    const { authorization, 'content-type': contentType } = request.headers;
    const call = { method, path, authorization, contentType, body };
    const reply = routeRequest(this.#surface(atMs), call);
    if (isReply(reply)) sendReply(response, reply, atMs);
    else this.#generate(reply, request, response);
  }

  #serveAdmin(
    call: { method: string; path: string; body: Buffer },
    response: ServerResponse,
  ): void {
    const parsed = parseJsonBody(
      'application/json',
      call.body.length === 0 ? '{}' : call.body.toString(),
    );
    const answer = parsed.ok
      ? answerAdmin(this, { ...call, body: parsed.value })
      : { reply: parsed.reply };
    if (answer?.after !== undefined) response.once('finish', answer.after);
    sendReply(response, answer?.reply ?? NOT_FOUND, this.#runtime.clock.wallMs());
  }

  #surface(nowWallMs: number): Surface {
    return {
      modelName: this.#options.model,
      apiKey: this.#options.apiKey ?? null,
      model: this.#driver.model,
      startedWallMs: this.#startedWallMs,
      createdWallMs: this.#createdWallMs,
      nowWallMs,
      generating: this.#generating,
      hex: (digits) => this.#hex(digits),
    };
  }

  #generate(generation: Generation, request: IncomingMessage, response: ServerResponse): void {
    const prefix = generation.kind === 'chat' ? 'chatcmpl' : 'cmpl';
    const given = request.headers['x-request-id'];
    const id = `${prefix}-${typeof given === 'string' && given !== '' ? given : this.#hex(16)}`;
    this.#generating += 1;
    response.once('close', () => (this.#generating -= 1));
    const wallMs = (): number => this.#runtime.clock.wallMs();
    this.#generated += 1;
    const head = {
      kind: generation.kind,
      id,
      serial: this.#generated,
      created: Math.floor(wallMs() / 1000),
      model: this.#options.model,
      fingerprint: this.#fingerprint,
      details: this.#options.promptTokensDetails ?? true,
    };
    answerGeneration({ driver: this.#driver, head, wallMs }, generation, response);
  }

  #loadingMs(): number {
    return this.#options.loadingMs ?? this.#options.profile.loadingMs;
  }

  #after(delayMs: number, task: () => void): void {
    const cancel = this.#runtime.timers.after(delayMs, () => {
      this.#cancels.delete(cancel);
      task();
    });
    this.#cancels.add(cancel);
  }

  #hex(digits: number): string {
    let text = '';
    while (text.length < digits) text += Math.floor(this.#runtime.random.next() * 16).toString(16);
    return text;
  }
}

function isReply(value: Reply | Generation): value is Reply {
  return 'status' in value;
}

/** The whole body; null when it is longer than is taken. */
async function readBody(request: IncomingMessage): Promise<Buffer | null> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
