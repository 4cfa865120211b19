// A TGI 3 over HTTP: its router's state, and how it ends.
//
// The launcher opens the port when the shards are up. At most `maxConcurrentRequests` are inside, the next is refused at once.
// SIGTERM: nothing is accepted any more, what is inside is finished, for 90 s at most. A shard that crashes fails the
// batch and ends the launcher; a device that fails fails the batch alone, and health is a real generation until one works.

import type { ServerResponse } from 'node:http';

import type { EngineDriver } from '../driver.ts';
import { GenerationRun } from '../generation.ts';
import type { EngineHost, EngineSurface, HttpCall } from '../surface.ts';
import type { AnswerHead } from './answers.ts';
import { EventStream } from './event-stream.ts';
import { renderTgiExposition } from './exposition.ts';
import { answerOf, refuse, type AnswerEnds, type Answering } from './generate.ts';
import { validate, type TgiGeneration } from './parse.ts';
import {
  DEVICE_FAILED,
  send,
  sendStreamHead,
  SHARD_GONE,
  UNHEALTHY,
  type TgiFault,
} from './reply.ts';
import { timeHeaders, timesOf, TgiRequests, type TgiRequest } from './requests.ts';
import { infoOf, limitsOf, routeRequest, TGI_VERSION, type TgiServer } from './routes.ts';
import { TgiStats } from './stats.ts';

const GRACE_MS = 90_000;
/** The launcher looks after its shards this often. */
const SHARD_WATCH_MS = 100;
const COMPUTE_TYPE = 'gpu+optimized';

export function tgiSurface(host: EngineHost): EngineSurface {
  return new TgiSurface(host);
}

class TgiSurface implements EngineSurface, TgiServer {
  readonly opensAheadMs = 0;
  readonly kvEncoding = null;
  readonly host: EngineHost;
  readonly stats: TgiStats;
  readonly #engine: EngineDriver;
  readonly #requests = new TgiRequests();
  #serial = 0;
  #healthy = true;
  #shardGone = false;
  #stopping = false;

  constructor(host: EngineHost) {
    this.host = host;
    this.#engine = host.engines[0]!;
    const { model } = this.#engine;
    const limits = limitsOf(this);
    this.stats = new TgiStats(limits.maxInputTokens, limits.maxTotalTokens);
    model.onStep = (step) => {
      this.#requests.admitted(step);
      this.stats.countStep(step, model.profile);
    };
  }

