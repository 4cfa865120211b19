// V8 collects garbage and compiles on a thread beside the main one. Where both share a core, marking takes half of it for a
// tenth of a second at a time, and each turn of the event loop waits for its share. A little lower, that thread takes what the
// main one leaves, and a quarter of the core where that leaves nothing: code is compiled still.
//
// Linux alone names threads and gives each a priority; elsewhere, and where it is not allowed, nothing changes.

import { readdirSync, readFileSync } from 'node:fs';
import { setPriority } from 'node:os';

/** Of 20 steps below the main thread's. */
const BELOW_MAIN = 5;
const THREADS = '/proc/self/task';
const COLLECTOR = /^V8Worker/;

/** Returns how many threads go behind the main one now. */
export function putCollectorsBehind(): number {
  let behind = 0;
  try {
    for (const thread of readdirSync(THREADS)) {
      if (!COLLECTOR.test(readFileSync(`${THREADS}/${thread}/comm`, 'utf8'))) continue;
      setPriority(Number(thread), BELOW_MAIN);
      behind += 1;
    }
  } catch {
    // No such files, or it may not: the threads are as they were.
  }
  return behind;
}
