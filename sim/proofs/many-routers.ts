// Many routers decide as one: eight replicas, conversations with shared system prompts and returning turns, the same
// arrivals by one router and by eight.
//
//   capacity  the most conversations a second that one router completes in a closed loop, measured first
//   designed  reports as they are: eight routers' TTFT p95 ≤ 1.1 × one router's, hit ratio within 2 points
//   second    agents that may report once a second: eight routers' TTFT p95 ≤ 1.5 × one router's whose reports come as
//             rarely
//   late      links that bring each report a second after it was made: ≤ 1.5 × one router's with the same links
//   … cut     the same, the links between routers cut: what agents' reports alone let them do. A router cannot know then
//             for a second most of what a replica does in that time, so `late cut` has to be above what `late` holds.
//             Where they stand, a message takes 2 to 2.5 ms
//   herd      64 equal requests at one instant, 8 to each router, on idle replicas: at most one more than the mean on one
//   controls  a random pick and an index of own sends alone fail what `designed` has to hold. One router that does not
//             count its own sends fails `second`, eight the herd: where an agent tells at once what it was sent they are
//             in the next report, and of eight routers each sends an eighth
//
// What age costs one router, it costs any number: eight are held to one with reports of the same age, their hit ratio to
// one with reports as they are, and shown beside that one too. TTFTs of all seeds are pooled: the p95 of one run varies
// by a fifth. Hit ratio: cached ÷ prompt tokens, as the engines counted them.

import { OWN_WORK } from '../../router/regional/core-load.ts';
import type { RegionalSettings } from '../../shared/model/settings.ts';
import type { AgentMessage } from '../../shared/protocol/messages.ts';
import type { EngineProfile } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import type { Wire } from '../world/link.ts';
import { quantile, sum } from '../world/recorder.ts';
import { DEMO } from '../world/test-worlds.ts';
import { without } from '../world/without.ts';
import { World } from '../world/world.ts';
import type { Proof, ProofRow } from './proof.ts';

const REPLICAS = 8;
const WARM_MS = 10_000;
const RUN_MS = 40_000;
const TURNS = 4;
/** One seed may miss a ratio by so much: its p95 varies. */
const QUICK_SLACK = 1.1;

/** Prefill is what is scarce: KV and batch have room for all live conversations. */
const ROOMY: EngineProfile = { ...DEMO, kvBlocks: 4 * DEMO.kvBlocks, maxNumSeqs: 128 };

const TALK: ConversationShape = {
  ...CHAT_SHAPE,
  systemTokens: 1_500,
  systemPrompts: 4,
  systemShare: 0.7,
  firstTokens: [100, 2_000],
  turnTokens: [20, 300],
  answerTokens: [10, 100],
  turns: [TURNS - 2, TURNS + 2],
  thinkMs: [500, 5_000],
};

const AGES = ['designed', 'second', 'late'] as const;
export type ReportAge = (typeof AGES)[number];
export type Control = 'own_sends_off' | 'random_pick' | 'private_index';
/** How clients and routers are: evenly, half of all at one router, a router that joins or dies halfway. */
export type Course = 'even' | 'uneven' | 'joins' | 'dies';

export interface Plan {
  readonly seed: number;
  readonly routers: number;
  /** Conversations that begin a second. */
  readonly perS: number;
  readonly age?: ReportAge;
  readonly control?: Control;
  readonly course?: Course;
  /** Routers tell each other nothing. */
  readonly cut?: boolean;
  readonly forMs?: number;
}

