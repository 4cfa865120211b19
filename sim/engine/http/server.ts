// A simulated engine as a process behind a port: models in real time, the surface of its kind in front of them, and
// `/sim/…` to break it.

import type { IncomingMessage, ServerResponse } from 'node:http';

import { EngineModel } from '../model.ts';
import { serveAdmin } from './admin.ts';
import { EngineDriver } from './driver.ts';
import { SURFACES } from './kinds.ts';
import type { KvEndpoints, KvFeed } from './kv-feed.ts';
import { Listener } from './listener.ts';
import type { EngineServerOptions } from './options.ts';
import { ReceivedLog, type ReceivedRequest } from './received.ts';
import { readBody } from './read-body.ts';
import { sendReply, type Reply } from './reply.ts';
import { sumOfRanks, type EngineState, type RunningEngine } from './running-engine.ts';
import type { EngineHost, EngineRuntime, EngineSurface } from './surface.ts';
import { TimerSet } from './timer-set.ts';

export { KvEndpointFault } from './kv-endpoint-fault.ts';
export type { EngineServerOptions } from './options.ts';
export type { RunningEngine } from './running-engine.ts';

const BODY_TOO_LARGE: Reply = { status: 413, body: { detail: 'Request Entity Too Large' } };

/** Exit code of a process that nobody told to end. */
const CRASHED = 1;

/**
 * Starts an engine. Settled once the port number is known; the port opens `loadingMs` later, until when it
 * refuses connections. Rejects when the port is taken, and with a `KvEndpointFault` where KV events cannot be published.
 */
export async function startEngineServer(
  options: EngineServerOptions,
  runtime: EngineRuntime,
): Promise<RunningEngine> {
  const server = new EngineServer(options, runtime, await feedOf(options, runtime));
  try {
    await server.start();
  } catch (error) {
    await server.close();
    throw error;
  }
  return server;
}

/** ZeroMQ's native part is loaded only where events are published. */
async function feedOf(
  options: EngineServerOptions,
  runtime: EngineRuntime,
): Promise<KvFeed | null> {
  const { kvEvents, dataParallelSize } = options;
  if (kvEvents === undefined) return null;
  const { KvFeed: Feed } = await import('./kv-feed.ts');
  return new Feed(kvEvents, dataParallelSize ?? 1, runtime);
}

class EngineServer implements RunningEngine, EngineHost {
  readonly options: EngineServerOptions;
  readonly runtime: EngineRuntime;
  readonly engines: readonly EngineDriver[];
  readonly #listener: Listener;
  readonly #received: ReceivedLog;
  readonly #feed: KvFeed | null;
  /** Timers of the present process, and of what is done to it from outside. */
  readonly #inside: TimerSet;
  readonly #outside: TimerSet;
  #waiting: (() => void)[] = [];
  #goneWaiting: ((code: number) => void)[] = [];
  #surface: EngineSurface;
  startedWallMs: number;
  openedWallMs: number;

