// Waits until the demo's router says that it can serve.

import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { pause } from '../cli/process.ts';
import { UsageError } from '../cli/usage-error.ts';

const POLL_MS = 100;
const PATIENCE_MS = 60_000;

export async function waitUntilReady(base: string, { clock }: RoleRuntime): Promise<void> {
  const startMs = clock.nowMs();
  while (clock.nowMs() - startMs < PATIENCE_MS) {
    if (await isReady(base)) return;
    await pause(POLL_MS);
  }
  throw new UsageError(`nothing became ready within ${PATIENCE_MS / 1_000} s; see ${base}/status`);
}

/** One model listed and a replica that may be sent to. */
async function isReady(base: string): Promise<boolean> {
  try {
    const response = await fetch(`${base}/readyz`, { signal: AbortSignal.timeout(2_000) });
    await response.body?.cancel();
    return response.status === 200;
  } catch {
    return false;
  }
}
