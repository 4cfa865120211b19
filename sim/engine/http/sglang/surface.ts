// An SGLang 0.5.18 over HTTP: state of its server, and how it ends.
//
// The port opens when the weights are loaded; until its own warm-up request is through, health is 503 and other requests wait.
// SIGTERM is seen within 5 s: health is 503 from then on, everything else goes on, new requests too, until
// nothing is inside at one of the looks that it takes every 5 s; 15 s later it is gone. One that is unhealthy goes
// at once. A dead scheduler takes everything with it.

import type { ServerResponse } from 'node:http';

import { GenerationRun } from '../generation.ts';
import type { KvEncoding } from '../kv-wire.ts';
import { sendReply } from '../reply.ts';
import type { EngineHost, EngineSurface, HttpCall } from '../surface.ts';
import type { AnswerHead } from './answers.ts';
import { renderSglangExposition } from './exposition.ts';
import { answerOf, refuse, type Answering } from './generate.ts';
import { SglangHealth } from './health.ts';
import { sglangKvEncoding } from './kv-encoding.ts';
import { LoadSnapshots, type Snapshot } from './loads.ts';
import { validate, type SglangGeneration } from './parse.ts';
import { badRequest, QUEUE_FULL } from './reply.ts';
import { SglangRequests } from './requests.ts';
import { routeRequest, type SglangServer } from './routes.ts';
import { kvCapacityTokens } from '../../profiles.ts';
import { SglangFrontStats, SglangRankStats } from './stats.ts';

const WARM_UP_MS = 1_000;
const LOOK_MS = 5_000;
const SHUTDOWN_MS = 15_000;
/** How often a request that waits for the warm-up looks again. */
const WAIT_MS = 10;

export function sglangSurface(host: EngineHost): EngineSurface {
  return new SglangSurface(host);
}

class SglangSurface implements EngineSurface, SglangServer {
  readonly opensAheadMs: number;
  readonly host: EngineHost;
  readonly #front = new SglangFrontStats();
  readonly #ranks: readonly SglangRankStats[];
  readonly #snapshots: readonly LoadSnapshots[];
  readonly #requests: SglangRequests;
  readonly #health: SglangHealth;
  #stopping = false;
  #nextRank = 0;
  #serial = 0;

