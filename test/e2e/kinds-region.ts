// A region in this process for one kind of engine: a real router, a real agent, two simulated engines of that kind over
// HTTP, and a client that speaks OpenAI's SDK.

import OpenAI from 'openai';
import { startAgent, type RunningAgent } from '../../agent/start.ts';
import { startRegionalRouter, type RunningRouter } from '../../router/regional/start.ts';
import type { EngineKind } from '../../shared/model/engine-kind.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import {
  startEngineServer,
  type EngineServerOptions,
  type RunningEngine,
} from '../../sim/engine/http/server.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from './agent-options.ts';
import { captureLog, routerOptions } from './shell-harness.ts';
import { until } from './until.ts';

export const MODEL = 'sim-model';
/** Fast to answer, slow enough to be caught at it: 8 ms a token, 0.2 ms a prompt token. */
export const PROFILE: EngineProfile = {
  ...(ENGINE_PROFILES['demo'] as EngineProfile),
  jitterRatio: 0,
};
const SCRAPE_MS = 200;

export interface RegionOptions {
  /** What the agent is told that its engines are; null: it finds out. */
  readonly agentKind: EngineKind | null;
  readonly engine: Partial<EngineServerOptions>;
  /** ms without a token after which a stream is broken off; the router's default where absent. */
  readonly stallMinMs?: number;
}

export interface Told {
  readonly text: string;
  readonly finish: string | null;
  readonly replica: string | null;
  readonly attempts: number;
}

export type Messages = OpenAI.ChatCompletionMessageParam[];

export class KindRegion {
  readonly lines: Record<string, unknown>[];
  readonly engines: RunningEngine[] = [];
  readonly #options: RegionOptions;
  readonly #runtime: RoleRuntime;
  readonly #agents: RunningAgent[] = [];
  #router: RunningRouter | null = null;

  private constructor(options: RegionOptions) {
    const { lines, log } = captureLog();
    this.lines = lines;
    this.#options = options;
    this.#runtime = { clock: systemClock, timers: systemTimers, random: seededRandom(7), log };
  }

  /** With both engines ready. */
  static async open(options: RegionOptions): Promise<KindRegion> {
    const region = new KindRegion(options);
    const { stallMinMs } = options;
    const settings = stallMinMs === undefined ? {} : { stallMinMs };
    region.#router = await startRegionalRouter(routerOptions({ settings }), region.#runtime);
    await Promise.all([region.addEngine(), region.addEngine()]);
    await region.whenReady(2);
    return region;
  }

