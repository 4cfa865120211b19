// The worlds in which the global tier is proved, and what is measured in each.
//
//   peak    the documents' evening: sixty replicas of 8,000 tokens/s, a neighbour 45 ms further away. Japan is asked for
//           more than it can serve for a while, then for little; a tenant is bound to the EU
//   flood   a large region beyond its capacity, two small neighbours with load of their own
//   choice  the same with large neighbours: credit is plenty, so the draw alone decides
//   sudden  one global router, reports 5 s late, and a region whose load doubles at once

import { GLOBAL_DEFAULTS, type GlobalSettings } from '../../shared/model/global-settings.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { Clients, type ClientLoad } from '../regions/clients.ts';
import { loadLocally } from '../regions/local-load.ts';
import { RegionsWorld, type WorldRegion } from '../regions/world.ts';

/** No load before the first reports are in: nothing is seen of a region then. */
const FIRST_REPORTS_MS = 8_000;
const TURN = { tenant: 't', turnTokens: 500, answerTokens: 100, goesOn: 0, thinkMs: 5_000 };

export interface PeakShape {
  readonly seed: number;
  readonly replicas: number;
  readonly promptTokens: number;
  readonly hotMs: number;
  readonly afterMs: number;
}

export interface PeakFigures {
  /** When Japan's queue first was above the start threshold, and when anybody's share first grew; null: never. */
  readonly hotAtMs: number | null;
  readonly firstSpillMs: number | null;
  /** Growth of a share while the neighbour's queue was 300 ms or more as its last report had it. */
  readonly grewAboveMs: number;
  readonly neighbourMostMs: number;
  readonly shareMost: number;
  readonly shareAtEnd: number;
  /** Of one controller, the most. */
  readonly turns: number;
  /** Attempts of the bound tenant outside the EU. */
  readonly outside: number;
  readonly boundAnswered: number;
}

export function measurePeak(shape: PeakShape): PeakFigures {
  const { seed, replicas, promptTokens, hotMs, afterMs } = shape;
  const eu = 'eu' as RegionId;
  const facts = { saltGroup: 's', models: null, certifications: [], tier: null };
  const tenants = new Map([
    ['t', { ...facts, residency: null }],
    ['pinned', { ...facts, residency: { allow: [eu], fallback: [] } }],
  ]);
  const place = { replicas, routers: 1, tokensPerMs: 8, holdMs: 60 };
  const world = new RegionsWorld({
    ...{ seed, globals: 2, lateMs: [0, 0], tenants },
    regions: [
      { id: 'jp', zone: 'asia', rttMs: 15, ...place },
      { id: 'sg', zone: 'asia', rttMs: 60, ...place },
      { id: 'eu', zone: 'eu', rttMs: 220, ...place },
    ],
  });
  let outside = 0;
  world.onAttempt = (_, region, tenant) => {
    if (tenant === 'pinned' && region !== eu) outside += 1;
  };
  const capacity = (replicas * 8_000) / promptTokens;
  const endsMs = FIRST_REPORTS_MS + hotMs;
  new Clients(
    world,
    {
      ...{ ...TURN, firstTokens: promptTokens, maxTurns: 1 },
      perS: (at) => (at < FIRST_REPORTS_MS ? 0 : capacity * (at < endsMs ? 1.15 : 0.4)),
    },
    { name: 'jp', firstId: 0 },
  );
  const pinned = new Clients(
    world,
    {
      ...{ ...TURN, tenant: 'pinned', firstTokens: promptTokens, maxTurns: 1 },
      perS: (at) => (at < FIRST_REPORTS_MS ? 0 : capacity * 0.1),
    },
    { name: 'eu', firstId: 1e9 },
  );
  loadLocally(world, world.region('sg'), { ratio: 0.5, promptTokens });
  world.run(endsMs + afterMs);
  const hot = world.samples.find(
    ({ queueMs }) => (queueMs['jp'] ?? 0) >= GLOBAL_DEFAULTS.spillStartMs,
  );
  const first = world.samples.find(({ shares }) => mostOf(shares['jp']) > 0);
  return {
    hotAtMs: hot?.atMs ?? null,
    firstSpillMs: first?.atMs ?? null,
    grewAboveMs: growthAbove(world, 300),
    neighbourMostMs: mostOf(world.samples.map(({ queueMs }) => queueMs['sg'] ?? 0)),
    shareMost: mostOf(world.samples.map(({ shares }) => mostOf(shares['jp']))),
    shareAtEnd: mostOf(world.samples.at(-1)?.shares['jp']),
    turns: turnsOf(world, 'jp'),
    ...{ outside, boundAnswered: pinned.figures.answered },
  };
}