  constructor(host: EngineHost) {
    this.host = host;
    const { options, engines } = host;
    const loadingMs = options.loadingMs ?? options.profile.loadingMs;
    this.opensAheadMs = Math.min(options.warmUpMs ?? WARM_UP_MS, loadingMs);
    this.#requests = new SglangRequests(this.#front);
    this.#health = new SglangHealth((delayMs, task) => host.after(delayMs, task));
    this.#ranks = engines.map(() => new SglangRankStats());
    this.#snapshots = engines.map(
      (engine, rank) => new LoadSnapshots(engine, this.#ranks[rank]!, rank),
    );
    engines.forEach((_, rank) => this.#watch(rank));
  }

  readonly kvEncoding = (): KvEncoding =>
    sglangKvEncoding(this.host.engines[0]!.model.profile.blockTokens);

  answer(call: HttpCall, response: ServerResponse): void {
    const answered = this.#front.countHttp(call.path, call.method);
    response.once('close', () => answered(response.statusCode));
    const routed = routeRequest(this, call);
    if (routed.kind === 'reply') sendReply(response, routed.reply, this.#wallMs());
    else if (routed.kind === 'health') this.#answerHealth(response);
    else this.#whenStarted(response, () => this.#generate(routed.generation, call, response));
  }

  coreDied(): void {
    this.host.exit(1);
  }

  terminate(): void {
    if (this.#health.unhealthy) return this.host.exit();
    this.host.after(this.host.runtime.random.next() * LOOK_MS, () => {
      this.#stopping = true;
      this.#exitWhenIdle();
    });
  }

  metrics(): string {
    const { options, engines } = this.host;
    const { profile, maxModelLen } = engines[0]!.model;
    return renderSglangExposition({
      modelName: options.model,
      front: this.#front,
      ranks: this.#ranks,
      pageSize: profile.blockTokens,
      capacityTokens: kvCapacityTokens(profile),
      contextTokens: maxModelLen,
    });
  }

  loads(): readonly Snapshot[] {
    return this.#snapshots.map((each) => each.read(this.#wallMs()));
  }

  flush(): boolean {
    if (this.#requests.size > 0) return false;
    return this.host.engines.every(({ model }) => model.resetPrefixCache());
  }

  abort(rid: string | null): void {
    this.#front.aborted += this.#requests.abort(rid);
  }

  /** Steps of a rank, as its scheduler counts them. */
  #watch(rank: number): void {
    const { model } = this.host.engines[rank]!;
    const stats = this.#ranks[rank]!;
    const capacity = kvCapacityTokens(model.profile);
    model.onStep = (step) => {
      this.#requests.admitted(step, stats);
      this.#snapshots[rank]!.stepEnded(step.endMs);
      stats.countStep(step, () => {
        const { running, waiting, kvUsageRatio } = model.stats;
        const usedTokens = Math.round(kvUsageRatio * capacity);
        return { running, waiting, usedTokens, usageRatio: kvUsageRatio };
      });
    };
  }

  #generate(generation: SglangGeneration, call: HttpCall, response: ServerResponse): void {
    const head: AnswerHead = {
      kind: generation.kind,
      id: generation.rid ?? this.host.hex(32),
      created: Math.floor(this.#wallMs() / 1_000),
      model: generation.model,
      cacheReport: this.host.options.cacheReport === true,
      tool: generation.call?.name ?? null,
    };
    const wallMs = (): number => this.#wallMs();
    const answer = { head, generation, response, wallMs };
    const rank = this.#rankOf(generation, call);
    const engine = this.host.engines[rank];
    if (engine === undefined) {
      return refuse(answer, badRequest(`data_parallel_rank ${rank} is out of range`));
    }
    const fault = validate(generation, engine.model.maxModelLen);
    if (fault !== null) return refuse(answer, fault);
    const { maxQueuedRequests: most } = this.host.options;
    if (most === undefined || this.#requests.waitingOn(engine) < most) {
      return this.#run(answer, rank);
    }
    this.#front.aborted += 1;
    refuse(answer, QUEUE_FULL);
  }

  #run(answer: Omit<Answering, 'seconds'>, rank: number): void {
    const { head, generation, response } = answer;
    const engine = this.host.engines[rank]!;
    const arrivedMs = engine.nowMs();
    this.#serial += 1;
    const run = new GenerationRun(engine, { ...generation, id: `${head.id}#${this.#serial}` });
    const answering = { ...answer, seconds: () => (engine.nowMs() - arrivedMs) / 1_000 };
    const told = answerOf(answering, run);
    this.#requests.add({ rid: head.id, run, answer: told, arrivedMs });
    response.once('close', () => {
      if (response.writableFinished) return;
      run.abort();
      this.#left(run);
    });
    const listener = this.#requests.counted(
      run,
      { rank: this.#ranks[rank]!, stream: generation.stream },
      told,
    );
    const refused = run.submit({
      ...listener,
      token: (choice, piece) => {
        this.#health.answered(engine.nowMs());
        listener.token(choice, piece);
      },
    });
    if (refused === null) return;
    this.#left(run);
    // A dead scheduler has taken the server with it: nobody is there to answer.
    if (refused === 'queue_full') refuse(answer, QUEUE_FULL);
    else response.destroy();
  }

  #left(run: GenerationRun): void {
    if (this.#requests.remove(run)) this.#front.aborted += 1;
  }

  /** As the client says, else in turn. */
  #rankOf({ rank }: SglangGeneration, { headers }: HttpCall): number {
    const header = headers['x-data-parallel-rank'];
    const named = typeof header === 'string' && /^\d+$/.test(header) ? Number(header) : rank;
    if (named !== null) return named;
    this.#nextRank = (this.#nextRank + 1) % this.host.engines.length;
    return this.#nextRank;
  }

  #answerHealth(response: ServerResponse): void {
    const say = (healthy: boolean): void =>
      sendReply(response, { status: healthy ? 200 : 503, body: '' }, this.#wallMs());
    if (this.#starting() || this.#stopping) return say(false);
    this.#health.check(this.host.engines[0]!, (healthy) => {
      if (!response.destroyed) say(healthy && !this.#stopping);
    });
  }

  #whenStarted(response: ServerResponse, task: () => void): void {
    if (response.destroyed) return;
    if (this.#starting()) this.host.after(WAIT_MS, () => this.#whenStarted(response, task));
    else task();
  }

  #starting(): boolean {
    return this.host.engines.some(({ model }) => model.phase === 'loading');
  }

  #exitWhenIdle(): void {
    const idle = this.#requests.size === 0;
    if (idle) this.host.after(SHUTDOWN_MS, () => this.host.exit());
    else this.host.after(LOOK_MS, () => this.#exitWhenIdle());
  }

  #wallMs(): number {
    return this.host.runtime.clock.wallMs();
  }
}
