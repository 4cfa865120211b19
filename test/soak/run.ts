// `npm run soak -- --minutes 25 [--requests N] [--seed N] [--rate N] [--json]`: two routers and four simulated engines as
// real processes, a steady load of checked requests, and one trouble after the other drawn by a seed. Ends when the time is
// over or so many requests have ended, with tables (`--json`: one object on stdout), and with 1 where something was wrong:
//
//   an answer that is not what it must be, or an end that no trouble explains (verdict.ts)
//   a replica that is not back within `PATIENCE` after its trouble
//   a lease, an open request or a socket that is left at the end
//   memory that grows with requests in the second half of the run (slope.ts), in routers and agents; judged from
//   `JUDGED_REQUESTS` of that half on, since before that a heap is still finding its size
//   fewer requests than were asked for

import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { seededRandom } from '../../shared/lib/random.ts';
import { FaultRegion, MODEL } from '../e2e/fault-region.ts';
import { until } from '../e2e/until.ts';
import { SoakClients } from './clients.ts';
import { MemoryWatch, type Life, type Watched } from './memory.ts';
import { reportOf, type ProcessMemory, type Tally } from './report.ts';
import { drawn } from './schedule.ts';
import { isGood, slopeOf } from './slope.ts';
import { leftSockets } from './sockets-left.ts';
import { broken, TROUBLES, type Trouble } from './troubles.ts';
import { dropOld, faultOf, type Ended, type Window } from './verdict.ts';

const LASTS_MS: readonly [number, number] = [2_000, 8_000];
const CALM_MS = 1_500;
const RESIDENT_EVERY_MS = 2_000;
/** Collections a run and process; each holds its process for some tens of ms. */
const COLLECTIONS = 150;
const JUDGED_REQUESTS = 20_000;
/** More would tell nothing new. */
const PROBLEMS_MAX = 50;
/** No request is under way for so long. */
const OLD_MS = 120_000;

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

class Soak {
  readonly tally: Tally = { requests: 0, ends: new Map(), kinds: new Map(), troubles: new Map() };
  readonly problems: string[] = [];
  readonly startedMs = performance.now();
  private readonly region: FaultRegion;
  private readonly memory: MemoryWatch;
  private readonly goal: { readonly ms: number; readonly requests: number };
  private readonly windows: Window[] = [];
  private readonly random;
  private readonly clients: SoakClients;
  private watching = true;

  constructor(
    of: { readonly region: FaultRegion; readonly memory: MemoryWatch },
    how: { readonly ms: number; readonly requests: number; seed: number; rate: number },
  ) {
    this.region = of.region;
    this.memory = of.memory;
    this.goal = how;
    this.random = seededRandom(how.seed);
    this.clients = new SoakClients({
      model: MODEL,
      doors: of.region.routers.map((router) => ({
        clients: () => router.clients,
        admin: () => router.admin,
      })),
      rate: how.rate,
      random: seededRandom(how.seed + 1),
      ended: (ended) => this.ended(ended),
    });
  }

  async run(): Promise<readonly ProcessMemory[]> {
    const watch = Promise.all([this.watchResident(), this.watchLive()]);
    for (const trouble of drawn(TROUBLES, this.random, () => this.progress())) {
      if (this.progress() >= 1 || this.problems.length >= PROBLEMS_MAX) break;
      await this.suffer(trouble);
    }
    this.watching = false;
    await watch;
    await this.clients.stop();
    await this.judgeEnd();
    return this.judgeMemory();
  }

  private progress(): number {
    const time = (performance.now() - this.startedMs) / this.goal.ms;
    return Math.max(time, this.tally.requests / this.goal.requests);
  }

  private ended(ended: Ended): void {
    const { tally } = this;
    tally.requests += 1;
    tally.ends.set(ended.end, (tally.ends.get(ended.end) ?? 0) + 1);
    tally.kinds.set(ended.kind, (tally.kinds.get(ended.kind) ?? 0) + 1);
    const fault = faultOf(ended, this.windows);
    if (fault !== null) this.problem(fault);
  }

  private problem(text: string): void {
    if (this.problems.length < PROBLEMS_MAX) this.problems.push(text);
    console.error(`${this.atS()} s: ${text}`);
  }

  private atS(): string {
    return ((performance.now() - this.startedMs) / 1_000).toFixed(0);
  }

