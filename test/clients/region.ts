// The region that client libraries talk to: `bin/spillway` as router, agents and a simulated engine, each a process, and
// before the engine what lets a test choose answers. Keys are asked for, as in front of real users.
//
//   chat    one replica
//   narrow  one replica that takes one request at a time: a second one waits in the router
//   absent  no replica at all

import { createHash } from 'node:crypto';
import { Fleet, poolOf, type EngineProcess, type Running } from '../e2e/fleet.ts';
import type { Script, ScriptedEngine } from '../e2e/scripted-engine.ts';
import { until } from '../e2e/until.ts';
import { held, type Held } from './scripts.ts';
import { startSteeredEngine } from './steered-engine.ts';
import { openTap, type Tap } from './tap.ts';

export const KEY = 'sk-clients-0123456789abcdef';
export const MODEL = 'sim-model';
export const NARROW = 'narrow-model';
export const ABSENT = 'absent-model';
/** Silence after which a waiting stream gets a comment, ms: the least that there is. */
const KEEP_ALIVE_MS = 100;

const CONFIG = `
pools:
  - id: chat
  - id: narrow
  - id: absent
models:
  ${MODEL}: { pool: chat }
  ${NARROW}: { pool: narrow, engineModel: ${MODEL} }
  ${ABSENT}: { pool: absent }
router:
  clients:
    keys: [{ name: libraries, hash: 'sha256:${createHash('sha256').update(KEY).digest('hex')}' }]
  routing:
    keepAliveAfterMs: ${KEEP_ALIVE_MS}
    # Faults are scripted here one after the other: none of them is to change what the next one meets.
    breakerFailures: 1000
    queueMaxRequests: 1
    # A busy machine is no fault.
    firstTokenBaseMs: 60000
    stallMinMs: 60000
`;

/** Pools that have a replica, and what is set for its agent. */
const POOLS = [
  ['chat', []],
  ['narrow', ['agent.settings.runningMax=1']],
] as const;

export class ClientRegion {
  readonly fleet: Fleet;
  readonly engine: EngineProcess;
  readonly #steered: ScriptedEngine[];
  readonly #scripts: Map<string, Script>;
  readonly #taps: Tap[] = [];

  private constructor(
    fleet: Fleet,
    engine: EngineProcess,
    steered: { engines: ScriptedEngine[]; scripts: Map<string, Script> },
  ) {
    this.fleet = fleet;
    this.engine = engine;
    this.#steered = steered.engines;
    this.#scripts = steered.scripts;
  }

  static async open(): Promise<ClientRegion> {
    const fleet = await Fleet.open(CONFIG);
    const scripts = new Map<string, Script>();
    const engines: ScriptedEngine[] = [];
    const agents: Running[] = [];
    try {
      const [engine] = await Promise.all([fleet.startEngine(MODEL), fleet.startRouter()]);
      for (const [pool, set] of POOLS) {
        const steered = await startSteeredEngine(engine.url, scripts);
        engines.push(steered);
        const beside = { ...engine, url: steered.url, replica: steered.host };
        agents.push(fleet.startAgent(pool, [beside], { set }));
      }
      await Promise.all(POOLS.map(([pool]) => fleet.whenReady(pool, 1)));
      return new ClientRegion(fleet, engine, { engines, scripts });
    } catch (error) {
      const said = agents.map(({ child, lines }) => `${child.exitCode}: ${lines.join('\n')}`);
      await fleet.close();
      await Promise.all(engines.map((each) => each.close()));
      throw new Error(`no region; agents: ${said.join('\n')}`, { cause: error });
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#taps.map((tap) => tap.close()));
    await this.fleet.close();
    await Promise.all(this.#steered.map((engine) => engine.close()));
  }

  /** A wire of its own for the clients of one test. */
  async tap(): Promise<Tap> {
    const tap = await openTap(this.fleet.clients);
    this.#taps.push(tap);
    return tap;
  }

  /** A prompt that engines answer by this script. */
  prompt(script: Script): string {
    const tag = `script-${this.#scripts.size};`;
    this.#scripts.set(tag, script);
    return tag;
  }

  /** Takes the only place of the narrow pool until it is released. */
  async holdNarrow(): Promise<Pick<Held, 'release'>> {
    const { script, received, release } = held();
    void this.#post(NARROW, this.prompt(script));
    await received;
    return { release };
  }

  /** One request more to the narrow pool, to its end. */
  async fill(): Promise<void> {
    await this.#post(NARROW, 'hello');
  }

  /** Waits until so many requests wait in the router. */
  async whenQueued(count: number): Promise<void> {
    await this.fleet.whenStatus((status) => poolOf(status, 'narrow')?.queue.requests === count);
  }

  /** Waits until nobody has anything open, and the engine computes nothing. */
  async whenIdle(): Promise<void> {
    await this.fleet.whenStatus(({ leases, openRequests }) => leases === 0 && openRequests === 0);
    await until(async () => {
      const state = await fetch(`${this.engine.url}/load`);
      return ((await state.json()) as { server_load: number }).server_load === 0;
    });
  }

  async #post(model: string, content: string): Promise<void> {
    const answer = await fetch(`${this.fleet.clients}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
      body: JSON.stringify({ model, messages: [{ role: 'user', content }], max_tokens: 4 }),
    });
    if (answer.status !== 200) throw new Error(await answer.text());
    await answer.arrayBuffer();
  }
}
