// The region of a test file: opened before its tests, closed behind them.

import { afterAll, beforeAll } from 'vitest';
import { ClientRegion } from './region.ts';

/** To be called at the top of a test file. `needed` false: there is none, and all tests skip themselves. */
export function openRegion(needed = true): () => ClientRegion {
  let region: ClientRegion | null = null;
  beforeAll(async () => {
    if (needed) region = await ClientRegion.open();
  }, 90_000);
  afterAll(() => region?.close());
  return () => {
    if (region === null) throw new Error('no region');
    return region;
  };
}
