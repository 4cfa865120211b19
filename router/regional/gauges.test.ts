import { expect, test } from 'vitest';
import { createMetrics } from '../../shared/runtime/metrics.ts';
import { attemptIn, CoreRig } from './core.harness.ts';
import { setGauges } from './gauges.ts';
import { METRICS, METRICS_PREFIX, type MetricName } from './metrics.ts';

async function exposition(rig: CoreRig): Promise<string> {
  const metrics = createMetrics<MetricName>(METRICS_PREFIX, METRICS);
  setGauges(metrics, {
    router: { id: 'r', region: 'x', software: 's', upForS: 1 },
    ready: true,
    config: null,
    bodyBytes: 0,
    connections: {},
    linkTotals: null,
    ...rig.core.status(rig.nowMs),
  });
  return metrics.text();
}
const of = (name: string, replica: string) =>
  `${METRICS_PREFIX}${name}{pool="pool",replica="${replica}",rank="0"`;

test('what is unknown has no row, and what is zero has one', async () => {
  const rig = new CoreRig();
  rig.ready('a', { kvUsageRatio: null, prefillTps: null, waitingPrefillTokens: 0 });
  const text = await exposition(rig);
  expect(text).toContain(`${of('replica_waiting_prefill_tokens', 'a')}} 0`);
  expect(text).toContain(`${of('replica_phase', 'a')},phase="ready"} 1`);
  expect(text).not.toContain(of('replica_kv_usage_ratio', 'a'));
  expect(text).not.toContain(of('replica_prefill_tokens_per_second', 'a'));
});

test('a replica that is out shows the age of its last report and none of its figures', async () => {
  const rig = new CoreRig();
  for (const name of ['a', 'b', 'c']) rig.ready(name);
  rig.unlink('a');
  for (let k = 0; k < 40; k += 1) {
    rig.pass(1_000);
    for (const name of ['b', 'c']) rig.report(name);
  }
  const text = await exposition(rig);
  expect(text).toContain(`${of('report_age_seconds', 'a')}} 40`);
  for (const name of ['replica_phase', 'replica_prefill_tokens_per_second']) {
    expect(text).not.toContain(of(name, 'a'));
    expect(text).toContain(of(name, 'b'));
  }
});

test('a replica that is dead shows that it is, and none of its last figures', async () => {
  const rig = new CoreRig();
  rig.ready('a', { kvUsageRatio: 0.01 });
  rig.report('a', { phase: 'dead', kvUsageRatio: 0.01 });
  const text = await exposition(rig);
  expect(text).toContain(`${of('replica_phase', 'a')},phase="dead"} 1`);
  expect(text).not.toContain(of('replica_kv_usage_ratio', 'a'));
});

test('shows how the pool shares its work, and forgets a replica that said goodbye', async () => {
  const rig = new CoreRig();
  rig.ready('a');
  rig.ready('b');
  for (let k = 0; k < 10; k += 1) rig.end(attemptIn(rig.arrive()).lease);
  const text = await exposition(rig);
  const counts = [...text.matchAll(/replica_attempts_total\{.*\} (\d+)/g)].map(([, n]) =>
    Number(n),
  );
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(10);
  rig.handle({
    kind: 'message',
    link: 'a' as never,
    message: { kind: 'bye', replica: 'a' as never, reason: 'drained' },
  });
  expect(await exposition(rig)).not.toContain('replica="a"');
});

test('shows what waits: requests, seconds of prefill, the oldest, and what a new one would wait', async () => {
  const rig = new CoreRig();
  rig.ready('a', { waitingPrefillMs: 100 });
  const idle = await exposition(rig);
  expect(idle).toContain(`${METRICS_PREFIX}queue_prefill_seconds{pool="pool"} 0`);
  expect(idle).toContain(`${METRICS_PREFIX}queue_predicted_wait_seconds{pool="pool"} 0.1`);
  expect(idle).not.toContain(`${METRICS_PREFIX}queue_oldest_seconds{`);
  rig.arrive();
  rig.arrive();
  rig.nowMs += 20;
  const text = await exposition(rig);
  expect(text).toContain(`${METRICS_PREFIX}queue_depth{pool="pool"} 2`);
  expect(text).toContain(`${METRICS_PREFIX}queue_prefill_seconds{pool="pool"} 0.256`);
  expect(text).toContain(`${METRICS_PREFIX}queue_oldest_seconds{pool="pool"} 0.02`);
  expect(text).toContain(`${METRICS_PREFIX}queue_predicted_wait_seconds{pool="pool"} 0.336`);
  rig.report('a', { phase: 'dead' });
  expect(await exposition(rig)).not.toContain(`${METRICS_PREFIX}queue_predicted_wait_seconds{`);
});

test('working-set admission shows its bound and who waits for KV room; off, it has no bound', async () => {
  const rig = new CoreRig();
  rig.ready('a', { kvCapacityTokens: 1_000, workingSetTokens: 900 });
  rig.arrive();
  const text = await exposition(rig);
  expect(text).toContain(`${METRICS_PREFIX}kv_held_requests{pool="pool"} 1`);
  expect(text).toContain(`${METRICS_PREFIX}working_set_bound_ratio{pool="pool"} 1`);
  expect(text).not.toContain(`${METRICS_PREFIX}turn_hit_ratio{`);
  const off = await exposition(new CoreRig({ settings: { workingSetBound: null } }));
  expect(off).not.toContain(`${METRICS_PREFIX}working_set_bound_ratio{`);
});
