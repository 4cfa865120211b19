// Loads whose conversations together want so much of a pool's KV cache, as a share of what it holds, and what becomes of
// them under a bound of working-set admission: thrown away, held still, or moved by its controller.

import { REGIONAL_DEFAULTS, type RegionalSettings } from '../../shared/model/settings.ts';
import { kvCapacityTokens, type EngineProfile } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape, type Range } from '../workloads/conversations.ts';
import { quantile, sum, type RequestRow } from './recorder.ts';
import { DEMO } from './test-worlds.ts';
import { World } from './world.ts';

/** The demo engine with 32,768 tokens of KV. */
export const SMALL_KV: EngineProfile = { ...DEMO, kvBlocks: 2_048 };
export const REPLICAS = 3;

/** Conversations of a few thousand tokens that come back within seconds. */
export const TALK: ConversationShape = {
  ...CHAT_SHAPE,
  firstTokens: [600, 1_400],
  turnTokens: [50, 250],
  answerTokens: [30, 90],
  turns: [5, 9],
  thinkMs: [1_000, 5_000],
};

/** `none`: the rule is off. A number: the bound stands still there. */
export type Bound = 'none' | 'controlled' | number;

export interface WorkingSetLoad {
  /** Context of the live conversations together over the KV capacity of the pool. */
  readonly load: number;
  readonly bound: Bound;
  readonly seed: number;
  readonly routers: number;
  /** Between two turns, ms; TALK's unless given. */
  readonly thinkMs?: Range;
  readonly warmMs: number;
  readonly measureMs: number;
}

/**
 * Times in ms, from arrival to first token; of answers and tokens per second. A turn that is turned away, at once or in the
 * end, counts as one that has waited as long as anybody may: whoever asked has no answer.
 */
export interface WorkingSetFigures {
  readonly answersPerS: number;
  readonly tokensPerS: number;
  readonly laterP50: number;
  readonly laterP95: number;
  readonly firstP50: number;
  readonly firstP95: number;
  /** Share of what turns had left behind that the next ones found. */
  readonly reuse: number;
  readonly refused: number;
  /** New conversations that entered without room. */
  readonly aged: number;
  /** At the end; null where the rule is off. */
  readonly boundRatio: number | null;
}

/** Mean context of a live conversation of TALK, tokens: of any of its turns with its answer. Longer ones live longer. */
function meanContextTokens(): number {
  const { firstTokens, turnTokens, answerTokens, turns } = TALK;
  let all = 0;
  let before = 0;
  for (let length = turns[0]; length <= turns[1]; length += 1) {
    all += length;
    before += (length * (length - 1)) / 2;
  }
  const turn = middle(turnTokens) + middle(answerTokens);
  return middle(firstTokens) + (before / all) * turn + middle(answerTokens);
}

export function conversationsFor(load: number): number {
  return Math.round((load * REPLICAS * kvCapacityTokens(SMALL_KV)) / meanContextTokens());
}

export function boundSettings(bound: Bound): Partial<RegionalSettings> {
  if (bound === 'controlled') return {};
  if (bound === 'none') return { workingSetBound: null };
  return { workingSetBound: bound, workingSetBoundMin: bound, workingSetBoundMax: bound };
}

export function runWorkingSet(options: WorkingSetLoad): WorkingSetFigures {
  const { load, bound, seed, routers, thinkMs = TALK.thinkMs, warmMs, measureMs } = options;
  const settings = { ...REGIONAL_DEFAULTS, ...boundSettings(bound) };
  const world = new World({
    ...{ seed, routers, profile: SMALL_KV, replicas: REPLICAS, router: settings },
  });
  world.runUntilReady();
  world.clients({ ...TALK, thinkMs }).closedLoop(conversationsFor(load), 15_000);
  world.run(warmMs);
  const fromMs = world.nowMs;
  world.run(measureMs);
  return figuresOf(world, fromMs);
}

function figuresOf(world: World, fromMs: number): WorkingSetFigures {
  const { rows } = world.recorder;
  const seconds = (world.nowMs - fromMs) / 1_000;
  const answers = rows.flatMap(({ end, endedMs }) =>
    end?.kind === 'complete' && endedMs !== null && endedMs >= fromMs ? [end.usage] : [],
  );
  const refused = rows.filter(({ end, endedMs }) => end?.kind === 'refused' && endedMs! >= fromMs);
  const ttft = (later: boolean): number[] => {
    const isOne = ({ turn }: RequestRow): boolean => turn > 0 === later;
    const served = rows
      .filter(({ firstTokenMs: at }) => at !== null && at >= fromMs)
      .filter(isOne)
      .map(({ firstTokenMs, arrivedMs }) => firstTokenMs! - arrivedMs);
    return [...served, ...refused.filter(isOne).map(() => REGIONAL_DEFAULTS.queueMaxWaitMs)];
  };
  const [laterMs, firstMs] = [ttft(true), ttft(false)];
  const pools = world.routers.flatMap(({ core }) => core?.status(world.nowMs).pools ?? []);
  const bounds = pools.flatMap(({ workingSet }) => workingSet.boundRatio ?? []);
  return {
    answersPerS: answers.length / seconds,
    tokensPerS: sum(answers.map(({ completionTokens }) => completionTokens)) / seconds,
    laterP50: quantile(laterMs, 0.5),
    laterP95: quantile(laterMs, 0.95),
    firstP50: quantile(firstMs, 0.5),
    firstP95: quantile(firstMs, 0.95),
    reuse: world.recorder.reuseShare(SMALL_KV.blockTokens, fromMs),
    refused: refused.length,
    aged: sum(pools.map(({ workingSet }) => workingSet.aged)),
    boundRatio: bounds.length === 0 ? null : sum(bounds) / bounds.length,
  };
}

function middle([least, most]: readonly [number, number]): number {
  return (least + most) / 2;
}
