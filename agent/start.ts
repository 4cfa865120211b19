// One agent process (or role in a process): its engines, its core, its links to every router, its HTTP listener.
//
// The number of data-parallel ranks is said in the hello. An engine that was not up yet, and turns out to have more
// than assumed, or one that came back with fewer, makes the agent begin anew under a new id: nothing is known of that
// engine yet.

import type { LinkId, PoolId, ReplicaId } from '../shared/model/ids.ts';
import type { LinkEnd } from '../shared/runtime/link-socket.ts';
import type { AgentId } from '../shared/model/ids.ts';
import { replicaAt } from '../shared/runtime/address-proof.ts';
import { CoreDriver } from '../shared/runtime/core-driver.ts';
import { randomHex } from '../shared/runtime/entropy.ts';
import { createHttpPools, type HttpPools, type PeerTrust } from '../shared/runtime/http-pool.ts';
import { AGENT_LINK_LIMITS, AGENT_OF_ROUTERS } from '../shared/runtime/agent-link.ts';
import { startLinkClient, type LinkClient } from '../shared/runtime/link-client.ts';
import type { Resolve } from '../shared/runtime/link-names.ts';
import type { RoleRuntime } from '../shared/runtime/role.ts';
import { TlsStore } from '../shared/runtime/tls-material.ts';
import { SOFTWARE } from '../shared/runtime/version.ts';
import { AgentCore, type AgentStatus } from './core.ts';
import { EngineClient } from './engines/client.ts';
import type { AgentEffect, AgentEngine, AgentEvent, GenerateOrder } from './events.ts';
import { listProcesses } from './evidence-list.ts';
import { showUnit } from './evidence-unit.ts';
import { processLives, ProcessWitness } from './evidence.ts';
import { HostWatch, runSmi } from './host.ts';
import { machineWatch } from './host-machine.ts';
import { startAgentHttp, type AgentHttp } from './http.ts';
import { createAgentMetrics, type AgentMetrics } from './metrics.ts';
import type { AgentEngineOptions, AgentOptions, PeerTlsOptions } from './options.ts';
import type { KvEventsOptions } from './policy/kv-event.ts';
import { KvEars } from './kv-ears.ts';
import { generate, type GenerationDialect } from './probe.ts';
import { readQuietly } from './quiet-file.ts';
import { EngineReader } from './scrape.ts';

export interface RunningAgent {
  /** Of the HTTP listener. */
  readonly port: number;
  status(): AgentStatus;
  /** Says bye for every engine, then closes. */
  close(): Promise<void>;
}

/** What a test puts in place of the machine. */
export interface AgentSurroundings {
  readonly resolve?: Resolve;
  readonly listProcesses?: typeof listProcesses;
  readonly showUnit?: typeof showUnit;
  readonly runSmi?: typeof runSmi;
}

const CONNECT_TIMEOUT_MS = 2_000;
const FIRST_LOOK_MS = 1_000;

export async function startAgent(
  options: AgentOptions,
  runtime: RoleRuntime,
  surroundings: AgentSurroundings = {},
): Promise<RunningAgent> {
  const agent = new Agent(options, runtime, surroundings);
  await agent.start();
  return agent;
}

/** The replica's id: host and port of the advertised URL. */
export function replicaOf(advertiseUrl: string): ReplicaId {
  return replicaAt(new URL(advertiseUrl));
}

interface EngineBeside {
  readonly replica: ReplicaId;
  readonly advertiseUrl: string;
  readonly client: EngineClient;
  readonly reader: EngineReader;
  readonly dialect: GenerationDialect;
  readonly witness: ProcessWitness;
  /** As configured; null: as the engine tells. */
  readonly kvEvents: KvEventsOptions | null;
  ranks: number;
  /** Files that tell of its process, until they were looked for beside an engine that answers. */
  files: readonly string[];
  /** Of its process, where evidence names one. */
  pid: number | null;
}

/** What lives as long as one agent id. */
interface Life {
  readonly agentId: AgentId;
  readonly core: AgentCore;
  readonly driver: CoreDriver<AgentEvent, AgentEffect>;
  readonly links: LinkClient;
  readonly ears: KvEars;
}

