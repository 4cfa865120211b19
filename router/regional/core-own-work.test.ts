import { describe, expect, test } from 'vitest';
import type { Incarnation } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { chainOf, COMPLETE, CoreRig, sentTo, targetStatus } from './core.harness.ts';

describe('own work on top of reports', () => {
  const waits = (rig: CoreRig): number => targetStatus(rig, 'a').waitMs;
  const linked = (more: Partial<ReplicaReport> = {}): CoreRig => {
    const rig = new CoreRig({ settings: { holdMs: 1e6 } });
    rig.ready('a', { ackedSeq: 0, ...more });
    return rig;
  };

  test('is what no report includes yet: each request of 128 tokens once', () => {
    const rig = linked();
    rig.arrive();
    rig.arrive();
    expect(waits(rig)).toBe(256);
    rig.report('a', { ackedSeq: 1, waitingPrefillMs: 128 });
    expect(waits(rig)).toBe(256);
    rig.report('a', { ackedSeq: 2, waitingPrefillMs: 256 });
    expect(waits(rig)).toBe(256);
    expect(targetStatus(rig, 'a').unacked.requests).toBe(0);
  });

  test('is cancelled by its first token or end; those of reported ones change nothing', () => {
    const rig = linked();
    rig.arrive();
    rig.arrive();
    rig.report('a', { ackedSeq: 1, waitingPrefillMs: 128 });
    rig.firstToken('r1.1');
    expect(waits(rig)).toBe(256);
    rig.firstToken('r2.1');
    expect(waits(rig)).toBe(128);
    expect(targetStatus(rig, 'a').unacked.requests).toBe(1);
    rig.end('r2.1', COMPLETE, true);
    expect(targetStatus(rig, 'a').unacked.requests).toBe(0);
    rig.end('r1.1', COMPLETE, true);
    expect(waits(rig)).toBe(128);
  });

  test('a report is local in time: its backlog shrinks with its age', () => {
    const rig = linked({ waitingPrefillMs: 500 });
    rig.nowMs += 200;
    expect(waits(rig)).toBe(300);
    rig.nowMs += 400;
    expect(waits(rig)).toBe(0);
  });

  test('a new link gets all open leases, which go on counting, and nothing before them is acknowledged', () => {
    const rig = linked();
    rig.arrive();
    rig.arrive();
    rig.firstToken('r1.1');
    rig.report('a', { ackedSeq: 3, waitingPrefillMs: 128 });
    rig.unlink('a');
    rig.nowMs += 50;
    const effects = rig.link('a2', { replicas: ['a'], agent: 'agent-a' });
    const [, leases] = sentTo(effects, 'a2');
    expect(leases).toMatchObject({
      kind: 'leases',
      seq: 4,
      open: [
        { lease: 'r1.1', sentAgoMs: 50, firstTokenAgoMs: 50 },
        { lease: 'r2.1', sentAgoMs: 50, firstTokenAgoMs: null },
      ],
    });
    rig.report('a', { ackedSeq: -1, waitingPrefillMs: 0 }, 'a2');
    expect(targetStatus(rig, 'a').unacked).toMatchObject({ requests: 2, uncachedTokens: 128 });
    rig.arrive();
    rig.report('a', { ackedSeq: 4, waitingPrefillMs: 128 }, 'a2');
    expect(targetStatus(rig, 'a').unacked).toMatchObject({ requests: 1, uncachedTokens: 128 });
  });

  test('a new incarnation is told the leases again, and what the old one had weighs no more', () => {
    const rig = linked();
    rig.holds('a', chainOf([9]));
    rig.arrive();
    expect(targetStatus(rig, 'a').indexChunks).toBe(1);
    const effects = rig.report('a', { incarnation: 'a/2' as Incarnation, ackedSeq: -1 });
    expect(sentTo(effects, 'a')).toMatchObject([
      { kind: 'leases', seq: 2, open: [{ lease: 'r1.1', incarnation: 'a/1' }] },
    ]);
    expect(targetStatus(rig, 'a')).toMatchObject({ waitMs: 0, indexChunks: 0, leases: 1 });
    rig.end('r1.1', { kind: 'serverFault', cause: 'reset', detail: '' });
    expect(targetStatus(rig, 'a').breaker).toBe('closed');
    expect(rig.core.leaseCount()).toBe(0);
  });
});
