// The loads under which agents' figures are held against the truth, and what is counted of them.

import { ENGINE_PROFILES, type EngineProfile } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import { quantile } from './recorder.ts';
import { watchReports, type Sample, type WatchOptions } from './report-watch.ts';
import { DEMO, SMALL_TALK } from './test-worlds.ts';
import { World, type WorldOptions } from './world.ts';

export const H100: EngineProfile = { ...ENGINE_PROFILES['h100-llama-8b']!, loadingMs: 500 };

export interface Load {
  readonly profile: EngineProfile;
  readonly world?: Partial<WorldOptions>;
  /** Engines take so many times as long from 10 s on. */
  readonly slowdown?: number;
  readonly begin: (world: World) => void;
  /** Reports between these instants after a process died may be wrong. */
  readonly blind?: (sinceMs: number) => boolean;
  readonly watch?: Partial<WatchOptions>;
  /** Tokens that are in flight for nobody: the chunk under way of a request that was given up. */
  readonly abandonedTokens?: number;
  /** Truth is what has not had its first token: what preemptions will have computed again, nobody can tell. */
  readonly preempts?: boolean;
}

const LONG: ConversationShape = {
  ...CHAT_SHAPE,
  firstTokens: [60_000, 100_000],
  turns: [1, 1],
  answerTokens: [50, 100],
};
const SHORT: ConversationShape = {
  ...SMALL_TALK,
  firstTokens: [200, 200],
  turns: [1, 1],
  answerTokens: [5, 40],
};
const PREFIXED: ConversationShape = {
  ...CHAT_SHAPE,
  systemTokens: 3_000,
  systemShare: 0.7,
  systemPrompts: 3,
  turns: [3, 8],
  thinkMs: [200, 2_000],
};
/** Stops and starts that begin 5 s after the load and come every `EVERY_MS`. */
const EVERY_MS = 6_000;
const DOWN_MS = 700;
/** A scrape that began before the death, the next, and its echo. */
const BLIND_MS = 2_200;
/** Answers that nobody streams show at the next scrape. */
const UNSEEN: Partial<WatchOptions> = { lateMs: 1_100 };

function closedLoop(world: World, shape: ConversationShape, count: number, spreadMs = 2_000): void {
  world.clients(shape).closedLoop(count, spreadMs);
}

function bursts(world: World, shape: ConversationShape, size: number): void {
  const clients = world.clients(shape);
  for (let index = 0; index < 12; index++) {
    world.context.timeline.after(index * 2_000, () => clients.burst(size));
  }
}

function restarts(world: World, hosts: readonly { stop(): void; start(): void }[]): void {
  const { timeline } = world.context;
  for (let index = 0; index < 4; index++) {
    const host = hosts[index % hosts.length]!;
    timeline.after(5_000 + index * EVERY_MS, () => host.stop());
    timeline.after(5_000 + index * EVERY_MS + DOWN_MS, () => host.start());
  }
}

const blindAfterRestart = (sinceMs: number): boolean =>
  sinceMs >= 5_000 && (sinceMs - 5_000) % EVERY_MS < BLIND_MS;

export const LOADS = {
  'short conversations through two routers': {
    profile: DEMO,
    world: { routers: 2 },
    begin: (world) => closedLoop(world, SMALL_TALK, 24),
  },
  'half not streamed, answers of 2,000 tokens': {
    profile: DEMO,
    watch: UNSEEN,
    begin: (world) =>
      closedLoop(
        world,
        { ...SMALL_TALK, streamShare: 0.5, answerTokens: [1_500, 2_000] },
        24,
        20_000,
      ),
  },
  'nothing streamed': {
    profile: DEMO,
    watch: UNSEEN,
    begin: (world) => closedLoop(world, { ...SMALL_TALK, streamShare: 0 }, 24),
  },
  'nothing streamed, by engines that become slower by 70 %': {
    profile: DEMO,
    slowdown: 1.7,
    watch: UNSEEN,
    begin: (world) => closedLoop(world, { ...SMALL_TALK, streamShare: 0 }, 20),
  },
  'bursts of 200-token prompts': {
    profile: DEMO,
    begin: (world) => bursts(world, SHORT, 30),
  },
  'prompts of 100,000 tokens': {
    profile: H100,
    begin: (world) => {
      closedLoop(world, SMALL_TALK, 16);
      closedLoop(world, LONG, 2);
    },
  },
  'conversations behind shared prompts': {
    profile: H100,
    begin: (world) => closedLoop(world, PREFIXED, 60),
  },
  'too little KV: preemptions': {
    profile: { ...DEMO, kvBlocks: 600 },
    preempts: true,
    begin: (world) => closedLoop(world, { ...SMALL_TALK, answerTokens: [200, 600] }, 30),
  },
  'aborts in mid-prefill': {
    profile: { ...DEMO, kvBlocks: 16_384 },
    abandonedTokens: DEMO.maxNumBatchedTokens,
    begin: (world) =>
      closedLoop(
        world,
        {
          ...SMALL_TALK,
          firstTokens: [1_000, 6_000],
          abandonShare: 0.4,
          abandonAfterMs: [10, 1_500],
        },
        16,
      ),
  },
  'routers that die and come back': {
    profile: DEMO,
    world: { routers: 2 },
    blind: blindAfterRestart,
    begin: (world) => {
      closedLoop(world, SMALL_TALK, 30);
      restarts(world, world.routers);
    },
  },
  'agents that die and come back': {
    profile: DEMO,
    world: { routers: 2 },
    blind: blindAfterRestart,
    begin: (world) => {
      closedLoop(world, SMALL_TALK, 30);
      restarts(world, world.agents);
    },
  },
  'engines that become slower by 70 %': {
    profile: DEMO,
    slowdown: 1.7,
    begin: (world) => closedLoop(world, SMALL_TALK, 20),
  },
  'two data-parallel ranks': {
    profile: DEMO,
    world: { replicas: 1, ranks: 2 },
    begin: (world) => closedLoop(world, SMALL_TALK, 24),
  },
  'more requests than batch slots': {
    profile: { ...DEMO, maxNumSeqs: 8 },
    begin: (world) => closedLoop(world, { ...SMALL_TALK, answerTokens: [100, 300] }, 40),
  },
} satisfies Record<string, Load>;

