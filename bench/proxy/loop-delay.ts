// Loaded before a router (`node --import`): measures the delay of its event loop, and on SIGUSR2 writes what it saw since
// the last time to the file that LOOP_DELAY_FILE names.

import { writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

const RESOLUTION_MS = 1;
const NS_PER_MS = 1e6;

const path = process.env['LOOP_DELAY_FILE'];
if (path !== undefined) {
  const seen = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  seen.enable();
  process.on('SIGUSR2', () => {
    // The histogram holds the time from tick to tick, of which the resolution is none of the loop's.
    const ms = (ns: number): number => Math.max(0, ns / NS_PER_MS - RESOLUTION_MS);
    const delay = {
      p50: ms(seen.percentile(50)),
      p999: ms(seen.percentile(99.9)),
      max: ms(seen.max),
    };
    writeFileSync(path, JSON.stringify(delay));
    seen.reset();
  });
}
