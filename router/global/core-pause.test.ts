import { describe, expect, test } from 'vitest';
import type { LeaseId } from '../../shared/model/ids.ts';
import type { AttemptResult } from '../policy/attempt-result.ts';
import type { GlobalAttempt } from './events.ts';
import {
  asia,
  attemptIn,
  attemptsIn,
  COMPLETE,
  type GlobalRig,
  refusalIn,
  RESET,
  tenantOf,
  turnsOf,
} from './core.harness.ts';

const busy = (retryAfterMs: number): AttemptResult => ({
  ...{ kind: 'backPressure', status: 429, retryAfterMs },
});
const jp = (rig: GlobalRig) => rig.core.status(rig.nowMs).regions[0]?.pools[0];

/** Japan asks for two seconds, and so many more requests come that may be served there alone. */
function paused(waiting: number): GlobalRig {
  const rig = asia({ tenants: { t: tenantOf(['jp']) } });
  rig.end(attemptIn(rig.arrive()).lease, busy(2_000));
  for (let n = 1; n < waiting; n += 1) rig.arrive();
  return rig;
}

/** First tokens of all these; what is sent thereupon, all at once. */
function answered(rig: GlobalRig, attempts: readonly GlobalAttempt[]): GlobalAttempt[] {
  return attempts.flatMap(({ lease }) => {
    const sent = attemptsIn(rig.handle({ kind: 'firstToken', lease: lease as LeaseId }));
    rig.end(lease, COMPLETE, true);
    return sent;
  });
}

describe('what waits for a region that asked for time', () => {
  test('is sent when the time is over: one, and twice as many with each round of first tokens', () => {
    const rig = paused(100);
    rig.report('jp', { readyReplicas: 60 });
    let sent = attemptsIn(rig.pass(2_000));
    const rounds = [sent.length];
    for (let round = 0; round < 5; round += 1) {
      rig.pass(300);
      rig.report('jp', { readyReplicas: 60 });
      sent = answered(rig, sent);
      rounds.push(sent.length);
    }
    expect(rounds).toEqual([1, 2, 4, 8, 16, 32]);
  });

  test('is sent twice as many with each round of whole answers, too: no first token is told of those', () => {
    const rig = paused(100);
    rig.report('jp', { readyReplicas: 60 });
    let sent = attemptsIn(rig.pass(2_000));
    const rounds = [sent.length];
    for (let round = 0; round < 3; round += 1) {
      rig.pass(300);
      rig.report('jp', { readyReplicas: 60 });
      sent = sent.flatMap(({ lease }) => attemptsIn(rig.end(lease, COMPLETE)));
      rounds.push(sent.length);
    }
    expect(rounds).toEqual([1, 2, 4, 8]);
  });

  test('goes no faster than the region has room by its own reports, and what was sent since', () => {
    const rig = paused(40);
    // Two replicas, half a second of queue each.
    rig.report('jp', { waitingPrefillMs: 1_000 });
    let sent = attemptsIn(rig.pass(2_000));
    for (let round = 0; round < 4; round += 1) {
      rig.pass(300);
      rig.report('jp', { waitingPrefillMs: 1_000 });
      sent = answered(rig, sent);
      expect(sent).toHaveLength(1);
    }
    // Its queue falls below the start threshold, of late too; a request is 125 ms, on two replicas.
    let more = 0;
    for (let n = 0; n < 8; n += 1) {
      more += attemptsIn(rig.pass(1_000)).length + attemptsIn(rig.report('jp')).length;
      expect(jp(rig)?.queueMs).toBeLessThan(400 + 125);
    }
    expect(more).toBeGreaterThan(1);
  });

  test('is sent one at a time while the region says nothing of its queue', () => {
    const rig = paused(10);
    rig.report('jp', { waitingPrefillMs: null });
    rig.pass(10);
    const sent = attemptsIn(rig.pass(1_990));
    expect(sent).toHaveLength(1);
  });

  test('goes in its order: the more urgent first, then who came first', () => {
    const rig = paused(1);
    const late = (priority: number) => rig.arrive({ priority, prompts: [turnsOf(priority, 1)] });
    for (const priority of [3, 1, 2]) late(priority);
    const order: string[] = [];
    let sent = attemptsIn(rig.pass(2_000));
    for (let round = 0; round < 6 && sent.length > 0; round += 1) {
      order.push(...sent.map(({ request }) => request as string));
      rig.pass(1_000);
      rig.report('jp');
      sent = answered(rig, sent);
    }
    // The first is the one that was refused, of priority 0.
    expect(order).toEqual(['r1', 'r3', 'r4', 'r2']);
  });

  test('waits anew where the region asks for time again, and starts again with one', () => {
    const rig = paused(20);
    let sent = attemptsIn(rig.pass(2_000));
    rig.pass(300);
    sent = answered(rig, sent);
    sent = answered(rig, sent);
    expect(sent).toHaveLength(4);
    expect(attemptsIn(rig.end((sent[0] as GlobalAttempt).lease, busy(1_000)))).toEqual([]);
    expect(answered(rig, sent.slice(1))).toEqual([]);
    expect(attemptsIn(rig.pass(900))).toEqual([]);
    expect(attemptsIn(rig.pass(100))).toHaveLength(1);
  });

  test('is sent half as many where one of them fails', () => {
    const rig = paused(40);
    let sent = attemptsIn(rig.pass(2_000));
    for (let round = 0; round < 3; round += 1) {
      rig.pass(1_000);
      rig.report('jp');
      sent = answered(rig, sent);
    }
    expect(jp(rig)?.resumes).toBe(8);
    rig.end((sent[0] as GlobalAttempt).lease, RESET);
    expect(jp(rig)?.resumes).toBe(4);
  });

  test('is told at once where the time becomes longer than it may wait', () => {
    const rig = paused(3);
    const [trial] = attemptsIn(rig.pass(2_000));
    const refused = rig.end(trial?.lease ?? '', busy(30_000));
    expect(refused.filter(({ kind }) => kind === 'refuse')).toHaveLength(3);
    expect(refusalIn(refused)).toMatchObject({ code: 'fleet_saturated' });
    expect(rig.core.status(rig.nowMs)).toMatchObject({
      openRequests: 0,
      queued: { requests: 0, bytes: 0 },
    });
  });

  test('is told so when it has waited as long as it may, while others are taken one by one', () => {
    const rig = paused(5);
    attemptsIn(rig.pass(2_000));
    const effects = rig.pass(8_000);
    expect(effects.filter(({ kind }) => kind === 'refuse')).toHaveLength(4);
    expect(rig.core.status(rig.nowMs).openRequests).toBe(1);
  });

  test('leaves nothing behind when its clients go', () => {
    const rig = paused(5);
    for (let n = 1; n <= 5; n += 1) rig.handle({ kind: 'clientGone', request: `r${n}` as never });
    expect(rig.core.status(rig.nowMs)).toMatchObject({
      openRequests: 0,
      queued: { requests: 0, bytes: 0 },
    });
    expect(jp(rig)?.held).toBe(0);
  });
});

