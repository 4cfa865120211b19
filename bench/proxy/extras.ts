// What no ratio tells: memory of idle streams, what megabyte bodies do to everybody else's chunks, and memory over very
// many distinct prompts.

import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { delay, waitFor } from '../../test/engines/wait.ts';
import { FORWARD, NGINX, spillway, SPILLWAY_ARM, type ArmPlace, type RunningArm } from './arms.ts';
import { BODIES_1M, IDLE_1000, PROMPTS_100K, STREAMS_64 } from './cells.ts';
import { Load } from './load.ts';
import { rssMiB } from './measure.ts';

export interface Extra {
  readonly lines: readonly string[];
  readonly rows: readonly ({ readonly arm: string } & Record<string, string | number>)[];
  readonly missed: readonly string[];
}

const KIB_PER_MIB = 1_024;
const LOOP_AIM_MS = 10;
const PROMPTS = 20_000;
const INDEX_MIB = 32;
const GROWTH_AIM_BYTES = 64;

/** 1,000 streams that have said something and now wait. */
export async function idleStreams(place: ArmPlace): Promise<Extra> {
  const rows = [];
  const lines = [];
  for (const kind of [NGINX, FORWARD, SPILLWAY_ARM]) {
    const arm = await kind.start(place);
    const load = new Load(arm.url, IDLE_1000);
    const before = rssMiB(arm);
    load.start();
    await delay(8_000);
    const perStream = ((rssMiB(arm) - before) * KIB_PER_MIB) / IDLE_1000.concurrency;
    load.cut();
    await arm.stop();
    lines.push(
      `${arm.name.padEnd(18)} ${before.toFixed(0)} MiB idle, ${perStream.toFixed(1)} KiB a stream`,
    );
    rows.push({ arm: arm.name, rssMiB: before, rssKiBPerStream: perStream });
  }
  return { lines, rows, missed: [] };
}

/** 64 paced streams, then the same beside megabyte bodies: the router's own event-loop delay. */
export async function largeBodies(place: ArmPlace): Promise<Extra> {
  const path = join(place.folder, 'loop-delay.json');
  const preload = join(import.meta.dirname, 'loop-delay.ts');
  const env = { LOOP_DELAY_FILE: path, NODE_OPTIONS: `--import=${preload}` };
  const arm = await spillway('spillway', place, [], env);
  const streams = new Load(arm.url, STREAMS_64);
  streams.start();
  await delay(5_000);
  await loopDelay(arm, path);
  await delay(5_000);
  const quiet = await loopDelay(arm, path);
  const bodies = new Load(arm.url, BODIES_1M);
  bodies.start();
  await delay(1_000);
  await loopDelay(arm, path);
  await delay(10_000);
  const busy = await loopDelay(arm, path);
  const seen = bodies.take();
  await Promise.all([streams.stop(), bodies.stop()]);
  await arm.stop();
  const rate = seen.completed / 11;
  return {
    lines: [
      `event loop, 64 streams: p99.9 ${quiet.p999.toFixed(1)} ms, max ${quiet.max.toFixed(1)} ms`,
      `and ${rate.toFixed(1)} bodies of 1 MB a second: p99.9 ${busy.p999.toFixed(1)} ms, max ${busy.max.toFixed(1)} ms (aim ${LOOP_AIM_MS} ms)`,
    ],
    rows: [
      { arm: 'spillway', loopDelayMsP999: busy.p999, loopDelayMsMax: busy.max, bodiesPerS: rate },
    ],
    missed:
      busy.p999 <= LOOP_AIM_MS ? [] : [`p99.9 of the event loop is ${busy.p999.toFixed(1)} ms`],
  };
}

/** Distinct prompts of 100 KB with a small index: what is remembered must not grow for ever. */
export async function memoryOfPrompts(place: ArmPlace): Promise<Extra> {
  const settings = ['--set', `router.routing.prefixIndexBytes=${INDEX_MIB}MiB`];
  const arm = await spillway('spillway', place, settings);
  const load = new Load(arm.url, PROMPTS_100K);
  load.start();
  let done = 0;
  const until = async (count: number): Promise<number> => {
    await waitFor({ what: `${count} prompts`, limitMs: 600_000, everyMs: 50 }, () => {
      done += load.take().completed;
      return done >= count ? true : null;
    });
    return rssMiB(arm);
  };
  const half = await until(PROMPTS / 2);
  const whole = await until(PROMPTS);
  await load.stop();
  await arm.stop();
  const bytes = ((whole - half) * KIB_PER_MIB * KIB_PER_MIB) / (PROMPTS / 2);
  return {
    lines: [
      `${PROMPTS} distinct prompts of 100 KiB, index ${INDEX_MIB} MiB: ${half.toFixed(0)} → ${whole.toFixed(0)} MiB, ${bytes.toFixed(0)} B a request (aim < ${GROWTH_AIM_BYTES})`,
    ],
    rows: [{ arm: 'spillway', rssMiB: whole, growthBytesPerRequest: bytes }],
    missed: bytes < GROWTH_AIM_BYTES ? [] : [`memory grows by ${bytes.toFixed(0)} B a request`],
  };
}

interface LoopDelay {
  readonly p50: number;
  readonly p999: number;
  readonly max: number;
}

async function loopDelay(arm: RunningArm, path: string): Promise<LoopDelay> {
  rmSync(path, { force: true });
  arm.group?.signal('SIGUSR2');
  return waitFor({ what: 'the event-loop delay', limitMs: 5_000, everyMs: 20 }, () => {
    if (!existsSync(path)) return null;
    try {
      return JSON.parse(readFileSync(path, 'utf8')) as LoopDelay;
    } catch {
      return null;
    }
  });
}
