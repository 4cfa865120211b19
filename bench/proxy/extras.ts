// What no ratio tells: memory of idle streams, what megabyte bodies do to everybody else's chunks, writes to clients, and
// memory over very many distinct prompts.

import { delay, waitFor } from '../../test/engines/wait.ts';
import type { Arm, ArmPlace, RunningArm } from './arms.ts';
import { BODIES_1M, IDLE_1000, PROMPTS_100K, STREAMS_64 } from './cells.ts';
import { Load, type LoadShape } from './load.ts';
import { measureBlock } from './measure.ts';
import { probed, type Probe } from './probed.ts';
import { rssMiB } from './process-cost.ts';
import type { Row } from './report.ts';
import { slopeOf, type Sample } from './slope.ts';
import { WARM_UP, warmUp } from './warm-up.ts';

export interface Extra {
  readonly lines: readonly string[];
  readonly rows: readonly Row[];
}

const BYTES_PER_MIB = 1_048_576;
const KIB_PER_MIB = 1_024;
const WHOLE = 'spillway';
const PROMPTS = 20_000;
const SAMPLES = 10;
const INDEX_MIB = 32;
/** Writes of the backend in one stream: its chunks, and the end with the last event. */
const UPSTREAM_CHUNKS = (STREAMS_64.chunks ?? 0) + 1;
const LOOK_MS = 10_000;
const WARM_SHAPE_MS = 3_000;

/** 1,000 streams that have said something and now wait: resident memory before and while. */
export async function idleStreams(place: ArmPlace, arms: readonly Arm[]): Promise<Extra> {
  const rows: Row[] = [];
  const lines: string[] = [];
  for (const kind of arms) {
    const arm = await kind.start(place);
    const idle = residentMiB(arm);
    const load = new Load(arm.url, IDLE_1000);
    load.start();
    await delay(8_000);
    const busy = residentMiB(arm);
    const { open } = load;
    load.cut();
    await arm.stop();
    const perStream = ((busy - idle) * KIB_PER_MIB) / IDLE_1000.concurrency;
    lines.push(
      `${arm.name.padEnd(26)} ${idle.toFixed(0)} MiB idle, ${busy.toFixed(0)} MiB with them: ${perStream.toFixed(1)} KiB a stream`,
    );
    rows.push({
      ...{ cell: 'idle-1000', arm: arm.name, rssMiB: busy, rssMiBIdle: idle },
      ...{ rssKiBPerStream: perStream, streams: open, wrong: IDLE_1000.concurrency - open },
    });
  }
  return { lines, rows };
}

/** 64 paced streams, then the same beside megabyte bodies: the router's own event-loop delay. */
export async function largeBodies(place: ArmPlace): Promise<Extra> {
  const { arm, look } = await probed(place);
  await warm(arm, BODIES_1M);
  const streams = new Load(arm.url, STREAMS_64);
  streams.start();
  const quiet = await lookOver(look);
  const bodies = new Load(arm.url, BODIES_1M);
  bodies.start();
  const busy = await lookOver(look, () => bodies.take());
  const seen = bodies.take();
  await Promise.all([streams.stop(), bodies.stop()]);
  await arm.stop();
  const rate = (seen.completed * 1_000) / LOOK_MS;
  const wrong = seen.wrong + streams.take().wrong;
  return {
    lines: [
      `event loop, 64 streams: p99.9 ${quiet.loopMsP999.toFixed(1)} ms, max ${quiet.loopMsMax.toFixed(1)} ms`,
      `and ${rate.toFixed(1)} bodies of 1 MB a second: p99.9 ${busy.loopMsP999.toFixed(1)} ms, max ${busy.loopMsMax.toFixed(1)} ms`,
    ],
    rows: [
      {
        ...{ cell: 'bodies-1m', arm: WHOLE, loopDelayMsP999: busy.loopMsP999 },
        ...{ loopDelayMsMax: busy.loopMsMax, loopDelayMsP999Before: quiet.loopMsP999 },
        ...{ bodiesPerS: rate, wrong },
      },
    ],
  };
}

/** How many writes to its clients' sockets the router makes of what the engines wrote. */
export async function writesOfStreams(place: ArmPlace): Promise<Extra> {
  const { arm, look } = await probed(place);
  await warm(arm, STREAMS_64);
  const streams = new Load(arm.url, STREAMS_64);
  const { clientWrites: before } = await look();
  streams.start();
  await delay(LOOK_MS);
  await streams.stop();
  const { clientWrites } = await look();
  const { completed, wrong } = streams.take();
  await arm.stop();
  const perChunk = clientWrites / Math.max(1, completed * UPSTREAM_CHUNKS);
  return {
    lines: [
      `${completed} streams of ${UPSTREAM_CHUNKS} writes of the engine each: ${clientWrites} writes to clients, ${perChunk.toFixed(3)} a chunk (${before} while it was warmed)`,
    ],
    rows: [
      {
        ...{ cell: 'writes-64', arm: WHOLE, writesPerUpstreamChunk: perChunk },
        ...{ writesPerRequest: clientWrites / Math.max(1, completed), requests: completed, wrong },
      },
    ],
  };
}