describe('a region that was taken up again', () => {
  test('is sent all that comes once nobody waits and it has answered', () => {
    const rig = paused(1);
    answered(rig, attemptsIn(rig.pass(2_000)));
    expect(jp(rig)?.resumes).toBe(null);
    for (let n = 0; n < 5; n += 1) expect(attemptsIn(rig.arrive())).toHaveLength(1);
  });

  test('is sent what is more urgent than what it refused, whatever waits', () => {
    const rig = asia({ tenants: { t: tenantOf(['jp']) } });
    rig.end(attemptIn(rig.arrive({ priority: 5 })).lease, busy(2_000));
    rig.arrive({ priority: 5 });
    expect(attemptsIn(rig.pass(2_000))).toHaveLength(1);
    expect(attemptsIn(rig.arrive({ priority: 5 }))).toEqual([]);
    expect(attemptsIn(rig.arrive())).toHaveLength(1);
  });
});

test('what waits makes its home hot: new conversations go abroad on credit meanwhile', () => {
  const rig = asia({ settings: { spillIntervalMs: 1_000, queueMaxWaitMs: 60_000 } });
  rig.end(attemptIn(rig.arrive()).lease, busy(30_000));
  for (let n = 0; n < 40; n += 1) rig.arrive();
  for (let n = 0; n < 10; n += 1) {
    rig.pass(1_000);
    for (const region of ['jp', 'sg', 'eu']) rig.report(region);
    rig.grant('sg', 10_000);
  }
  expect(jp(rig)?.spill.share).toBeGreaterThan(0.2);
});
