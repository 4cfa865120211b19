import { describe, expect, test } from 'vitest';
import { linkCredentials } from './link-desk.ts';
import type { PoolOptions } from './options.ts';

const pool = (id: string, agentSecrets: string[] = []): PoolOptions => ({
  id,
  models: [],
  aliases: {},
  engineApiKey: null,
  agentSecrets,
  engineCidrs: [],
  enginePriority: false,
  cacheSalt: null,
});

describe('link secrets', () => {
  test("the region's speak for any pool while no pool has its own", () => {
    expect(linkCredentials(['r'], [pool('a')])).toEqual([{ secret: 'r', pools: null }]);
  });

  test("a pool's own speak for it alone, and the region's no longer for it", () => {
    expect(linkCredentials(['r'], [pool('a', ['x', 'y']), pool('b')])).toEqual([
      { secret: 'r', pools: ['b'] },
      { secret: 'x', pools: ['a'] },
      { secret: 'y', pools: ['a'] },
    ]);
  });

  test('none at all means that none is asked for', () => {
    expect(linkCredentials([], [pool('a')])).toEqual([]);
  });
});