export interface FloodShape {
  readonly seed: number;
  readonly globals: number;
  readonly routers: number;
  readonly lateMs: readonly [number, number];
  readonly forMs: number;
  /** Of each neighbour; the hot region has 40. */
  readonly neighbours: number;
  readonly settings?: Partial<GlobalSettings>;
}

export interface FloodFigures {
  /** The longest true queue of a neighbour, and the most that one second's grants add to it, ms. */
  readonly neighbourMostMs: number;
  readonly grantsMs: number;
  readonly shareMost: number;
  readonly turns: number;
  readonly spills: number;
  /** Of seconds with ten spills or more: in how many nine of ten went to one neighbour. */
  readonly oneSidedRatio: number;
}

const FLOOD_TOKENS = 1_000;
const HOT_REPLICAS = 40;

export function measureFlood(shape: FloodShape): FloodFigures {
  const { seed, globals, routers, lateMs, forMs, neighbours, settings } = shape;
  const place = { zone: 'asia', routers, tokensPerMs: 8, holdMs: 60 };
  const near: WorldRegion[] = ['sg', 'tw'].map((id) => ({
    ...{ id, rttMs: 60, replicas: neighbours, ...place },
  }));
  const world = new RegionsWorld({
    ...{ seed, globals, lateMs, ...(settings === undefined ? {} : { settings }) },
    regions: [{ id: 'jp', rttMs: 15, replicas: HOT_REPLICAS, ...place }, ...near],
  });
  const capacity = (HOT_REPLICAS * 8_000) / FLOOD_TOKENS;
  new Clients(
    world,
    {
      ...{ ...TURN, firstTokens: FLOOD_TOKENS, maxTurns: 1 },
      perS: (at) => (at < FIRST_REPORTS_MS ? 0 : 1.2 * capacity),
    },
    { name: 'jp', firstId: 0 },
  );
  const load = { ratio: 0.4, promptTokens: FLOOD_TOKENS };
  for (const { id } of near) loadLocally(world, world.region(id), load);
  world.run(FIRST_REPORTS_MS + forMs);
  const most = (id: string): number => mostOf(world.samples.map(({ queueMs }) => queueMs[id] ?? 0));
  const granted = (id: string): number =>
    world.region(id).routers.reduce((sum, { grantedMostMs }) => sum + grantedMostMs, 0);
  return {
    neighbourMostMs: Math.max(most('sg'), most('tw')),
    grantsMs: Math.max(granted('sg'), granted('tw')) / neighbours,
    shareMost: mostOf(world.samples.map(({ shares }) => mostOf(shares['jp']))),
    turns: turnsOf(world, 'jp'),
    spills: world.spills.length,
    oneSidedRatio: oneSidedRatio(world),
  };
}

