// What a stream costs a router that has just begun, against how many it has served: how long a warm-up must be, and that nothing falls
// behind it. Paced streams are measured as in `streams-64`, each time between two blocks of nginx; in between the same
// streams with their chunks closer, until twice as many are served.

import { directArm, type ArmPlace } from './arms.ts';
import { JSON_16, STREAMS_64, WARM_STREAMS } from './cells.ts';
import { figuresOf, runGroup } from './compare.ts';
import type { Extra } from './extras.ts';
import { measureBlock } from './measure.ts';
import { NGINX } from './plain-arms.ts';
import type { Row } from './report.ts';
import { SPILLWAY_ARM } from './spillway-arms.ts';

const BLOCK_MS = 2_500;
const WARM_MS = 1_000;
const FIRST_SERVED = 1_000;
const LAST_SERVED = 32_000;

export async function costCurve(place: ArmPlace): Promise<Extra> {
  const nginx = await NGINX.start(place);
  const arm = await SPILLWAY_ARM.start(place);
  await measureBlock(nginx, JSON_16, WARM_MS);
  const rows: Row[] = [];
  let served = 0;
  for (let target = 0; target <= LAST_SERVED; target = Math.max(FIRST_SERVED, target * 2)) {
    while (served < target) served += (await measureBlock(arm, WARM_STREAMS, WARM_MS)).completed;
    const group = await runGroup(1, (turn) =>
      measureBlock(
        turn === 'direct' ? directArm(place) : turn === 'base' ? nginx : arm,
        STREAMS_64,
        BLOCK_MS,
      ),
    );
    const { cpuUsPerRequest, timesNginx, requests, wrong } = figuresOf([group], 0);
    const figures = { streamsServed: served, cpuUsPerRequest, timesNginx, wrong };
    rows.push({ cell: 'curve-64', arm: arm.name, ...figures });
    served += requests;
  }
  await Promise.all([nginx.stop(), arm.stop()]);
  return { lines: rows.map(lineOf), rows };
}

function lineOf(row: Row): string {
  const [served, cost, times] = [row['streamsServed'], row['cpuUsPerRequest'], row['timesNginx']];
  return `after ${String(served).padStart(6)} streams: ${Number(cost).toFixed(0).padStart(5)} µs, ${Number(times).toFixed(2)} × nginx`;
}