/**
 * Distinct prompts of 100 KB with a small index: what is remembered must not grow for ever. Memory is looked at with
 * nothing open and after forced collections, at equal steps through the second half.
 */
export async function memoryOfPrompts(
  place: ArmPlace,
  arms: readonly Arm[],
  say: (line: string) => void,
): Promise<Extra> {
  const flags = ['--set', `router.routing.prefixIndexBytes=${INDEX_MIB * BYTES_PER_MIB}`];
  const { arm, look } = await probed(place, { collect: true, flags });
  const ours = await grown(arm, look);
  const rows = [growthRow(WHOLE, ours)];
  const lines = [growthLine(WHOLE, ours)];
  for (const kind of arms) {
    say(`  ${kind.name} …`);
    const other = await kind.start(place);
    const seen = await grown(other, async () => {
      await delay(1_000);
      return { rss: residentMiB(other) * BYTES_PER_MIB, liveBytes: Number.NaN };
    });
    rows.push(growthRow(kind.name, seen));
    lines.push(growthLine(kind.name, seen));
  }
  return { lines, rows };
}

interface Grown {
  /** Resident memory at the half, and at each step from there; bytes. */
  readonly rss: readonly Sample[];
  readonly live: readonly Sample[];
  readonly wrong: number;
}

type MemoryLook = () => Promise<Pick<Probe, 'rss' | 'liveBytes'>>;

async function grown(arm: RunningArm, look: MemoryLook): Promise<Grown> {
  const rss: Sample[] = [];
  const live: Sample[] = [];
  let at = 0;
  let wrong = 0;
  for (let sample = 0; sample <= SAMPLES; sample += 1) {
    const seen = await send(arm, sample === 0 ? PROMPTS / 2 : PROMPTS / 2 / SAMPLES);
    at += seen.completed;
    wrong += seen.wrong;
    const memory = await look();
    rss.push({ at, value: memory.rss });
    live.push({ at, value: memory.liveBytes });
  }
  await arm.stop();
  return { rss, live, wrong };
}

/** At least `count` prompts; returns when the last one's answer is there. */
async function send(arm: RunningArm, count: number): Promise<{ completed: number; wrong: number }> {
  const load = new Load(arm.url, PROMPTS_100K);
  load.start();
  let completed = 0;
  let wrong = 0;
  const take = (): void => {
    const seen = load.take();
    completed += seen.completed;
    wrong += seen.wrong;
  };
  await waitFor({ what: `${count} prompts`, limitMs: 600_000, everyMs: 20 }, () => {
    take();
    return completed >= count ? true : null;
  });
  await load.stop();
  take();
  return { completed, wrong };
}

function growthRow(arm: string, { rss, live, wrong }: Grown): Row {
  const slope = slopeOf(rss);
  const liveSlope = slopeOf(live)?.slope ?? Number.NaN;
  return {
    ...{ cell: 'memory-100k', arm, wrong, rssMiB: (rss.at(-1)?.value ?? 0) / BYTES_PER_MIB },
    rssMiBHalf: (rss[0]?.value ?? 0) / BYTES_PER_MIB,
    ...(slope === null
      ? {}
      : {
          growthBytesPerRequest: slope.slope,
          growthBytesPerRequestLow: slope.low,
          growthBytesPerRequestHigh: slope.high,
        }),
    ...(Number.isFinite(liveSlope) ? { liveGrowthBytesPerRequest: liveSlope } : {}),
  };
}

function growthLine(arm: string, seen: Grown): string {
  const row = growthRow(arm, seen);
  const number = (name: string): string => Number(row[name]).toFixed(0);
  const live =
    row['liveGrowthBytesPerRequest'] === undefined
      ? ''
      : `; live bytes ${number('liveGrowthBytesPerRequest')}`;
  return `${arm.padEnd(26)} ${number('rssMiBHalf')} MiB after ${PROMPTS / 2} prompts, ${number('rssMiB')} after ${PROMPTS}: ${number('growthBytesPerRequest')} B a request (${number('growthBytesPerRequestLow')} to ${number('growthBytesPerRequestHigh')})${live}`;
}

/** As other arms are, and then for what is looked at. */
async function warm(arm: RunningArm, shape: LoadShape): Promise<void> {
  await warmUp(arm, WARM_UP);
  await measureBlock(arm, shape, WARM_SHAPE_MS);
}

/** What the probe sees over the length of a look. */
async function lookOver(look: () => Promise<Probe>, begin?: () => void): Promise<Probe> {
  await delay(1_500);
  await look();
  begin?.();
  await delay(LOOK_MS);
  return look();
}

function residentMiB({ group }: RunningArm): number {
  return group === null ? 0 : rssMiB(group.pid);
}
