// Two routers and four replicas as real processes, an agent beside each engine, every link through a proxy that a test can
// disturb. For tests of faults under load.

import { request } from 'undici';
import {
  Fleet,
  replicaOf,
  type AgentProcess,
  type EngineProcess,
  type RouterProcess,
} from './fleet.ts';
import { LinkProxy, type LinkTrouble } from './link-proxy.ts';
import { until } from './until.ts';

export const POOL = 'four';
export const MODEL = 'four-model';
export const REPLICAS = 4;

/** Ages and dwells as short as a busy machine allows, so that each fault is over in seconds. */
const CONFIG = `
pools:
  - id: ${POOL}
models:
  ${MODEL}: { pool: ${POOL} }
router:
  shutdown: { acceptMs: 1500, drainMs: 20000 }
  routing:
    staleGraceMs: 2000
    staticWindowMs: 4000
    stallMinMs: 4000
    breakerOpenMs: 1000
`;
const AGENT = [
  'agent.settings.silentMinMs=1500',
  'agent.settings.probeIntervalMs=1000',
  'agent.settings.linkGraceMs=2000',
  'agent.settings.slowDwellMs=1000',
];
const ENGINE = ['--shutdown-timeout', '60'];
const PATIENCE = { timeoutMs: 60_000, pollMs: 50 };

export class FaultRegion {
  readonly fleet: Fleet;
  readonly routers: readonly RouterProcess[];
  readonly engines: EngineProcess[] = [];
  readonly agents: AgentProcess[] = [];
  /** By agent, then by router. */
  private readonly links: LinkProxy[][] = [];

  private constructor(fleet: Fleet, routers: readonly RouterProcess[]) {
    this.fleet = fleet;
    this.routers = routers;
  }

  static async open(): Promise<FaultRegion> {
    const fleet = await Fleet.open(CONFIG);
    const region = new FaultRegion(fleet, [fleet.addRouter(), fleet.addRouter()]);
    await Promise.all(region.routers.map((router) => router.start()));
    const numbers = Array.from({ length: REPLICAS }, (_, at) => at);
    region.engines.push(
      ...(await Promise.all(numbers.map(() => fleet.startEngine(MODEL, 0, ENGINE)))),
    );
    for (const _ of numbers) {
      const ways = region.routers.map((router) => LinkProxy.open(() => router.ports.linksPort));
      region.links.push(await Promise.all(ways));
    }
    region.agents.push(...(await Promise.all(numbers.map((at) => region.agent(at)))));
    await region.allReady();
    return region;
  }

  async close(): Promise<void> {
    await this.fleet.close();
    await Promise.all(this.links.flat().map((link) => link.close()));
  }

  engine(at: number): EngineProcess {
    const engine = this.engines[at];
    if (engine === undefined) throw new Error(`no engine ${at}`);
    return engine;
  }

  /** Every router has all replicas ready and fresh, and none out by a breaker. */
  async allReady(): Promise<void> {
    await Promise.all(this.routers.map((router) => this.readyAt(router)));
  }

  async readyAt(router: RouterProcess): Promise<void> {
    await router.whenStatus(
      (status) =>
        this.engines.every(({ replica }) => {
          const seen = replicaOf(status, replica);
          const target = seen?.targets[0];
          return (
            seen?.link === 'fresh' &&
            target?.phase === 'ready' &&
            target.breaker === 'closed' &&
            !seen.down
          );
        }),
      PATIENCE.timeoutMs,
    );
  }

  /** Waits until each router says of each named engine what is expected. */
  async everyRouter(
    engines: readonly number[],
    expected: (seen: NonNullable<ReturnType<typeof replicaOf>>) => boolean,
    routers = this.routers,
  ): Promise<void> {
    await Promise.all(
      routers.map((router) =>
        router.whenStatus(
          (status) =>
            engines.every((at) => {
              const seen = replicaOf(status, this.engine(at).replica);
              return seen !== undefined && expected(seen);
            }),
          PATIENCE.timeoutMs,
        ),
      ),
    );
  }

  /** Every router has forgotten it, as after its agent's goodbye, or keeps it out until its last answer is over. */
  async goneFrom(at: number): Promise<void> {
    const { replica } = this.engine(at);
    await Promise.all(
      this.routers.map((router) =>
        router.whenStatus(
          (status) => (replicaOf(status, replica)?.link ?? 'out') === 'out',
          PATIENCE.timeoutMs,
        ),
      ),
    );
  }

  /** `/sim/…` of an engine. */
  async sim(at: number, what: string, body: object = {}): Promise<void> {
    const answer = await request(`${this.engine(at).url}/sim/${what}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    await answer.body.dump();
    if (answer.statusCode !== 200) throw new Error(`/sim/${what}: ${answer.statusCode}`);
  }

  async crash(at: number): Promise<void> {
    await this.engine(at).running.end('SIGKILL');
  }

  /** The engine again on its port, whose process has ended. */
  async revive(at: number): Promise<void> {
    this.engines[at] = await this.fleet.startEngine(MODEL, this.engine(at).port, ENGINE);
  }

  /** As an operator does before the engine is stopped: nothing new comes, and what it has is over. */
  async drain(at: number): Promise<void> {
    await this.mark(at, 'POST');
    await until(async () => (await this.mark(at, 'GET')).drained, PATIENCE);
  }

  async undrain(at: number): Promise<void> {
    await this.mark(at, 'DELETE');
  }

  async killAgent(at: number, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    await this.agents[at]?.running.end(signal);
  }

  async startAgent(at: number): Promise<AgentProcess> {
    const agent = await this.agent(at);
    this.agents[at] = agent;
    return agent;
  }

  trouble(
    agents: readonly number[],
    trouble: LinkTrouble,
    routers: readonly number[] = [0, 1],
  ): void {
    for (const agent of agents) {
      for (const router of routers) this.links[agent]?.[router]?.set(trouble);
    }
  }

  /** No lease, no open request and no work is left anywhere. */
  async nothingLeft(): Promise<void> {
    for (const router of this.routers) {
      await router.whenStatus(
        ({ leases, openRequests }) => leases === 0 && openRequests === 0,
        PATIENCE.timeoutMs,
      );
    }
    for (const at of this.agents.keys()) {
      let left = '';
      const isIdle = async (): Promise<boolean> => (left = await this.leftAt(at)) === '';
      await until(isIdle, { ...PATIENCE, says: () => left });
    }
  }

  private async mark(at: number, method: 'GET' | 'POST' | 'DELETE'): Promise<{ drained: boolean }> {
    const answer = await request(`${this.agents[at]?.url}/v1/drain`, { method });
    return (await answer.body.json()) as { drained: boolean };
  }

  /** What an agent knows of and an engine has; empty where that is nothing. */
  private async leftAt(at: number): Promise<string> {
    const status = await this.agents[at]?.status();
    const targets = status?.engines.flatMap((engine) => engine.targets) ?? [];
    const state = await request(`${this.engine(at).url}/load`);
    const { server_load: load } = (await state.body.json()) as { server_load: number };
    const leases = targets.reduce((sum, target) => sum + target.openLeases, 0);
    if (load === 0 && leases === 0) return '';
    const links = JSON.stringify(status?.links);
    return `replica ${this.engine(at).replica}: ${leases} leases, ${load} requests; links ${links}`;
  }

  private agent(at: number): Promise<AgentProcess> {
    const routers = (this.links[at] ?? []).map((link) => link.url);
    return this.fleet.agentBeside(POOL, [this.engine(at)], { routers, set: AGENT });
  }
}