  answer(call: HttpCall, response: ServerResponse): void {
    const routed = routeRequest(this, call);
    if (routed === 'health') this.#answerHealth(response);
    else if ('status' in routed) send(response, routed, this.#wallMs());
    else this.#generate(routed, response);
  }

  metrics(): string {
    const { stats } = this;
    if (stats.received > 0) {
      const { waiting, running } = this.#engine.model;
      stats.queueSize = waiting;
      stats.batchSize = running;
      stats.batchMaxTokens = this.#requests.batchMaxTokens();
    }
    return renderTgiExposition(stats);
  }

  failBatch(): void {
    this.#healthy = false;
    for (const { run } of this.#requests.all()) run.fail();
  }

  coreDied(): void {
    this.#shardGone = true;
    this.#healthy = false;
    this.host.after(SHARD_WATCH_MS, () => this.host.exit(1));
  }

  terminate(): void {
    this.#stopping = true;
    this.host.stopListening();
    this.host.after(GRACE_MS, () => this.host.exit());
    this.#exitWhenIdle();
  }

  #generate(generation: TgiGeneration, response: ServerResponse): void {
    this.stats.received += 1;
    const head: AnswerHead = {
      kind: generation.kind,
      created: Math.floor(this.#wallMs() / 1_000),
      model: this.host.options.model,
      fingerprint: `${TGI_VERSION}-native`,
      details: generation.details,
      listed: generation.listed,
      tool: generation.call?.name ?? null,
    };
    const wallMs = (): number => this.#wallMs();
    const stream = generation.stream ? this.#beginStream(response) : null;
    const fault = this.#admission(generation);
    if (fault === null) this.#run({ head, generation, response, stream, wallMs });
    else refuse({ head, response, stream, wallMs }, this.#count(fault));
  }

  #admission(generation: TgiGeneration): TgiFault | null {
    const { maxConcurrentRequests } = infoOf(this);
    if (this.#requests.size >= maxConcurrentRequests) return { kind: 'overloaded' };
    if (this.#shardGone) return SHARD_GONE;
    return validate(generation, limitsOf(this));
  }

  #run(answer: Omit<Answering, 'headers'>): void {
    const { generation, response } = answer;
    this.#serial += 1;
    const plan = { ...generation, id: String(this.#serial) };
    const run = new GenerationRun(this.#engine, plan);
    const request = this.#enter(run, generation);
    const answering: Answering = {
      ...answer,
      headers: () => ({
        'x-compute-type': COMPUTE_TYPE,
        ...timeHeaders(request, timesOf(request, this.#engine.nowMs())),
      }),
    };
    response.once('close', () => {
      if (response.writableFinished) return;
      run.abort();
      this.stats.countFailure('dropped');
      this.#leave(request);
    });
    const fault = run.submit(answerOf(answering, run, this.#endsOf(request)));
    if (fault === null) return;
    this.#leave(request);
    refuse(answering, this.#count(fault === 'queue_full' ? { kind: 'overloaded' } : SHARD_GONE));
  }

  #enter(run: GenerationRun, { prompts, maxTokens }: TgiGeneration): TgiRequest {
    const { profile, maxModelLen } = this.#engine.model;
    let promptTokens = 0;
    let most = 0;
    for (const { length } of prompts) {
      const newTokens = maxTokens ?? maxModelLen - length;
      this.stats.countValid(length, newTokens);
      promptTokens += length;
      most += length + newTokens;
    }
    const request: TgiRequest = {
      run,
      promptTokens,
      maxTokens: most,
      arrivedMs: this.#engine.nowMs(),
      validationMs: profile.frontMs + profile.frontMsPerToken * promptTokens,
      scheduledMs: null,
    };
    this.#requests.add(request);
    return request;
  }

  #endsOf(request: TgiRequest): AnswerEnds {
    return {
      succeeded: () => {
        this.#healthy = true;
        this.stats.countSuccess(timesOf(request, this.#engine.nowMs()));
        this.#leave(request);
      },
      failed: () => {
        this.#leave(request);
        return this.#count(this.#shardGone ? SHARD_GONE : DEVICE_FAILED);
      },
    };
  }

  #leave(request: TgiRequest): void {
    this.#requests.remove(request);
    if (this.#stopping) this.#exitWhenIdle();
  }

  #exitWhenIdle(): void {
    if (this.#requests.size === 0) this.host.after(SHARD_WATCH_MS, () => this.host.exit());
  }

  #count(fault: TgiFault): TgiFault {
    this.stats.countFailure(fault.kind);
    return fault;
  }

  #beginStream(response: ServerResponse): EventStream {
    sendStreamHead(response, this.#wallMs(), { 'x-compute-type': COMPUTE_TYPE });
    return new EventStream(response, {
      nowMs: () => this.#engine.nowMs(),
      after: (delayMs, task) => this.host.after(delayMs, task),
    });
  }

  /** While nothing failed the device is looked at, which is there; after a failure a token has to come. */
  #answerHealth(response: ServerResponse): void {
    const healthy = (is: boolean): void =>
      send(response, is ? { status: 200, body: '' } : UNHEALTHY, this.#wallMs());
    if (this.#healthy) return healthy(true);
    const prompts = [Uint32Array.from([0])];
    this.#serial += 1;
    const id = `health-${this.#serial}`;
    const run = new GenerationRun(this.#engine, { id, prompts, n: 1, maxTokens: 1 });
    response.once('close', () => run.abort());
    const fault = run.submit({
      token: () => {},
      ended: () => {
        this.#healthy = true;
        healthy(true);
      },
      failed: () => healthy(false),
    });
    if (fault !== null) healthy(false);
  }

  #wallMs(): number {
    return this.host.runtime.clock.wallMs();
  }
}
