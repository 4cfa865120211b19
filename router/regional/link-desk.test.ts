import { describe, expect, test } from 'vitest';
import { hello } from '../../shared/runtime/link-fakes.ts';
import { linkRules, messagesPerS, siblingsAt } from './link-desk.ts';
import type { PoolOptions } from './options.ts';

const pool = (
  id: string,
  { agentSecrets = [], agentNames = [] }: Partial<PoolOptions> = {},
): PoolOptions => ({
  id,
  models: [],
  aliases: {},
  engineApiKey: null,
  agentSecrets,
  agentNames,
  engineTls: null,
  engineCidrs: [],
  enginePriority: false,
  cacheSalt: null,
});

const secrets = (regional: string[], pools: PoolOptions[]) =>
  linkRules(pools, { secrets: regional, clientAuth: 'none' }).credentials;
const certificates = (
  pools: PoolOptions[],
  regional: Partial<Parameters<typeof linkRules>[1]> = {},
) => linkRules(pools, { secrets: [], clientAuth: 'required', ...regional }).certificates;

describe('link secrets', () => {
  test("the region's speak for any pool while no pool has its own", () => {
    expect(secrets(['r'], [pool('a')])).toEqual([{ secret: 'r', speaksFor: null }]);
  });

  test("a pool's own speak for it alone, and the region's no longer for it", () => {
    expect(secrets(['r'], [pool('a', { agentSecrets: ['x', 'y'] }), pool('b')])).toEqual([
      { secret: 'r', speaksFor: ['b'] },
      { secret: 'x', speaksFor: ['a'] },
      { secret: 'y', speaksFor: ['a'] },
    ]);
  });

  test('none at all means that none is asked for', () => {
    expect(secrets([], [pool('a')])).toEqual([]);
  });
});

describe('certificates of agents', () => {
  test('speak for any pool while none names its agents', () => {
    expect(certificates([pool('a')])).toEqual([{ names: null, speaksFor: null }]);
  });

  test('speak for a pool with names only where they bear one, and for one with its own secrets not at all', () => {
    const pools = [
      pool('a', { agentNames: ['*.a.internal'] }),
      pool('b', { agentSecrets: ['x'] }),
      pool('c'),
    ];
    expect(certificates(pools)).toEqual([
      { names: null, speaksFor: ['c'] },
      { names: ['*.a.internal'], speaksFor: ['a'] },
    ]);
  });

  test('are asked for beside secrets where they are required, and stand in for them where they are not', () => {
    expect(certificates([pool('a')], { secrets: ['r'] })).toEqual([]);
    expect(certificates([pool('a')], { secrets: ['r'], clientAuth: 'optional' })).toEqual([
      { names: null, speaksFor: null },
    ]);
  });
});

describe('the workers of a router, as an agent reaches them', () => {
  test('are where it found this one, by their ports', () => {
    expect(siblingsAt('ws://routers.internal:8081', [8081, 8091])).toEqual([
      'ws://routers.internal:8081',
      'ws://routers.internal:8091',
    ]);
    expect(siblingsAt('wss://[fd00::1]', [8443])).toEqual(['wss://[fd00::1]:8443']);
  });

  test('are none where it is one process, or where the agent did not say', () => {
    expect(siblingsAt('ws://routers.internal:8081', [])).toEqual([]);
    expect(siblingsAt(null, [8081])).toEqual([]);
  });
});

test('an agent may say twice what its targets have to say in an interval, and never so little that noise would count', () => {
  const of = (ranks: number) => ({
    ...hello(),
    engines: hello().engines.map((engine) => ({ ...engine, ranks })),
  });
  expect(messagesPerS(of(1), 1_000)).toBe(200);
  expect(messagesPerS(of(64), 50)).toBe(64 * 20 * 2 * (1 + 16));
});
