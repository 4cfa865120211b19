// An engine with two data-parallel ranks is two targets: what the agent scrapes, probes and reports, and what the router
// chooses, are of one rank each, and every request says which.

import { afterEach, describe, expect, it } from 'vitest';
import type { EngineServerOptions, RunningEngine } from '../../sim/engine/http/server.ts';
import { KindRegion, prompt, replicaOf } from './kinds-region.ts';
import { until } from './until.ts';

let region: KindRegion | null = null;

afterEach(async () => {
  await region?.close();
  region = null;
});

/** Of the requests that the engine got: path and rank header, null without one. */
function ranksAsked(engine: RunningEngine, path: string): (string | null)[] {
  return engine
    .received()
    .filter((request) => request.path === path)
    .map(
      ({ headers }) => headers.find(([name]) => /^x-data-parallel-rank$/i.test(name))?.[1] ?? null,
    );
}

function targetsOf(of: KindRegion, engine: RunningEngine) {
  return of.pool().replicas.find(({ id }) => id === replicaOf(engine))?.targets ?? [];
}

const KINDS: readonly (readonly [string, Partial<EngineServerOptions>])[] = [
  ['vllm', {}],
  ['sglang', { kind: 'sglang', metrics: true, cacheReport: true }],
];

describe.each(KINDS)('two ranks of %s', (kind, options) => {
  it('are generated on, reported and routed to by number, and a conversation stays with its rank', async () => {
    const engine = { ...options, dataParallelSize: 2, received: 500 };
    region = await KindRegion.open({ agentKind: null, engine });
    const [one] = region.engines;
    if (one === undefined) throw new Error('no engine');
    await until(() => targetsOf(region!, one).every(({ phase }) => phase === 'ready'));
    const reports = targetsOf(region, one).map(({ report }) => report);
    expect(reports.map((report) => report?.rank)).toEqual([0, 1]);
    expect(reports.map((report) => report?.engine.kind)).toEqual([kind, kind]);
    const probed = ranksAsked(one, '/v1/completions');
    expect(probed).not.toEqual([]);
    expect(probed).not.toContain(null);

    const first = prompt('conversation', 2_000);
    const told = await region.streamed(first);
    expect(told.replica).toMatch(/#[01]$/);
    const [replica, rank] = (told.replica ?? '').split('#');
    const served = region.engines.find((each) => replicaOf(each) === replica);
    if (served === undefined) throw new Error('nobody served');
    await until(() => (targetsOf(region!, served)[Number(rank)]?.indexChunks ?? 0) > 0);
    const next = [
      ...first,
      { role: 'assistant' as const, content: told.text },
      { role: 'user' as const, content: 'and then?' },
    ];
    expect((await region.whole(next)).replica).toBe(told.replica);
    expect(ranksAsked(served, '/v1/chat/completions')).toEqual([rank, rank]);
  });

  it('take concurrent requests each', async () => {
    const engine = { ...options, dataParallelSize: 2, received: 500 };
    region = await KindRegion.open({ agentKind: null, engine });
    // A replica is ready with its first rank: the second may still be probed.
    const targets = () => region!.engines.flatMap((each) => targetsOf(region!, each));
    await until(() => targets().filter(({ phase }) => phase === 'ready').length === 4);
    const names = Array.from({ length: 12 }, (_, i) => `request ${i}`);
    const answers = await Promise.all(names.map((name) => region!.whole(prompt(name, 1_000))));
    const used = new Set(answers.map(({ replica }) => replica));
    expect(used.size).toBe(4);
    for (const each of region.engines) {
      const asked = ranksAsked(each, '/v1/chat/completions');
      expect(new Set(asked)).toEqual(new Set(['0', '1']));
    }
  });
});
