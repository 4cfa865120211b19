import { describe, expect, test } from 'vitest';
import type { ConfigView } from '../../shared/config/state.ts';
import { UPLINK_DEFAULTS } from '../../shared/model/global-settings.ts';
import type { RegionId } from '../../shared/model/ids.ts';
import { CoreRig } from './core.harness.ts';
import { readinessText } from '../gateway/readiness.ts';
import { readinessOf, statusText } from './status.ts';

function textWith(config: Partial<ConfigView> | null): string {
  const rig = new CoreRig();
  const unknown = { waitingPrefillMs: null, waitingPrefillTokens: null };
  rig.ready('a', { kvUsageRatio: null, prefillTps: null, running: 3, ...unknown });
  const view = { generation: 4, lastReloadOk: true, lastError: null, restartFields: [], ...config };
  return statusText({
    router: { id: 'r', region: 'fra', software: 'spillway/1', upForS: 7 },
    ready: true,
    config: config === null ? null : view,
    bodyBytes: 0,
    connections: {},
    linkTotals: null,
    ...rig.core.status(rig.nowMs),
  });
}

describe('the status for people', () => {
  test('says nothing of a configuration that is in order', () => {
    expect(textWith(null)).toBe(textWith({}));
    expect(textWith({})).not.toContain('configuration');
  });

  test('says which generation stays, and every problem of the one that was refused', () => {
    const text = textWith({ lastReloadOk: false, lastError: 'f.yaml:1:1: x\nf.yaml:2:1: y' });
    expect(text).toContain(
      'configuration refused, generation 4 stays:\n  f.yaml:1:1: x\n  f.yaml:2:1: y\n',
    );
  });

  test('names the fields that wait for a restart', () => {
    const text = textWith({ restartFields: ['region', 'router.links.listen'] });
    expect(text).toContain('these fields wait for a restart: region, router.links.listen\n');
  });

  test('says how many global routers it reports to, where it is to report at all', () => {
    const settings = UPLINK_DEFAULTS;
    const rig = new CoreRig({ uplink: { region: 'fra' as RegionId, settings } });
    const status = rig.core.status(rig.nowMs);
    const textOf = (global: typeof status.global): string =>
      statusText({
        router: { id: 'r', region: 'fra', software: 'spillway/1', upForS: 7 },
        ...{ ready: true, config: null, bodyBytes: 0, connections: {}, linkTotals: null },
        ...{ ...status, global },
      });
    expect(textOf(status.global)).toContain('\nreports to no global routers\n');
    expect(textOf({ links: 2, away: 31 })).toContain(
      '\nreports to 2 global routers; 31 conversations live here from afar\n',
    );
    expect(textOf(null)).not.toContain('global');
  });

  test('says why requests wait before idle replicas, and what a wait is predicted for', () => {
    const rig = new CoreRig();
    rig.ready('a', { kvUsageRatio: 0, workingSetTokens: 8_179, kvCapacityTokens: 8_192 });
    const status = rig.core.status(rig.nowMs);
    const [pool] = status.pools;
    if (pool === undefined) throw new Error('no pool');
    const queue = { ...pool.queue, requests: 20, oldestMs: 10_414, predictedWaitMs: 419 };
    const textOf = (held: number): string =>
      statusText({
        router: { id: 'r', region: 'fra', software: 'spillway/1', upForS: 7 },
        ...{ ready: true, config: null, bodyBytes: 0, connections: {}, linkTotals: null },
        ...status,
        pools: [{ ...pool, queue, workingSet: { boundRatio: 0.9, held, aged: 0, hitRatio: 0.94 } }],
      });
    expect(textOf(18)).toContain('one that needs no KV room would wait 419 ms)');
    expect(textOf(18)).toContain(
      '\n  18 of them wait for KV room, live conversations fill it (bound 90 % of each cache; turns find 94 % of theirs)\n',
    );
    expect(textOf(18)).toContain('KV 0 %, live 100 %,');
    expect(textOf(0)).toContain('the oldest for 10414 ms; a new one would wait 419 ms)\n  a ');
  });

  test('shows an unknown figure as unknown', () => {
    expect(textWith(null)).toMatch(
      /a +ready: 0 ours, running 3 of \?, waiting \? ms, KV \?, \? tokens\/s/,
    );
  });
});

describe('a replica that is dead, or of which nobody tells', () => {
  const figures = { kvUsageRatio: 0.01, prefillTps: 900, running: 0, runningMax: 8 };
  const lineOf = (rig: CoreRig): string =>
    statusText({
      router: { id: 'r', region: 'fra', software: 'spillway/1', upForS: 7 },
      ...{ ready: true, config: null, bodyBytes: 0, connections: {}, linkTotals: null },
      ...rig.core.status(rig.nowMs),
    });

  test('has no figures that are known, whatever it told last', () => {
    const rig = new CoreRig();
    rig.ready('a', figures);
    expect(lineOf(rig)).toContain('running 0 of 8, waiting 0 ms, KV 1 %, 900 tokens/s');
    rig.report('a', { phase: 'dead', ...figures });
    expect(lineOf(rig)).toMatch(/ dead: 0 ours, running \? of \?, waiting \? ms, KV \?, \? tokens/);
  });

  test('is shown so once its reports have stopped for good', () => {
    const rig = new CoreRig();
    for (const name of ['a', 'b', 'c']) rig.ready(name, figures);
    rig.unlink('a');
    for (let k = 0; k < 40; k += 1) {
      rig.pass(1_000);
      for (const name of ['b', 'c']) rig.report(name, figures);
    }
    expect(lineOf(rig)).toMatch(/, out: 0 ours, running \? of \?, waiting \? ms, KV \?/);
  });
});

describe('readiness', () => {
  test('is a live report of a ready replica, and no leaving', () => {
    const rig = new CoreRig();
    const now = () => rig.core.status(rig.nowMs);
    expect(readinessOf(now(), false).ready).toBe(false);
    rig.link('a');
    rig.report('a', { phase: 'loading' });
    expect(readinessOf(now(), false).ready).toBe(false);
    rig.report('a');
    expect(readinessOf(now(), false).ready).toBe(true);
    expect(readinessText(readinessOf(now(), true))).toContain('[-] accepting: draining');
  });
});
