// A pool that is offered more than it can do, by one router and by several: they release as one queue would, and those who
// are turned away are told a time at which most of them are served.
//
//   order     nothing less urgent is released while something more urgent is known to wait in another router; of one
//             priority and tenant, nobody is overtaken for long by who came later (one router: by their lengths alone)
//   capacity  ≥ 0.97 of one router's throughput; no replica idle for longer than two reports' way
//   hold      what waits in an engine exceeds the hold by little more than one router has it
//   returns   the share of second tries that are served; what they were told, beside what a queue without a limit needs;
//             all seeds together, since one has some fifty to two hundred second tries
//   controls  agents that say nothing of other queues, or not how each stands in them; clients that do not say that they
//             come again

import type { AgentMessage } from '../../shared/protocol/messages.ts';
import type { Wire } from '../world/link.ts';
import {
  FlowClients,
  inversions,
  overtakenByMs,
  returnsOf,
  watch,
  type Flow,
  type FlowRow,
} from '../world/overload.ts';
import { quantile, sum } from '../world/recorder.ts';
import { DEMO } from '../world/test-worlds.ts';
import { World } from '../world/world.ts';
import type { Proof, ProofRow } from './proof.ts';

const REPLICAS = 3;
const HOLD_MS = 60;
const AGE_CREDIT = 0.25;
/** A replica of the profile prefills about 4,750 tokens a second; requests have 900 on average. */
const TOKENS_PER_MS = REPLICAS * 4.75;
export const PER_S_AT_CAPACITY = (1_000 * TOKENS_PER_MS) / 900;
export const SHAPE = { promptTokens: [300, 1_500], answerTokens: [5, 20] } as const;
/** What was told is known everywhere after two intervals and the way there and back, ms. */
const KNOWN_MS = 110;
const RETURN_LIMIT_MS = 8_000;

export function worldOf(
  seed: number,
  options: { routers: number; wire?: Wire | undefined; queueMaxWaitMs?: number },
): World {
  const { routers, wire = null, queueMaxWaitMs = 20_000 } = options;
  const router = {
    holdMs: HOLD_MS,
    ageCredit: AGE_CREDIT,
    queueMaxWaitMs,
    // Nobody comes back for its prefix.
    workingSetBound: null,
  };
  const world = new World({ seed, profile: DEMO, replicas: REPLICAS, routers, wire, router });
  world.runUntilReady();
  return world;
}

/** Agents that say nothing of what the routers hold: each takes itself to be alone. */
export const UNTOLD: Wire = queuedAs(() => ({
  ...{ prefillMs: 0, requests: 0, topPriority: null, routersQueueing: 0 },
}));

/** Agents that tell the sum, and not how each router stands in it. */
export const UNPLACED: Wire = queuedAs((queued) => ({ ...queued, place: undefined }));

type Queued = Extract<AgentMessage, { kind: 'report' }>['report']['queued'];

function queuedAs(say: (queued: Queued) => Queued): Wire {
  return {
    agentMessage: (message) =>
      message.kind === 'report'
        ? { ...message, report: { ...message.report, queued: say(message.report.queued) } }
        : message,
    routerMessage: (message) => message,
  };
}

export interface OrderFigures {
  readonly tokensPerS: number;
  readonly inversions: number;
  readonly overtakenMs: number;
  readonly idleRatio: number;
  readonly longestIdleMs: number;
  readonly overMsP95: number;
  readonly overMsMax: number;
}

