// What Spillway's routers said of themselves during a load, `/status` of every second, for whoever asks later why a
// turn waited. A line each: `{"atMs": since the load began, "status": …}`.

import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { delay } from '../../test/engines/wait.ts';

const EVERY_MS = 1_000;

/** Begins at once; ends with the function that it gives. */
export function watchStatus(admins: readonly string[], folder: string): () => Promise<void> {
  const startMs = performance.now();
  let on = true;
  const watches = admins.map(async (admin, index) => {
    const path = join(folder, `status-${index}.jsonl`);
    while (on) {
      const atMs = Math.round(performance.now() - startMs);
      const status = await statusOf(admin);
      if (status !== null) appendFileSync(path, `${JSON.stringify({ atMs, status })}\n`);
      await delay(EVERY_MS);
    }
  });
  return async () => {
    on = false;
    await Promise.all(watches);
  };
}

/** Null where it does not answer. */
async function statusOf(admin: string): Promise<unknown> {
  try {
    const answer = await fetch(`${admin}/status`, { signal: AbortSignal.timeout(2_000) });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}