class Agent implements RunningAgent {
  readonly #options: AgentOptions;
  readonly #runtime: RoleRuntime;
  readonly #surroundings: AgentSurroundings;
  readonly #pools: HttpPools;
  readonly #tls: TlsStore;
  readonly #engineTrust: PeerTrust | null;
  readonly #routerTrust: PeerTrust | null;
  readonly #engines: ReadonlyMap<ReplicaId, EngineBeside>;
  readonly #metrics: AgentMetrics = createAgentMetrics();
  readonly #host: HostWatch;
  #life: Life | null = null;
  #http: AgentHttp | null = null;
  #closing = false;
  /** Marked by an operator: outlives the core, when the agent begins anew. */
  readonly #draining = new Set<ReplicaId>();

  constructor(options: AgentOptions, runtime: RoleRuntime, surroundings: AgentSurroundings) {
    this.#options = options;
    this.#runtime = runtime;
    this.#surroundings = surroundings;
    this.#pools = createHttpPools(CONNECT_TIMEOUT_MS, (_origin, problem) =>
      runtime.log.warn({ problem }, 'engine refused: certificate'),
    );
    this.#tls = new TlsStore({ ...runtime, onChange: () => this.#tellExpiry() });
    try {
      this.#engineTrust = this.#trust(options.engineTls);
      this.#routerTrust = this.#trust(options.routerTls);
    } catch (error) {
      this.#tls.close();
      throw error;
    }
    this.#tellExpiry();
    const engines = options.engines.map((engine) => this.#beside(engine));
    this.#engines = new Map(engines.map((engine) => [engine.replica, engine]));
    this.#host = new HostWatch({
      engines: engines.map((engine) => ({ replica: engine.replica, pid: () => engine.pid })),
      timers: runtime.timers,
      runSmi: surroundings.runSmi ?? runSmi,
      machine: machineWatch(),
      onGpus: (replica, reading, uuids) =>
        this.#life?.driver.post({ kind: 'gpus', replica, reading, uuids }),
    });
  }

  get port(): number {
    return this.#http?.port ?? 0;
  }

  async start(): Promise<void> {
    await Promise.all([...this.#engines.values()].map((engine) => this.#countRanks(engine)));
    this.#http = await startAgentHttp({
      listen: this.#options.listen,
      linkSecret: this.#options.linkSecret,
      agentId: () => this.#current().agentId,
      status: () => this.status(),
      host: () => this.#host.facts,
      links: () => this.#current().links,
      metrics: this.#metrics,
      drain: (replica, on) => this.#drain(replica, on),
    });
    const { pool, routers } = this.#options;
    const fields = { port: this.port, pool, replicas: [...this.#engines.keys()], routers };
    this.#runtime.log.info(fields, 'agent listening');
    this.#begin();
    this.#host.start();
  }

  status(): AgentStatus {
    return this.#current().core.status(this.#runtime.clock.nowMs());
  }

  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    this.#host.stop();
    if (this.#life !== null) await this.#end(this.#life);
    await this.#http?.close();
    await this.#pools.close();
    this.#tls.close();
  }

  #trust(tls: PeerTlsOptions | null | undefined): PeerTrust | null {
    if (tls === null || tls === undefined) return null;
    const { serverName, ...paths } = tls;
    return { material: this.#tls.open(paths), serverName };
  }

  #tellExpiry(): void {
    this.#metrics.replace('tls_certificate_not_after_seconds', this.#tls.expiries());
  }

  #beside(engine: AgentEngineOptions): EngineBeside {
    const { timers, clock, log } = this.#runtime;
    const { url, pidFile, unit, log: logFile } = engine;
    const apiKey = this.#options.engineApiKey;
    const client = new EngineClient({
      url,
      apiKey,
      trust: this.#engineTrust,
      pools: this.#pools,
      timers,
    });
    return {
      replica: replicaOf(engine.advertiseUrl),
      advertiseUrl: engine.advertiseUrl,
      client,
      reader: new EngineReader({ client, clock, log, kind: engine.kind ?? null }),
      dialect: { way: 'completions' },
      witness: new ProcessWitness({
        url,
        pidFile,
        unit: unit ?? null,
        log: logFile ?? null,
        clock,
        listProcesses: this.#surroundings.listProcesses ?? listProcesses,
        showUnit: this.#surroundings.showUnit ?? showUnit,
        processLives,
      }),
      kvEvents: engine.kvEvents ?? null,
      ranks: 1,
      files: [pidFile, logFile ?? null].filter((path) => path !== null),
      pid: null,
    };
  }

  async #countRanks(engine: EngineBeside): Promise<void> {
    const result = await engine.reader.scrape(FIRST_LOOK_MS);
    if (result.kind === 'ok') engine.ranks = Math.max(1, result.scrape.ranks.length);
  }

  #current(): Life {
    if (this.#life === null) throw new Error('the agent has not begun');
    return this.#life;
  }

  #begin(): void {
    const { clock, timers, random } = this.#runtime;
    const agentId = randomHex(8) as AgentId;
    const core = new AgentCore({
      agentId,
      pool: this.#options.pool as PoolId,
      engines: [...this.#engines.values()].map(({ replica, advertiseUrl, ranks }): AgentEngine => ({
        replica,
        advertiseUrl,
        ranks,
      })),
      settings: this.#options.settings,
      random,
      software: SOFTWARE,
      proofPort: this.#http?.port ?? null,
      wallMs: () => clock.wallMs(),
    });
    const driver = new CoreDriver<AgentEvent, AgentEffect>({
      core,
      tick: { kind: 'tick' },
      clock,
      timers,
      carry: (effect, nowMs) => this.#carryOut(life, effect, nowMs),
      // A control loop with a bug is better dead than wrong: its supervisor starts it again.
      onBug: (error) => {
        throw error;
      },
    });
    const { resolve } = this.#surroundings;
    const links = startLinkClient({
      words: AGENT_OF_ROUTERS,
      limits: AGENT_LINK_LIMITS,
      urls: this.#options.routers,
      secret: this.#options.linkSecret,
      trust: this.#routerTrust,
      runtime: this.#runtime,
      ...(resolve === undefined ? {} : { resolve }),
      onUp: (link) => driver.post({ kind: 'linkUp', link }),
      onMessage: (link, message) => {
        this.#metrics.add('link_messages_total', { direction: 'in', kind: message.kind });
        driver.post({ kind: 'message', link, message });
      },
      onDown: (link, reason) => this.#linkDown(driver, link, reason),
    });
    const ears = new KvEars({
      timers,
      log: this.#runtime.log,
      post: (event) => driver.post(event),
      count: (result, by, labels) =>
        this.#metrics.add('kv_batches_total', { ...labels, result }, by),
    });
    const life: Life = { agentId, core, driver, links, ears };
    this.#life = life;
    driver.post({ kind: 'start' });
    for (const replica of this.#draining) driver.post({ kind: 'drain', replica, on: true });
    for (const engine of this.#engines.values()) this.#listen(life, engine, engine.kvEvents);
  }

  #drain(replica: ReplicaId, on: boolean): void {
    if (on) this.#draining.add(replica);
    else this.#draining.delete(replica);
    this.#current().driver.post({ kind: 'drain', replica, on });
  }

  #listen(life: Life, engine: EngineBeside, options: KvEventsOptions | null): void {
    const { replica, ranks, client } = engine;
    if (options !== null) life.ears.listen({ replica, ranks, url: client.url }, options);
  }

  async #end(life: Life): Promise<void> {
    life.driver.post({ kind: 'stop' });
    life.driver.stop();
    life.ears.close();
    await life.links.close();
  }

  #linkDown(driver: CoreDriver<AgentEvent, AgentEffect>, link: LinkId, reason: LinkEnd): void {
    this.#metrics.add('link_ends_total', { reason });
    driver.post({ kind: 'linkDown', link });
  }

  #carryOut(life: Life, effect: AgentEffect, nowMs: number): void {
    switch (effect.kind) {
      case 'scrape':
        void this.#scrape(life, effect.replica, nowMs);
        return;
      case 'identify':
        void this.#identify(life, effect.replica);
        return;
      case 'generate':
        void this.#generate(life, effect.order);
        return;
      case 'replayKv':
        life.ears.replay(effect.replica, effect.rank, effect.fromSeq);
        return;
      case 'fewerRanks': {
        const engine = this.#engines.get(effect.replica);
        if (engine !== undefined) void this.#beginAnew(life, engine, effect.ranks);
        return;
      }
      case 'send':
        life.links.send(effect.link, effect.message);
        this.#metrics.add('link_messages_total', { direction: 'out', kind: effect.message.kind });
        return;
      case 'close':
        life.links.closeLink(effect.link, effect.reason);
        return;
      case 'limit':
        this.#metrics.add('limit_hits_total', { limit: effect.limit });
        return;
      case 'log':
        this.#runtime.log[effect.level](effect.fields, effect.code);
    }
  }

  async #scrape(life: Life, replica: ReplicaId, sentMs: number): Promise<void> {
    const engine = this.#engines.get(replica);
    if (engine === undefined) return;
    const result = await engine.reader.scrape();
    const tookMs = this.#runtime.clock.nowMs() - sentMs;
    this.#metrics.add('scrapes_total', { replica, result: result.kind });
    if (result.kind === 'ok') this.#metrics.observe('scrape_seconds', tookMs / 1_000, { replica });
    const ranks = result.kind === 'ok' ? result.scrape.ranks.length : 0;
    if (ranks > engine.ranks) return this.#beginAnew(life, engine, ranks);
    const port = result.kind === 'ok' ? 'answers' : 'refuses';
    if (port === 'answers') void this.#lookForFiles(engine);
    const evidence = await engine.witness.evidence(port);
    engine.pid = evidence.process?.pid ?? engine.pid;
    life.driver.post({ kind: 'scraped', replica, sentMs, result, evidence });
  }

  /** Said once: before an engine answers its files may not be there yet. */
  async #lookForFiles(engine: EngineBeside): Promise<void> {
    const { replica, files } = engine;
    engine.files = [];
    for (const file of files) {
      if ((await readQuietly(file, 1)) !== null) continue;
      this.#runtime.log.warn({ replica, file }, 'no such file, or not to be read');
    }
  }

  async #beginAnew(life: Life, engine: EngineBeside, ranks: number): Promise<void> {
    if (this.#closing || this.#life !== life) return;
    const fields = { replica: engine.replica, ranks, said: engine.ranks };
    this.#runtime.log.warn(fields, 'engine has other ranks than said');
    engine.ranks = ranks;
    life.driver.stop();
    life.ears.close();
    this.#begin();
    await life.links.close();
  }

  async #identify(life: Life, replica: ReplicaId): Promise<void> {
    const engine = this.#engines.get(replica);
    if (engine === undefined) return;
    const result = await engine.reader.identify();
    const told = result.kind === 'ok' ? (result.identity.kvEvents ?? null) : null;
    if (!this.#closing && this.#life === life) this.#listen(life, engine, engine.kvEvents ?? told);
    life.driver.post({ kind: 'identified', replica, result });
  }

  async #generate(life: Life, order: GenerateOrder): Promise<void> {
    const engine = this.#engines.get(order.replica);
    if (engine === undefined) return;
    const outcome = await generate(
      {
        client: engine.client,
        clock: this.#runtime.clock,
        requestIdPrefix: `agent-${life.agentId}`,
        ranks: engine.ranks,
        dialect: engine.dialect,
      },
      order,
    );
    const { replica, id, purpose } = order;
    const result = outcome.kind === 'ok' ? 'ok' : outcome.cause;
    this.#metrics.add('generations_total', { replica, purpose, result });
    if (outcome.kind === 'ok') {
      const ttftSeconds = outcome.ttftMs / 1_000;
      this.#metrics.observe('generation_ttft_seconds', ttftSeconds, { replica, purpose });
    }
    life.driver.post({ kind: 'generated', replica, id, outcome });
  }
}
