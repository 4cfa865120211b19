import { describe, expect, test } from 'vitest';
import type { AttemptResult } from '../policy/attempt-result.ts';
import {
  asia,
  attemptIn,
  COMPLETE,
  type GlobalRig,
  kindOf,
  refusalIn,
  RESET,
  tenantOf,
} from './core.harness.ts';

const REFUSED: AttemptResult = { kind: 'connectFailed', detail: '' };
const LATE: AttemptResult = { kind: 'serverFault', cause: 'first_token_timeout', detail: '' };

/** Japan has two routers, both linked; `t` may be served there alone. */
function twins(options: Parameters<typeof asia>[0] = {}): GlobalRig {
  const rig = asia({ tenants: { t: tenantOf(['jp']), free: tenantOf(null) }, ...options });
  rig.up('jp', 'jp-2');
  for (const link of ['jp', 'jp-2']) rig.report(link, {}, [], 2);
  return rig;
}

const breaker = (rig: GlobalRig) => rig.core.status(rig.nowMs).regions[0]?.breaker;

describe('a region of several routers that loses one', () => {
  test.each([
    ['breaks off what it had', RESET],
    ['refuses connections', REFUSED],
  ])('%s: a tenant that has no other region is served there by another router', (_, result) => {
    const rig = twins();
    const first = attemptIn(rig.arrive());
    rig.handle({ kind: 'regionDown', link: 'jp-2' as never });
    const second = rig.end(first.lease, result);
    expect(kindOf(second)).toEqual(['send', 'failover', 'jp']);
    rig.end(attemptIn(second).lease, COMPLETE);
    expect(rig.core.status(rig.nowMs).openRequests).toBe(0);
    expect(breaker(rig)).toBe('closed');
  });

  test('keeps what was under way there, all of it, at nobody’s charge', () => {
    const rig = twins({ settings: { retryBudgetRatio: 0, retryBudgetMinPerS: 0 } });
    const open = Array.from({ length: 50 }, () => attemptIn(rig.arrive()));
    const ends = open.map(({ lease }) => kindOf(rig.end(lease, RESET)));
    expect(new Set(ends.map(String))).toEqual(new Set(['send,failover,jp']));
    expect(breaker(rig)).toBe('closed');
  });

  test('is asked a second time, not a third', () => {
    const rig = twins();
    const second = attemptIn(rig.end(attemptIn(rig.arrive()).lease, RESET));
    expect(refusalIn(rig.end(second.lease, RESET))).toMatchObject({ code: 'upstream_failed' });
    const free = attemptIn(rig.arrive({ tenant: 'free' }));
    const again = attemptIn(rig.end(free.lease, RESET));
    expect([free.region, again.region]).toEqual(['jp', 'jp']);
    expect(attemptIn(rig.end(again.lease, RESET)).region).toBe('sg');
  });

  test('is left alone as soon as any other where it is gone whole', () => {
    const rig = twins();
    const open = Array.from({ length: 4 }, () => attemptIn(rig.arrive({ tenant: 'free' })));
    for (const { lease } of open) {
      const second = attemptIn(rig.end(lease, RESET));
      if (second.region === 'jp') rig.end(second.lease, REFUSED);
    }
    expect(breaker(rig)).toBe('open');
    expect(attemptIn(rig.arrive({ tenant: 'free' })).region).toBe('sg');
  });

  test('is not asked a second time for what says nothing of one router', () => {
    const rig = twins();
    const late = attemptIn(rig.arrive({ tenant: 'free' }));
    expect(attemptIn(rig.end(late.lease, LATE)).region).toBe('sg');
  });

  test('is not taken for one where it has one router, or none that is linked', () => {
    const one = asia({ tenants: { t: tenantOf(['jp']) } });
    expect(refusalIn(one.end(attemptIn(one.arrive()).lease, RESET))).not.toBe(null);
    const gone = twins();
    const open = attemptIn(gone.arrive());
    for (const link of ['jp', 'jp-2']) gone.handle({ kind: 'regionDown', link: link as never });
    expect(refusalIn(gone.end(open.lease, RESET))).not.toBe(null);
  });

  test('is given no more than its tenant allows when it is asked again', () => {
    const rig = twins();
    const first = attemptIn(rig.arrive());
    rig.configure({ tenants: new Map([['t', tenantOf(['eu'])]]) });
    // Called back; it ends as the router that had it died.
    expect(attemptIn(rig.end(first.lease, RESET)).region).toBe('eu');
  });
});
