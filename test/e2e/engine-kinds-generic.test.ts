// A server with OpenAI's API and nothing else that an agent could read.

import { expect, test } from 'vitest';
import { checkKind, withRegion, type KindCase } from './kinds-checks.ts';
import { PROFILE, prompt } from './kinds-region.ts';
import { startPlainProxy } from './plain-proxy.ts';
import { until } from './until.ts';

const GENERIC: KindCase = {
  kind: 'generic',
  agentKind: 'generic',
  engine: { vllm: { termEnding: 'abort' } },
  narrow: { profile: { ...PROFILE, maxQueuedRequests: 4 } },
  narrowFull: 4,
  onTerm: 'breaks',
  unknown: [
    ...(['kvUsageRatio', 'kvCapacityTokens', 'preemptionsTotal', 'preemptionsPerMin'] as const),
    'blockTokens',
  ],
  absent: [
    'running',
    'waiting',
    'kvUsageRatio',
    'kvCapacityTokens',
    'computedTokensTotal',
    'cachedTokensTotal',
    'generationTokensTotal',
    'preemptionsTotal',
    'firstTokensTotal',
    'itlCount',
  ],
  known: [],
};

checkKind(GENERIC);

test('a server that tells nothing is found out to be one, said so, and served', async () => {
  const proxies: Awaited<ReturnType<typeof startPlainProxy>>[] = [];
  try {
    await withRegion(GENERIC, async (region) => {
      const proxy = await startPlainProxy(region.engines[0]?.url ?? '');
      proxies.push(proxy);
      await region.addAgent(proxy.url, null);
      const replica = new URL(proxy.url).host;
      const target = () => region.pool().replicas.find(({ id }) => id === replica)?.targets[0];
      await until(() => target()?.phase === 'ready');
      expect(target()?.report?.engine.kind).toBe('generic');
      expect(proxy.refused).toContain('/metrics');
      expect(region.lines.filter(({ msg }) => msg === 'engine_generic')).toHaveLength(3);
      let asked = 0;
      await until(async () => {
        asked += 1;
        const told = await region.streamed(prompt(`through ${asked}`));
        expect(told.finish).toBe('length');
        return told.replica === replica;
      });
    });
  } finally {
    await Promise.all(proxies.map((proxy) => proxy.close()));
  }
});