  get router(): RunningRouter {
    if (this.#router === null) throw new Error('the region is not open');
    return this.#router;
  }

  /** One more engine with an agent of its own. */
  async addEngine(changes: Partial<EngineServerOptions> = {}): Promise<RunningEngine> {
    const given = { host: '127.0.0.1', port: 0, model: MODEL, profile: PROFILE, loadingMs: 0 };
    const engine = await startEngineServer(
      { ...given, ...this.#options.engine, ...changes },
      this.#runtime,
    );
    this.engines.push(engine);
    await this.addAgent(engine.url, this.#options.agentKind);
    return engine;
  }

  /** `kind` null: it finds out what is there. */
  async addAgent(url: string, kind: EngineKind | null): Promise<void> {
    const agent = await startAgent(
      agentOptions(
        { url, advertiseUrl: url, pidFile: null, kind },
        `ws://127.0.0.1:${this.router.linksPort}`,
        { settings: { scrapeIntervalMs: SCRAPE_MS } },
      ),
      this.#runtime,
    );
    this.#agents.push(agent);
  }

  pool() {
    const [pool] = this.router.status().pools;
    if (pool === undefined) throw new Error('no pool');
    return pool;
  }

  target(engine: RunningEngine) {
    const replica = this.pool().replicas.find(({ id }) => id === replicaOf(engine));
    return replica?.targets[0];
  }

  whenReady(count: number): Promise<void> {
    return until(() => this.pool().ready === count, { says: () => this.#says() });
  }

  /** Fit for users again, all of them and with nothing inside. */
  async whenCalm(): Promise<void> {
    await until(
      () => {
        const { leases, openRequests } = this.router.status();
        return leases === 0 && openRequests === 0;
      },
      { says: () => this.#says() },
    );
  }

  /** The engine that holds the only lease, and the other one. */
  async whenTaken(): Promise<{ busy: RunningEngine; other: RunningEngine }> {
    const taken = (): RunningEngine | undefined =>
      this.engines.find((each) => this.target(each)?.leases === 1 && inside(each) > 0);
    await until(() => taken() !== undefined, { says: () => this.#says() });
    const busy = taken();
    const other = this.engines.find((each) => each !== busy);
    if (busy === undefined || other === undefined) throw new Error('no engine is busy');
    return { busy, other };
  }

  async whole(messages: Messages, changes: object = {}): Promise<Told> {
    const { data, response } = await this.#client()
      .chat.completions.create({ model: MODEL, messages, max_tokens: 8, ...changes, stream: false })
      .withResponse();
    const [choice] = data.choices;
    const finish = choice?.finish_reason ?? null;
    return { text: choice?.message.content ?? '', finish, ...routed(response) };
  }

  /** `onPiece` is told each piece as it comes. Rejects with what the SDK makes of an error event. */
  async streamed(
    messages: Messages,
    changes: object = {},
    onPiece: (text: string, finish: string | null) => void = () => {},
  ): Promise<Told> {
    const { data, response } = await this.#client()
      .chat.completions.create({ model: MODEL, messages, max_tokens: 8, ...changes, stream: true })
      .withResponse();
    let text = '';
    let finish: string | null = null;
    for await (const { choices } of data) {
      const [choice] = choices;
      if (choice === undefined) continue;
      text += choice.delta.content ?? '';
      finish = choice.finish_reason ?? finish;
      onPiece(choice.delta.content ?? '', choice.finish_reason);
    }
    return { text, finish, ...routed(response) };
  }

  /** One row of the router's metrics; 0 where it is not there. */
  async figure(row: string): Promise<number> {
    const answer = await fetch(`http://127.0.0.1:${this.router.clientsPort}/metrics`);
    const line = (await answer.text()).split('\n').find((each) => each.startsWith(`${row} `));
    return line === undefined ? 0 : Number(line.split(' ').at(-1));
  }

  async close(): Promise<void> {
    await Promise.all(this.#agents.map((agent) => agent.close()));
    await this.#router?.close();
    await Promise.all(this.engines.map((engine) => engine.close()));
  }

  #client(): OpenAI {
    const baseURL = `http://127.0.0.1:${this.router.clientsPort}/v1`;
    return new OpenAI({ baseURL, apiKey: 'unused', maxRetries: 0 });
  }

  #says(): string {
    const targets = this.pool().replicas.map(({ id, link, targets: [target] }) => {
      const { phase, leases, breaker, pausedForMs } = target ?? {};
      return `${id} ${link} ${phase} leases=${leases} ${breaker} paused=${pausedForMs}`;
    });
    return [...targets, ...this.lines.slice(-8).map((line) => JSON.stringify(line))].join('\n');
  }
}

export function replicaOf({ port }: RunningEngine): string {
  return `127.0.0.1:${port}`;
}

export function inside(engine: RunningEngine): number {
  return engine.state().openRequests;
}

/** About `tokens` tokens of text that no other request has. */
export function prompt(name: string, tokens = 100): Messages {
  return [{ role: 'user', content: `${name}: ${'lorem ipsum dolor sit '.repeat(tokens / 5)}` }];
}

/** A request that goes to the engine itself, past the router. Ends when `signal` says so. */
export async function direct(
  engine: RunningEngine,
  messages: Messages,
  signal: AbortSignal,
): Promise<void> {
  const body = JSON.stringify({ model: MODEL, messages, max_tokens: 10_000 });
  const headers = { 'content-type': 'application/json' };
  const url = `${engine.url}/v1/chat/completions`;
  await fetch(url, { method: 'POST', headers, body, signal }).catch(() => null);
}

function routed(response: Response): Pick<Told, 'replica' | 'attempts'> {
  return {
    replica: response.headers.get('x-spillway-replica'),
    attempts: Number(response.headers.get('x-spillway-attempts')),
  };
}