/** A fifth urgent, a fifth low, for some seconds at `load` times what the pool can do. */
export function runOrder(
  seed: number,
  options: { routers: number; load: number; wire?: Wire; forMs?: number },
): OrderFigures {
  const world = worldOf(seed, options);
  const clients = new FlowClients(world);
  const perS = options.load * PER_S_AT_CAPACITY;
  clients.start(
    { name: 'urgent', perS: perS * 0.2, priority: -1, ...SHAPE },
    { name: 'usual', perS: perS * 0.6, ...SHAPE },
    { name: 'low', perS: perS * 0.2, priority: 5, ...SHAPE },
  );
  world.run(2_000);
  const fromMs = world.nowMs;
  const forMs = options.forMs ?? 12_000;
  const seen = watch(world, { everyMs: 20, forMs, holdMs: HOLD_MS });
  const served = clients.rows.filter(({ firstTokenMs }) => (firstTokenMs ?? 0) >= fromMs);
  return {
    tokensPerS: (1_000 * sum(served.map(({ promptTokens }) => promptTokens))) / forMs,
    inversions: inversions(clients.rows, KNOWN_MS).length,
    overtakenMs: overtakenByMs(clients.rows, AGE_CREDIT),
    idleRatio: seen.idleLooks / seen.looks,
    longestIdleMs: seen.longestIdleMs,
    overMsP95: quantile(seen.overMs, 0.95),
    overMsMax: Math.max(...seen.overMs),
  };
}

/** What does not hold of several routers beside one. */
export function orderFailures(alone: OrderFigures, several: OrderFigures): string[] {
  const rules: [string, boolean][] = [
    ['one router releases by priority', alone.inversions === 0],
    ['several release by priority', several.inversions === 0],
    ['their throughput is one router’s', several.tokensPerS >= 0.97 * alone.tokensPerS],
    ['hardly any replica idles', several.idleRatio < 0.015],
    ['none for long', several.longestIdleMs <= 140],
    ['one router keeps the hold', alone.overMsP95 < 320],
    ['several keep the hold', several.overMsP95 < 1.8 * alone.overMsP95],
    ['and never exceed it by far', several.overMsMax < 1_300],
    ['in one router length alone decides who is overtaken', alone.overtakenMs < 150],
    ['in several age does, but for what is on its way', several.overtakenMs < 6_000],
  ];
  return rules.flatMap(([rule, holds]) => (holds ? [] : [rule]));
}

/** Who was turned away in one run, and came back. */
export interface Returns {
  /** What was told over what a queue without a limit would have needed. */
  readonly toldRatios: readonly number[];
  /** Second tries that have been decided. */
  readonly second: number;
  readonly served: number;
  readonly requests: number;
  /** Let in, and waited in vain. */
  readonly inVain: number;
}

export interface ReturnFigures {
  readonly turnedAway: number;
  readonly second: number;
  readonly servedRatio: number;
  /** Median. */
  readonly toldRatio: number;
  readonly inVainRatio: number;
}

/** Everybody comes back once, exactly when told. */
export function runReturns(
  seed: number,
  options: { routers: number; load: number; flow?: Partial<Flow>; forMs?: number },
): Returns {
  const world = worldOf(seed, { ...options, queueMaxWaitMs: RETURN_LIMIT_MS });
  const clients = new FlowClients(world);
  const perS = options.load * PER_S_AT_CAPACITY;
  clients.start({ name: 'usual', perS, tries: 2, ...SHAPE, ...options.flow });
  world.run(options.forMs ?? 45_000);
  const { rows } = clients;
  const returns = returnsOf(rows, { tokensPerMs: TOKENS_PER_MS, limitMs: RETURN_LIMIT_MS });
  const second = rows.filter((row) => row.tryNumber === 2 && (row.sentMs ?? row.end) !== null);
  return {
    toldRatios: returns.map(({ toldMs, neededMs }) => toldMs / neededMs),
    second: second.length,
    served: second.filter(({ sentMs }) => sentMs !== null).length,
    requests: rows.length,
    inVain: rows.filter(waitedInVain).length,
  };
}

/** All runs together. */
export function returnFigures(runs: readonly Returns[]): ReturnFigures {
  const toldRatios = runs.flatMap((run) => run.toldRatios);
  const second = sum(runs.map((run) => run.second));
  return {
    turnedAway: toldRatios.length,
    second,
    servedRatio: sum(runs.map(({ served }) => served)) / second,
    toldRatio: quantile(toldRatios, 0.5),
    inVainRatio: sum(runs.map(({ inVain }) => inVain)) / sum(runs.map((run) => run.requests)),
  };
}

export function waitedInVain({ end }: FlowRow): boolean {
  return end?.kind === 'refused' && end.code === 'queue_timeout';
}