export interface Served {
  readonly ttftMs: readonly number[];
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** Agents that tell nobody which prefixes they hold. */
const PRIVATE_INDEX: Wire = {
  routerMessage: (message) => message,
  agentMessage: (message): AgentMessage =>
    message.kind === 'prefix'
      ? { ...message, runs: [], leaves: [], evicted: new Uint32Array(0) }
      : message,
};

/** Turns of one run, after it has warmed up. */
export function serve(plan: Plan): Served {
  const { control } = plan;
  if (control !== 'own_sends_off') return run(plan);
  let served: Served | null = null;
  without(OWN_WORK, { name: 'ms', make: () => () => 0 }, () => {
    served = run(plan);
  });
  if (served === null) throw new Error('nothing has run');
  return served;
}

/** The most conversations a second that one router completes, by the number of them that are open at a time. */
export function capacityPerS(forMs = RUN_MS): number {
  const rates = [256, 384, 512].map((open) => {
    const world = worldOf({ seed: 1, routers: 1, perS: 0 });
    world.clients(TALK).closedLoop(open, 2_000);
    world.run(WARM_MS);
    const fromMs = world.nowMs;
    world.run(forMs);
    const done = world.recorder.rows.filter(
      ({ end, endedMs }) => end?.kind === 'complete' && (endedMs ?? 0) >= fromMs,
    );
    return done.length / TURNS / (forMs / 1_000);
  });
  return Math.max(...rates);
}

/** How unevenly equal requests that all come at one instant, as many to each router, lie on idle replicas. */
export function herd(seed: number, control?: Control): { most: number; mean: number } {
  const routers = 8;
  const place = (): { most: number; mean: number } => {
    const world = worldOf({ seed, routers, perS: 0 });
    const shape = { ...TALK, systemShare: 0, firstTokens: [900, 900], turns: [1, 1] } as const;
    for (const router of world.routers) world.clients(shape, { routers: [router] }).burst(8);
    world.run(60_000);
    const counts = [...world.recorder.sentByReplica().values()];
    return { most: Math.max(...counts), mean: sum(counts) / REPLICAS };
  };
  if (control !== 'own_sends_off') return place();
  let placed = { most: 0, mean: 0 };
  without(OWN_WORK, { name: 'ms', make: () => () => 0 }, () => {
    placed = place();
  });
  return placed;
}

function worldOf({ seed, routers, age = 'designed', control, cut = false }: Plan): World {
  const router: Partial<RegionalSettings> = {
    ...(age === 'second' ? { minReportIntervalMs: 1_000 } : {}),
    ...(control === 'random_pick' ? { tieMs: 1e9 } : {}),
  };
  const world = new World({
    seed,
    profile: ROOMY,
    replicas: REPLICAS,
    routers,
    router,
    wire: control === 'private_index' ? PRIVATE_INDEX : null,
    siblings: cut ? null : { delayMs: 2, jitterMs: 0.5 },
    links: { delayMs: 0.3, jitterMs: 0.5, reportsLateMs: age === 'late' ? 1_000 : 0 },
  });
  world.runUntilReady();
  return world;
}

function run(plan: Plan): Served {
  const { perS, course = 'even', forMs = RUN_MS } = plan;
  const world = worldOf(plan);
  const fromMs = world.nowMs + WARM_MS;
  const last = world.routers.at(-1);
  if (course === 'joins') last?.stop();
  if (course === 'uneven') {
    world.clients(TALK, { routers: world.routers.slice(0, 1) }).openLoop(perS / 2);
    world.clients(TALK, { routers: world.routers.slice(1) }).openLoop(perS / 2);
  } else world.clients(TALK).openLoop(perS);
  world.run(WARM_MS + forMs / 2);
  if (course === 'joins') last?.start();
  if (course === 'dies') last?.stop();
  world.run(forMs / 2);
  const { recorder } = world;
  const rows = recorder.complete(fromMs);
  return {
    // Those that still wait have waited so long at least.
    ttftMs: recorder.rows
      .filter(({ arrivedMs, end }) => arrivedMs >= fromMs && end?.kind !== 'lost')
      .map(({ arrivedMs, firstTokenMs }) => (firstTokenMs ?? world.nowMs) - arrivedMs),
    promptTokens: sum(rows.map(({ end }) => end.usage.promptTokens)),
    cachedTokens: sum(rows.map(({ end }) => end.usage.cachedTokens ?? 0)),
  };
}

export interface Figures {
  readonly requests: number;
  readonly ttftMsP50: number;
  readonly ttftMsP95: number;
  readonly hitRatio: number;
}

/** All seeds together. */
export function figuresOf(runs: readonly Served[]): Figures {
  const ttftMs = runs.flatMap((served) => served.ttftMs);
  return {
    requests: ttftMs.length,
    ttftMsP50: quantile(ttftMs, 0.5),
    ttftMsP95: quantile(ttftMs, 0.95),
    hitRatio:
      sum(runs.map((served) => served.cachedTokens)) /
      sum(runs.map((served) => served.promptTokens)),
  };
}

/** Of eight routers' figures beside one router's. */
export function failuresOf(one: Figures, many: Figures, ratio: number): string[] {
  const times = many.ttftMsP95 / one.ttftMsP95;
  const points = 100 * Math.abs(many.hitRatio - one.hitRatio);
  return [
    ...(times <= ratio
      ? []
      : [`TTFT p95 is ${times.toFixed(2)} × one router's, above ${ratio.toFixed(2)}`]),
    ...(points <= 2 ? [] : [`the hit ratio is ${points.toFixed(1)} points from one router's`]),
  ];
}

interface Arm {
  readonly name: string;
  readonly plan: Omit<Plan, 'seed' | 'perS' | 'routers'> & { readonly routers?: number };
  /** Bounds of the p95's ratio, below and beyond capacity; null where it is told and not bounded. */
  readonly ratio: readonly [below: number, beyond: number] | null;
  /** It has to fail. */
  readonly control: boolean;
  /** It has to fail these as well. Absent: nothing. */
  readonly above?: readonly [below: number, beyond: number];
}

const ARMS: readonly Arm[] = [
  { name: 'designed', plan: {}, ratio: [1.1, 1.1], control: false },
  { name: 'second', plan: { age: 'second' }, ratio: [1.5, 1.5], control: false },
  { name: 'late', plan: { age: 'late' }, ratio: [1.5, 1.5], control: false },
  { name: 'designed cut', plan: { cut: true }, ratio: [1.1, 1.1], control: false },
  { name: 'second cut', plan: { age: 'second', cut: true }, ratio: [1.6, 1.6], control: false },
  {
    name: 'late cut',
    plan: { age: 'late', cut: true },
    ratio: [2.1, 2.6],
    control: false,
    above: [1.5, 1.5],
  },
  { name: 'uneven', plan: { course: 'uneven' }, ratio: null, control: false },
  { name: 'joins', plan: { course: 'joins' }, ratio: null, control: false },
  { name: 'dies', plan: { course: 'dies' }, ratio: null, control: false },
  ...(['random_pick', 'private_index'] as const).map((control): Arm => ({
    name: control,
    plan: { control },
    ratio: [1.1, 1.1],
    control: true,
  })),
  {
    name: 'own_sends_off',
    plan: { age: 'second', control: 'own_sends_off', routers: 1 },
    ratio: [1.5, 1.5],
    control: true,
  },
];

export const MANY_ROUTERS: Proof = {
  name: 'many-routers',
  title: 'eight routers place requests as one does, whatever they cannot know of each other',
  run: ({ quick, print }) => {
    const failures: string[] = [];
    const rows: ProofRow[] = [];
    const seeds = quick ? [1] : [1, 2, 3, 4, 5];
    const slack = quick ? QUICK_SLACK : 1;
    const capacity = capacityPerS();
    print(`capacity: ${capacity.toFixed(1)} conversations a second, ${TURNS} turns each`);
    for (const load of quick ? [0.8] : [0.8, 1.1]) {
      const perS = load * capacity;
      const alone = new Map(
        AGES.map((age) => [age, seeds.map((seed) => serve({ seed, perS, age, routers: 1 }))]),
      );
      const note = (arm: Pick<Arm, 'name' | 'plan'>, runs: readonly Served[], routers: number) => {
        const same = alone.get(arm.plan.age ?? 'designed')!;
        const fresh = alone.get('designed')!;
        for (const [k, each] of [...runs.map((one) => [one]), runs].entries()) {
          const seed = seeds[k] === undefined ? 'all' : String(seeds[k]);
          const of = (ones: readonly Served[]): number =>
            figuresOf(seed === 'all' ? ones : [ones[k]!]).ttftMsP95;
          const figures = figuresOf(each);
          const p95Ratio = figures.ttftMsP95 / of(same);
          const p95ToFresh = figures.ttftMsP95 / of(fresh);
          const row = { arm: arm.name, load, seed, ...figures, p95Ratio, p95ToFresh };
          rows.push({ ...row, routers });
          print(lineOf(row));
        }
      };
      for (const [age, runs] of alone) note({ name: `one ${age}`, plan: { age } }, runs, 1);
      for (const arm of ARMS) {
        const { name, plan, ratio, control } = arm;
        const { hitRatio } = figuresOf(alone.get('designed')!);
        const one = { ...figuresOf(alone.get(plan.age ?? 'designed')!), hitRatio };
        const runs = seeds.map((seed) => serve({ routers: 8, ...plan, seed, perS }));
        note(arm, runs, plan.routers ?? 8);
        const most = ratio?.[load < 1 ? 0 : 1] ?? null;
        const wrong = most === null ? [] : failuresOf(one, figuresOf(runs), slack * most);
        const above = arm.above?.[load < 1 ? 0 : 1];
        if (above !== undefined && failuresOf(one, figuresOf(runs), above).length === 0) {
          failures.push(`the control ${name} at ${load} is not above ${above}`);
        }
        if (!control) failures.push(...wrong.map((each) => `${name} at ${load}: ${each}`));
        else if (wrong.length === 0) failures.push(`the control ${name} at ${load} passes`);
      }
    }
    herdRows(seeds, { rows, failures, print });
    return { failures, rows };
  },
};

function herdRows(
  seeds: readonly number[],
  to: { rows: ProofRow[]; failures: string[]; print: (line: string) => void },
): void {
  for (const seed of seeds) {
    const { most, mean } = herd(seed);
    to.rows.push({ arm: 'herd', seed, most, mean });
    to.print(`herd  seed ${seed}: ${most} at most on one replica, ${mean} on average`);
    if (most > mean + 1) to.failures.push(`a herd of seed ${seed} puts ${most} on one replica`);
    const untold = herd(seed, 'own_sends_off');
    to.rows.push({ arm: 'herd: own_sends_off', seed, ...untold });
    if (untold.most <= mean + 1) to.failures.push(`the control of the herd passes, seed ${seed}`);
  }
}

function lineOf(
  of: Figures & {
    readonly arm: string;
    readonly load: number;
    readonly seed: string;
    readonly p95Ratio: number;
    readonly p95ToFresh: number;
  },
): string {
  return [
    of.arm.padEnd(14),
    `${Math.round(100 * of.load)} %`.padStart(6),
    `seed ${of.seed}`.padStart(9),
    `${of.requests} turns`.padStart(12),
    `p50 ${of.ttftMsP50.toFixed(0)} ms`.padStart(13),
    `p95 ${of.ttftMsP95.toFixed(0)} ms`.padStart(14),
    `hit ${of.hitRatio.toFixed(3)}`,
    `× ${of.p95Ratio.toFixed(2)}`,
    `(× ${of.p95ToFresh.toFixed(2)} with reports as they are)`,
  ].join('  ');
}
