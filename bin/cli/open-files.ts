// Whether the system lets this process have as many connections as its limits promise: where it has no file left, a
// connection is closed before anything could count it.
//
//   wanted = 2 · open requests: a client's and an engine's connection each. What else there is (idle connections, links,
//            files) is little beside it

import { readFileSync } from 'node:fs';
import type { Logger } from '../../shared/runtime/log.ts';

/** One line where they are too few. `openRequests`: of one process. */
export function warnOfFewFiles(log: Logger, openRequests: number, read = ownLimits): void {
  const most = /^Max open files +(\d+)/m.exec(read())?.[1];
  const wanted = 2 * openRequests;
  if (most === undefined || Number(most) >= wanted) return;
  log.warn({ most: Number(most), wanted }, 'few_open_files');
}

/** As Linux tells them; nothing elsewhere. Node has raised its own to the greatest allowed. */
function ownLimits(): string {
  try {
    return readFileSync('/proc/self/limits', 'utf8');
  } catch {
    // Not Linux: nothing is known of it.
    return '';
  }
}