/** `share` of the second tries has to be served, who were told `told` times what they needed at most. */
export function returnFailures(
  figures: ReturnFigures,
  { share, told }: { readonly share: number; readonly told: number },
): string[] {
  const rules: [string, boolean][] = [
    ['enough come back to tell', figures.second > 50],
    [`at least ${share} of them are served`, figures.servedRatio >= share],
    [`they were told at most ${told} times what they needed`, figures.toldRatio < told],
    ['hardly anybody is let in and waits in vain', figures.inVainRatio < 0.01],
  ];
  return rules.flatMap(([rule, holds]) => (holds ? [] : [rule]));
}

export const OVERLOAD: Proof = {
  name: 'overload',
  title:
    'an overloaded pool: several routers release as one, and who comes back when told is served',
  run: ({ quick, print }) => {
    const failures: string[] = [];
    const rows: ProofRow[] = [];
    const note = (row: ProofRow, wrong: readonly string[]): void => {
      rows.push(row);
      print(
        Object.entries(row)
          .map(([name, value]) => `${name} ${shown(value)}`)
          .join('  '),
      );
      failures.push(...wrong.map((rule) => `${rule}: ${String(row['case'])}, seed ${row['seed']}`));
    };
    const seeds = quick ? [1] : [1, 2, 3, 4, 5];
    for (const seed of seeds) {
      orderRows(
        seed,
        { loads: quick ? [1.5] : [1.2, 1.5, 2], forMs: quick ? 12_000 : 25_000 },
        note,
      );
    }
    returnRows(seeds, quick ? [1.5] : [1.3, 1.5, 2], note);
    return { failures, rows };
  },
};

type Note = (row: ProofRow, wrong: readonly string[]) => void;

function orderRows(
  seed: number,
  plan: { readonly loads: readonly number[]; readonly forMs: number },
  note: Note,
): void {
  for (const load of plan.loads) {
    const alone = runOrder(seed, { routers: 1, load, forMs: plan.forMs });
    note({ case: 'order', seed, load, routers: 1, ...alone }, []);
    for (const routers of [2, 8]) {
      const several = runOrder(seed, { routers, load, forMs: plan.forMs });
      note({ case: 'order', seed, load, routers, ...several }, orderFailures(alone, several));
    }
    for (const [name, wire] of [
      ['untold', UNTOLD],
      ['unplaced', UNPLACED],
    ] as const) {
      const control = runOrder(seed, { routers: 8, load, wire, forMs: plan.forMs });
      const passes = orderFailures(alone, control).length === 0;
      note(
        { case: `control: ${name}`, seed, load, routers: 8, ...control },
        passes ? ['a control fails'] : [],
      );
    }
  }
}

/** Several routers know of their own promises alone: a client may come back to another. */
const SHARES = [
  [1, 0.9],
  [4, 0.65],
] as const;

function returnRows(seeds: readonly number[], loads: readonly number[], note: Note): void {
  for (const load of loads) {
    for (const [routers, share] of SHARES) {
      const runs = seeds.map((seed) => runReturns(seed, { routers, load }));
      for (const [k, seed] of seeds.entries()) {
        note({ case: 'returns', seed, load, routers, ...returnFigures([runs[k]!]) }, []);
      }
      const figures = returnFigures(runs);
      // Little over capacity, what is needed is a second or two: no more than the least that can be told.
      const wrong = returnFailures(figures, { share, told: load < 1.5 ? 3.2 : 2.2 });
      note({ case: 'returns', seed: 'all', load, routers, ...figures }, wrong);
    }
    for (const seed of seeds) {
      const control = returnFigures([
        runReturns(seed, { routers: 1, load, flow: { unmarked: true } }),
      ]);
      const passes = control.servedRatio >= 0.8;
      note(
        { case: 'control: unmarked', seed, load, routers: 1, ...control },
        passes ? ['a control fails'] : [],
      );
    }
  }
}

function shown(value: string | number | null): string {
  if (typeof value !== 'number') return String(value);
  return Number.isInteger(value) ? String(value) : value.toFixed(value < 10 ? 3 : 0);
}