  constructor(options: EngineServerOptions, runtime: EngineRuntime, feed: KvFeed | null) {
    this.options = options;
    this.runtime = runtime;
    this.#inside = new TimerSet(runtime.timers);
    this.#outside = new TimerSet(runtime.timers);
    this.startedWallMs = runtime.clock.wallMs();
    this.openedWallMs = this.startedWallMs;
    const start = {
      nowMs: runtime.clock.nowMs(),
      loadingMs: this.#loadingMs(),
      kvEvents: feed !== null,
    };
    this.#feed = feed;
    this.engines = Array.from({ length: options.dataParallelSize ?? 1 }, (_, rank) => {
      const model = new EngineModel(options.profile, runtime.random, start);
      return new EngineDriver(model, runtime, {
        serving: () => this.#served(),
        blocks: (events) => this.#feed?.publish(rank, events),
        rested: () => this.#surface.rested?.(),
        stopped: () => this.#surface.stopped?.(),
      });
    });
    this.#listener = new Listener(options, runtime.timers, (request, response) => {
      void this.#serve(request, response).catch((error: unknown) => {
        // A client that goes away while it sends is no fault of ours.
        const level = request.readableAborted ? 'debug' : 'error';
        runtime.log[level]({ err: error }, 'engine-sim request failed');
        response.destroy();
      });
    });
    this.#received = new ReceivedLog(options.receivedMax ?? 200);
    this.#surface = SURFACES[options.kind ?? 'vllm'](this);
  }

  get port(): number {
    return this.#listener.port;
  }

  get url(): string {
    const { host } = this.options;
    return `http://${host.includes(':') ? `[${host}]` : host}:${this.port}`;
  }

  async start(): Promise<void> {
    await this.#listener.reserve();
    this.#startFeed();
    await this.#feed?.whenStarted();
    this.#begin();
    if (this.#loadingMs() === 0) await this.whenServing();
  }

  whenServing(): Promise<void> {
    if (this.#listener.isOpen && this.#generates()) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  state(): EngineState {
    const ranks = this.engines.map((engine) => {
      engine.catchUp();
      return engine.model.truth(engine.nowMs());
    });
    const { profile, maxModelLen } = this.engines[0]!.model;
    return {
      ...sumOfRanks(ranks),
      kind: this.options.kind ?? 'vllm',
      model: this.options.model,
      profile: profile.name,
      maxModelLen,
      ranks,
    };
  }

  kvEndpoints(): readonly KvEndpoints[] {
    return this.#feed?.endpoints ?? [];
  }

  dropKvEvents(batches: number): void {
    this.#feed?.drop(batches);
  }

  received(): readonly ReceivedRequest[] {
    return this.#received.list();
  }

  clearReceived(): void {
    this.#received.clear();
  }

  async crash({ restartAfterMs }: { readonly restartAfterMs?: number }): Promise<void> {
    if (restartAfterMs === undefined) return this.#end(CRASHED);
    this.#outside.after(restartAfterMs, () => this.restart());
    await this.#shut();
  }

  async #end(code: number): Promise<void> {
    await this.#shut();
    for (const resolve of this.#goneWaiting.splice(0)) resolve(code);
  }

  /** Nothing is left of the process. */
  async #shut(): Promise<void> {
    this.#inside.cancel();
    for (const engine of this.engines) {
      engine.stop();
      engine.model.crash(engine.nowMs());
    }
    this.#feed?.close();
    await this.#listener.shut();
  }

  restart(): void {
    if (this.engines.some(({ model }) => model.phase !== 'down')) return;
    this.startedWallMs = this.runtime.clock.wallMs();
    this.#surface = SURFACES[this.options.kind ?? 'vllm'](this);
    for (const { model } of this.engines) {
      model.restart(this.runtime.clock.nowMs(), this.#loadingMs());
    }
    this.#startFeed();
    this.#begin();
  }

  killCore(): void {
    for (const engine of this.engines) engine.change((nowMs) => engine.model.killCore(nowMs));
    this.#surface.coreDied();
  }

  failBatch(): boolean {
    if (this.#surface.failBatch === undefined) return false;
    this.#surface.failBatch();
    return true;
  }

  freeze(): void {
    for (const engine of this.engines) engine.change((nowMs) => engine.model.freeze(nowMs));
  }

  thaw(): void {
    for (const engine of this.engines) engine.change((nowMs) => engine.model.thaw(nowMs));
  }

  slow(factor: number): void {
    for (const engine of this.engines) engine.change(() => engine.model.slow(factor));
  }

  async terminate(): Promise<void> {
    if (this.engines.every(({ model }) => model.phase === 'down')) return;
    const gone = this.whenGone();
    this.#surface.terminate();
    await gone;
  }

  whenGone(): Promise<number> {
    return new Promise((resolve) => this.#goneWaiting.push(resolve));
  }

  async close(): Promise<void> {
    this.#inside.cancel();
    this.#outside.cancel();
    for (const engine of this.engines) engine.stop();
    this.#feed?.close();
    await this.#listener.shut();
  }

  hex(digits: number): string {
    let text = '';
    while (text.length < digits) text += Math.floor(this.runtime.random.next() * 16).toString(16);
    return text;
  }

  after(delayMs: number, task: () => void): void {
    this.#inside.after(delayMs, task);
  }

  stopListening(): void {
    this.#listener.stopAccepting();
  }

  exit(code = 0): void {
    void this.#end(code);
  }

  #startFeed(): void {
    const { kvEncoding } = this.#surface;
    if (kvEncoding !== null) this.#feed?.start(kvEncoding);
  }

  /** The process has been started: its port opens when its kind opens it. */
  #begin(): void {
    const { opensAheadMs } = this.#surface;
    if (opensAheadMs > 0) {
      this.after(Math.max(0, this.#loadingMs() - opensAheadMs), () => this.#open());
    }
    for (const engine of this.engines) engine.change(() => {});
  }

  #generates(): boolean {
    return this.engines.every(({ model }) => model.phase === 'serving');
  }

  #served(): void {
    if (!this.#generates()) return;
    if (this.#listener.isOpen) this.#settleWaiting();
    else if (this.#surface.opensAheadMs === 0) this.#open();
  }

  #open(): void {
    this.openedWallMs = this.runtime.clock.wallMs();
    this.#openAll().then(
      () => this.#settleWaiting(),
      (error: unknown) => {
        this.runtime.log.error({ err: error }, 'engine-sim cannot open its port');
        this.exit(CRASHED);
      },
    );
  }

  async #openAll(): Promise<void> {
    const { incarnation } = this.engines[0]!.model;
    await this.#feed?.whenStarted();
    if (incarnation === this.engines[0]!.model.incarnation) await this.#listener.open();
  }

  #settleWaiting(): void {
    if (!this.#generates() || !this.#listener.isOpen) return;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/', headers } = request;
    const body = await readBody(request);
    if (response.destroyed) return;
    const atMs = this.runtime.clock.wallMs();
    if (body === null) return sendReply(response, BODY_TOO_LARGE, atMs);
    const { pathname: path, searchParams: query } = new URL(url, 'http://engine');
    if (path.startsWith('/sim/')) return serveAdmin(this, { method, path, body }, response);
    this.#received.add({ atMs, method, path: url }, { headers: request.rawHeaders, body });
    for (const engine of this.engines) engine.catchUp();
    this.#surface.answer({ method, path, query, headers, body }, response);
  }

  #loadingMs(): number {
    return this.options.loadingMs ?? this.options.profile.loadingMs;
  }
}
