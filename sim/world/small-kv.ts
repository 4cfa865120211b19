// The loads of `npm run bench:engines` in virtual time: two engines for CPU with 32,768 tokens of KV each, and a rush of
// conversations of five turns that together want more than that, or more than the engines can compute. What becomes of
// them with working-set admission, with a bound that stands still, and without.
//
// The engines are `cpu-tiny-llama`, slower by what a front end that streams to eight clients takes of the same core. Both
// factors are fitted to recorded cells of one seed: without the rule those had a median time between tokens of 29 ms, p50
// and p95 to the first token of 705 and 3,349 ms, and 0.55 of all prompt tokens cached; here the same conversations have 37, 818, 4,556 and 0.53.

import { REGIONAL_DEFAULTS } from '../../shared/model/settings.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import { quantile, sum, type RequestRow } from './recorder.ts';
import { boundSettings, type Bound } from './working-set.ts';
import { World } from './world.ts';

const CPU: EngineProfile = ENGINE_PROFILES['cpu-tiny-llama']!;
const SLOWER = 1.2;
/** Of a sequence that decodes: each token goes through the front end. */
const SLOWER_SEQUENCE = 4.8;

/** So many times slower than alone on its core. */
function engine(times: number): EngineProfile {
  const slower = times * SLOWER;
  return {
    ...CPU,
    loadingMs: 500,
    frontMsPerToken: slower * CPU.frontMsPerToken,
    prefillStepMs: slower * CPU.prefillStepMs,
    decodeStepMs: slower * CPU.decodeStepMs,
    linearMsPerToken: slower * CPU.linearMsPerToken,
    contextMsPerToken2: slower * CPU.contextMsPerToken2,
    decodeMsPerSequence: times * SLOWER_SEQUENCE * CPU.decodeMsPerSequence,
    decodeContextMsPerToken: slower * CPU.decodeContextMsPerToken,
  };
}

/** The conversations of the benchmark, in tokens of 3.4 bytes. */
const RUSH: ConversationShape = {
  ...CHAT_SHAPE,
  systemTokens: 720,
  systemShare: 0.5,
  firstTokens: [750, 2_960],
  turnTokens: [55, 280],
  answerTokens: [32, 96],
  turns: [5, 5],
  thinkMs: [500, 3_000],
  bytesPerToken: 3.4,
};
const WARM_UP = { conversations: 6, perSecond: 2 } as const;
const TRIES = 3;
const LONGEST_MS = 300_000;

export interface Rush {
  readonly conversations: number;
  /** New ones. */
  readonly perSecond: number;
  /** Engines are so many times slower; 1 unless given. */
  readonly slower?: number;
}

export interface RushOptions {
  readonly bound: Bound;
  readonly seed: number;
  /** Each turn draws one of them; 1 unless given. */
  readonly routers?: number;
  /** They tell each other nothing. */
  readonly cut?: boolean;
}

/** The first two as the benchmark names them; `slowEngines` is `smallKv` where other programs take more than half of the cores. */
export const RUSHES = {
  smallKv: { conversations: 45, perSecond: 1.6 },
  overCapacity: { conversations: 40, perSecond: 2.4 },
  slowEngines: { conversations: 45, perSecond: 1.6, slower: 2.2 },
} as const satisfies Readonly<Record<string, Rush>>;

export interface RushFigures {
  /** ms from the first try to the first token, of all turns. */
  readonly ttftMs: readonly number[];
  /** The same of first turns. */
  readonly firstMs: readonly number[];
  readonly cachedTokens: number;
  readonly promptTokens: number;
  /** Tries that were turned away. */
  readonly refused: number;
  /** Turns without an answer. */
  readonly unanswered: number;
}

export function runRush(
  { conversations, perSecond, slower = 1 }: Rush,
  { bound, seed, routers = 1, cut = false }: RushOptions,
): RushFigures {
  const world = new World({
    ...{ seed, profile: engine(slower), replicas: 2, enginesPerAgent: 2, routers },
    ...(cut ? { siblings: null } : {}),
    router: { ...REGIONAL_DEFAULTS, ...boundSettings(bound) },
  });
  world.runUntilReady();
  const { timeline } = world.context;
  const atRest = (): boolean => world.openRequests === 0 && timeline.nowMs > quietFromMs(world);
  const warm = world.clients({ ...RUSH, turns: [2, 2] });
  warm.openLoop(WARM_UP.perSecond, WARM_UP.conversations);
  world.run(5_000);
  world.runUntil(atRest, LONGEST_MS);
  const before = world.recorder.rows.length;
  world.clients(RUSH, { tries: TRIES }).openLoop(perSecond, conversations);
  world.run((2 * 1_000 * conversations) / perSecond);
  world.runUntil(atRest, LONGEST_MS);
  return figuresOf(world.recorder.rows.slice(before), conversations * RUSH.turns[0]);
}

/** Nobody thinks that long: after it, whoever was there has ended. */
function quietFromMs({ recorder }: World): number {
  const lastMs = Math.max(0, ...recorder.rows.map(({ endedMs }) => endedMs ?? 0));
  return lastMs + 2 * RUSH.thinkMs[1];
}

function figuresOf(rows: readonly RequestRow[], turns: number): RushFigures {
  const arrivedMs = new Map<string, number>();
  const figures = { ttftMs: [] as number[], firstMs: [] as number[] };
  let [cachedTokens, promptTokens] = [0, 0];
  for (const { conversation, turn, arrivedMs: triedMs, firstTokenMs, end } of rows) {
    const key = `${conversation}/${turn}`;
    if (!arrivedMs.has(key)) arrivedMs.set(key, triedMs);
    if (end?.kind !== 'complete' || firstTokenMs === null) continue;
    const ttftMs = firstTokenMs - (arrivedMs.get(key) as number);
    figures.ttftMs.push(ttftMs);
    if (turn === 0) figures.firstMs.push(ttftMs);
    cachedTokens += end.usage.cachedTokens ?? 0;
    promptTokens += end.usage.promptTokens;
  }
  const refused = rows.filter(({ end }) => end?.kind === 'refused').length;
  const unanswered = turns - figures.ttftMs.length;
  return { ...figures, cachedTokens, promptTokens, refused, unanswered };
}

export interface PooledFigures {
  readonly mean: number;
  readonly p50: number;
  readonly p95: number;
  readonly firstP95: number;
  readonly cachedShare: number;
  /** In a run. */
  readonly refused: number;
  readonly unanswered: number;
}

/** Of several seeds together. */
export function pooled(runs: readonly RushFigures[]): PooledFigures {
  const ttftMs = runs.flatMap((run) => run.ttftMs);
  const firstMs = runs.flatMap((run) => run.firstMs);
  const of = (read: (run: RushFigures) => number): number => sum(runs.map(read));
  return {
    mean: sum(ttftMs) / ttftMs.length,
    p50: quantile(ttftMs, 0.5),
    p95: quantile(ttftMs, 0.95),
    firstP95: quantile(firstMs, 0.95),
    cachedShare: of((run) => run.cachedTokens) / of((run) => run.promptTokens),
    refused: of((run) => run.refused) / runs.length,
    unanswered: of((run) => run.unanswered) / runs.length,
  };
}