export type LoadName = keyof typeof LOADS;

export interface Findings {
  reports: number;
  /** Reports while prefill waited in truth. */
  busy: number;
  /** |reported − true| of those, ms and tokens. */
  readonly ms: number[];
  readonly tokens: number[];
  /** Reports off by more than one prefill. */
  readonly beyond: string[];
  /** Reported ÷ true prefill of the largest prompt that waits, seen by the agent. */
  readonly largest: number[];
  /** |reported − true| tokens of reports within `FRESH_MS` of a scrape. */
  readonly fresh: number[];
  unattributed: number;
  readonly absurd: string[];
}

/** Routers foretell tokens from bytes, and hits by the chunk of the prefix index. */
const FORETOLD = 1.1;
const CHUNK_TOKENS = 128;

const FRESH_MS = 60;

/** Runs a load for 30 s, the first 4 of which are not looked at. */
export function findings(name: LoadName, seed: number): Findings {
  const load: Load = LOADS[name];
  // What agents tell is looked at, not where requests go: crowding would only move them.
  const router = { ...load.world?.router, crowdingWeight: 0 };
  const world = new World({ seed, profile: load.profile, replicas: 2, ...load.world, router });
  world.runUntilReady();
  const startMs = world.nowMs;
  const found: Findings = {
    reports: 0,
    busy: 0,
    ms: [],
    tokens: [],
    beyond: [],
    fresh: [],
    largest: [],
    unattributed: 0,
    absurd: [],
  };
  let pace = 1;
  const look = (sample: Sample): void => {
    found.unattributed = Math.max(found.unattributed, sample.report.unattributedTokens ?? 0);
    absurdities(sample.report, '', found.absurd);
    const sinceMs = sample.atMs - startMs;
    if (sinceMs < 4_000 || load.blind?.(sinceMs) === true) return;
    judge(sample, { ...load, pace }, found);
  };
  watchReports(world, look, load.watch);
  load.begin(world);
  world.run(10_000);
  pace = load.slowdown ?? 1;
  if (pace !== 1)
    for (const { models } of world.engines) for (const model of models) model.slow(pace);
  world.run(20_000);
  return found;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

function judge(
  { atMs, report, truth, inside, largest, onTheWay }: Sample,
  load: Load & { readonly pace: number },
  found: Findings,
): void {
  const { waitingPrefillMs, waitingPrefillTokens, largestPrefillMs } = report;
  found.reports++;
  if (waitingPrefillMs === null || waitingPrefillTokens === null) {
    found.beyond.push(`${atMs.toFixed(0)}: unknown`);
    return;
  }
  const { pace, preempts = false, abandonedTokens = 0 } = load;
  const trueTokens = preempts ? inside.tokens : truth.waitingPrefillTokens;
  const ms = Math.abs(waitingPrefillMs - truth.waitingPrefillMs);
  const tokens = Math.abs(waitingPrefillTokens - trueTokens);
  if (truth.waitingPrefillMs > 5) {
    found.busy++;
    found.ms.push(ms);
    found.tokens.push(tokens);
    if ((report.scrapeAgoMs ?? Infinity) < FRESH_MS) found.fresh.push(tokens);
  }
  if (largest.ms > 0 && onTheWay.ms === 0) {
    found.largest.push((largestPrefillMs ?? 0) / largest.ms);
  }
  const abandonedMs = abandonedTokens * load.profile.linearMsPerToken;
  const oneMs = Math.max(pace * largest.ms, largestPrefillMs ?? 0, abandonedMs);
  const mostMs = oneMs + pace * onTheWay.ms + 1;
  const foretold = (inside.requests + 2) * CHUNK_TOKENS;
  const mostTokens = FORETOLD * (largest.tokens + onTheWay.tokens) + foretold + abandonedTokens;
  if ((preempts || ms <= mostMs) && tokens <= mostTokens) return;
  found.beyond.push(
    `${atMs.toFixed(0)} ${report.replica}#${report.rank}: ${waitingPrefillMs.toFixed(0)} ms, ` +
      `${waitingPrefillTokens} tokens; true ${truth.waitingPrefillMs.toFixed(0)} ms, ` +
      `${trueTokens} tokens; allowed ${mostMs.toFixed(0)} ms, ${mostTokens.toFixed(0)} tokens`,
  );
}

/** Fields that may be below 0. */
const SIGNED = new Set(['ackedSeq', 'bias', 'oldestAgeMs']);
const RATIOS = new Set(['kvUsageRatio', 'kappa']);

/** Numbers that are no numbers, or not of their field. */
function absurdities(value: unknown, name: string, into: string[]): void {
  if (typeof value === 'number') {
    const wrong =
      !Number.isFinite(value) ||
      (value < 0 && !SIGNED.has(name)) ||
      (RATIOS.has(name) && value > 1);
    if (wrong) into.push(`${name} = ${value}`);
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, inner] of Object.entries(value)) absurdities(inner, key, into);
  }
}