  private async suffer(trouble: Trouble): Promise<void> {
    const { random, region, windows } = this;
    const router = Math.floor(random.next() * region.routers.length);
    const row = this.tally.troubles.get(trouble.name) ?? { times: 0, slowestBackS: 0 };
    this.tally.troubles.set(trouble.name, row);
    row.times += 1;
    const { requests } = this.tally;
    console.error(`${this.atS()} s, ${requests} requests, ${trouble.name} …`);
    const window: Window = {
      name: trouble.name,
      breaks: broken(trouble, router),
      fromMs: performance.now(),
      toMs: null,
    };
    dropOld(windows, performance.now() - OLD_MS);
    windows.push(window);
    const [least, most] = LASTS_MS;
    const lasts = () => pause(least + random.next() * (most - least));
    const failed = (what: string) => (error: unknown) => {
      this.problem(`${trouble.name}: ${what}: ${String(error)}`);
    };
    await trouble.run(region, { random, lasts, router }).catch(failed('not as expected'));
    const mendedMs = performance.now();
    await region.allReady().catch(failed('not back'));
    window.toMs = performance.now();
    row.slowestBackS = Math.max(row.slowestBackS, (window.toMs - mendedMs) / 1_000);
    await pause(CALM_MS);
  }

  private watched(): Watched[] {
    const named = [
      ...this.region.routers.map(({ running }, at) => ({ name: `router ${at}`, running })),
      ...this.region.agents.map(({ running }, at) => ({ name: `agent ${at}`, running })),
    ];
    return named.flatMap(({ name, running }) => {
      const pid = running?.child.pid;
      return pid === undefined ? [] : [{ name, pid }];
    });
  }

  private async watchResident(): Promise<void> {
    while (this.watching) {
      this.memory.resident(this.watched(), this.tally.requests);
      await pause(RESIDENT_EVERY_MS);
    }
  }

  private async watchLive(): Promise<void> {
    const everyMs = this.goal.ms / COLLECTIONS;
    while (this.watching) {
      await this.memory.collect(this.watched(), () => this.tally.requests);
      await pause(everyMs);
    }
  }

  private async judgeEnd(): Promise<void> {
    const { region } = this;
    await region.nothingLeft().catch((error: unknown) => this.problem(`left: ${String(error)}`));
    let left: readonly string[] = [];
    const gone = () => (left = leftSockets(region)).length === 0;
    await until(gone, { timeoutMs: 30_000, pollMs: 500 }).catch(() => {
      for (const each of left) this.problem(`socket left: ${each}`);
    });
    const { requests } = this.goal;
    if (Number.isFinite(requests) && this.tally.requests < requests) {
      this.problem(`${this.tally.requests} of ${requests} requests`);
    }
  }

  private judgeMemory(): ProcessMemory[] {
    const { requests } = this.tally;
    const from = requests / 2;
    const judged = requests - from >= JUDGED_REQUESTS;
    return this.watched().map(({ name, pid }) => {
      const life: Life = this.memory.lives.get(pid) ?? { name, pid, resident: [], live: [] };
      const of = (samples: Life['live']) =>
        slopeOf(samples.filter((each) => each.requests >= from));
      const memory = {
        name,
        judged,
        residentMib: (life.resident.at(-1)?.bytes ?? 0) / 1_048_576,
        liveMib: (life.live.at(-1)?.bytes ?? 0) / 1_048_576,
        resident: of(life.resident),
        live: of(life.live),
      };
      if (judged) this.judgeProcess(memory);
      return memory;
    });
  }

  private judgeProcess({ name, resident, live }: ProcessMemory): void {
    for (const [what, slope] of [
      ['resident', resident],
      ['live', live],
    ] as const) {
      if (slope === null) this.problem(`${name}: too few samples of ${what} memory`);
      else if (!isGood(slope)) {
        const bytes = slope.bytesPerRequest.toFixed(0);
        this.problem(
          `${name}: ${bytes} bytes a request stay ${what} (≥ ${slope.lower.toFixed(0)})`,
        );
      }
    }
  }
}

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    requests: { type: 'string' },
    seed: { type: 'string', default: '1' },
    rate: { type: 'string', default: '180' },
    json: { type: 'boolean', default: false },
  },
});
const requests = values.requests === undefined ? Infinity : Number(values.requests);
const minutes = Number(values.minutes ?? (values.requests === undefined ? 10 : 60));
const seed = Number(values.seed);
const memory = await MemoryWatch.open();
const region = await FaultRegion.open();
try {
  const how = { ms: minutes * 60_000, requests, seed, rate: Number(values.rate) };
  const soak = new Soak({ region, memory }, how);
  const processes = await soak.run();
  const { tally, problems } = soak;
  const seconds = (performance.now() - soak.startedMs) / 1_000;
  const machine = `${cpus()[0]?.model ?? process.arch} × ${cpus().length}, Node ${process.version}`;
  const report = reportOf({ machine, seed, seconds, tally, processes, problems });
  console.error(report.text);
  if (values.json) console.log(JSON.stringify(report.json));
  process.exitCode = problems.length > 0 ? 1 : 0;
} finally {
  await region.close();
  await memory.close();
}