/** ms from the true queue's passing the start threshold to the estimate's doing so; null: it never did. */
export function measureSudden(seed: number): number | null {
  const place = { zone: 'asia', routers: 1, tokensPerMs: 8, holdMs: 60, replicas: 40 };
  const world = new RegionsWorld({
    ...{ seed, globals: 1, lateMs: [5_000, 5_000] },
    // The neighbour has given credit before: what is measured is how soon the load is noticed.
    settings: { spillSightMs: 10_000, smoothingHalfLifeMs: 500 },
    regions: [
      { id: 'jp', rttMs: 15, ...place },
      { id: 'sg', rttMs: 60, ...place },
    ],
  });
  const capacity = (40 * 8_000) / FLOOD_TOKENS;
  const suddenMs = 40_000;
  new Clients(
    world,
    {
      ...{ ...TURN, firstTokens: FLOOD_TOKENS, maxTurns: 1 },
      perS: (at) => (at < FIRST_REPORTS_MS ? 0 : capacity * (at < suddenMs ? 0.5 : 2)),
    },
    { name: 'jp', firstId: 0 },
  );
  const host = world.globals[0];
  let hotMs: number | null = null;
  let seenMs: number | null = null;
  for (let at = suddenMs; at < suddenMs + 20_000 && seenMs === null; at += 100) {
    world.run(at);
    const queue = world.region('jp').model.queueMs();
    if (hotMs === null && queue >= world.settings.spillStartMs) hotMs = at;
    const [jp] = host?.core.status(host.nowMs).regions ?? [];
    if (hotMs !== null && (jp?.pools[0]?.queueMs ?? 0) >= world.settings.spillStartMs) seenMs = at;
  }
  return hotMs === null || seenMs === null ? null : seenMs - hotMs;
}

export interface AffinityShape {
  readonly seed: number;
  readonly forMs: number;
  /** Both routers are replaced by new processes at this instant; null: neither is. */
  readonly restartMs: number | null;
}

/** Later turns, and those of them where the conversation was: two routers, and a region that spills. */
export function measureAffinity(shape: AffinityShape): {
  laterTurns: number;
  inPlace: number;
  spills: number;
} {
  const place = { zone: 'asia', routers: 2, tokensPerMs: 8, holdMs: 60, replicas: 12 };
  const world = new RegionsWorld({
    ...{ seed: shape.seed, globals: 2, lateMs: [0, 100] },
    settings: { spillIntervalMs: 5_000 },
    regions: [
      { id: 'jp', rttMs: 15, ...place },
      { id: 'sg', rttMs: 60, ...place },
    ],
  });
  const load: ClientLoad = {
    ...{ tenant: 't', firstTokens: 2_000, turnTokens: 300, answerTokens: 100 },
    ...{ goesOn: 0.9, thinkMs: 4_000, maxTurns: 8 },
    perS: (at) => (at < FIRST_REPORTS_MS ? 0 : 42),
  };
  const clients = new Clients(world, load, { name: 'c', firstId: 0 });
  if (shape.restartMs !== null) {
    world.run(shape.restartMs);
    for (const k of [0, 1]) world.restart(k);
  }
  world.run(FIRST_REPORTS_MS + shape.forMs);
  const { laterTurns, inPlace } = clients.figures;
  return { laterTurns, inPlace, spills: world.spills.length };
}

/** Sum of what shares grew by while the neighbour, a report ago, was that long. */
function growthAbove({ samples }: RegionsWorld, queueMs: number): number {
  let grown = 0;
  for (let k = 2; k < samples.length; k += 1) {
    const was = Math.min(...[k - 2, k - 1].map((at) => samples[at]?.queueMs['sg'] ?? 0));
    const before = samples[k - 1]?.shares['jp'] ?? [];
    const now = samples[k]?.shares['jp'] ?? [];
    if (was >= queueMs)
      grown += now.reduce((sum, share, g) => sum + Math.max(0, share - (before[g] ?? 0)), 0);
  }
  return grown;
}

function oneSidedRatio({ spills }: RegionsWorld): number {
  const seconds = Map.groupBy(spills, ({ atMs }) => Math.floor(atMs / 1_000));
  let busy = 0;
  let oneSided = 0;
  for (const all of seconds.values()) {
    if (all.length < 10) continue;
    busy += 1;
    const sg = all.filter(({ region }) => region === 'sg').length / all.length;
    if (Math.max(sg, 1 - sg) >= 0.9) oneSided += 1;
  }
  return busy === 0 ? 0 : oneSided / busy;
}

function turnsOf({ globals }: RegionsWorld, region: string): number {
  return mostOf(
    globals.map(({ core, nowMs }) => {
      const of = core.status(nowMs).regions.find((each) => each.region === region);
      return of?.pools[0]?.spill.turns ?? 0;
    }),
  );
}

function mostOf(figures: readonly number[] | undefined): number {
  return (figures ?? []).reduce((most, each) => Math.max(most, each), 0);
}
