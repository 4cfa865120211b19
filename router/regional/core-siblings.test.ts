// What a router tells the others of its region, and what it makes of what they tell. A prompt of one chunk takes 128 ms of
// the harness's engines.

import { describe, expect, test } from 'vitest';
import type { LinkId, ReplicaId, RouterId } from '../../shared/model/ids.ts';
import { MAX_OPEN_LEASES } from '../../shared/protocol/limits.ts';
import {
  MAX_OPENED,
  type SiblingSend,
  type SiblingSends,
} from '../../shared/protocol/sibling-messages.ts';
import type { RouterEffect } from './events.ts';
import { COMPLETE, CoreRig, decisionIn, reportOf, targetStatus } from './core.harness.ts';

const SIBLING = 'router-2';
const LINK = 'sibling-1' as LinkId;

function sendOf(no: number, more: Partial<SiblingSend> = {}): SiblingSend {
  const sums = { promptTokens: 128, uncachedTokens: 128, contextTokens2: 0 };
  return { no, replica: 'a' as ReplicaId, rank: 0, seq: no, ...sums, ...more };
}

class SiblingRig extends CoreRig {
  up(link: LinkId = LINK, router = SIBLING): RouterEffect[] {
    return this.handle({ kind: 'siblingUp', link, router: router as RouterId });
  }

  says(said: Partial<SiblingSends>, link = LINK): RouterEffect[] {
    const message = { kind: 'sends', opened: [], past: [], ...said } as const;
    return this.handle({ kind: 'siblingMessage', link, message });
  }

  /** A report that includes the sibling's events up to `seq`. */
  acks(seq: number, waitingPrefillMs: number, router = SIBLING): void {
    const report = reportOf('a', { waitingPrefillMs, ackedSeq: 0 });
    const othersAcked = [{ router: router as RouterId, seq }];
    this.handle({
      kind: 'message',
      link: 'a' as LinkId,
      message: { kind: 'report', report, othersAcked },
    });
  }

  get waitMs(): number {
    return targetStatus(this, 'a').waitMs;
  }

  get sends(): number {
    return this.core.status(this.nowMs).siblings.sends;
  }
}

function heard(features?: readonly string[]): SiblingRig {
  const rig = new SiblingRig({ settings: { holdMs: 1e6 } });
  rig.link('a', features === undefined ? {} : { features });
  rig.report('a', { ackedSeq: 0 });
  rig.up();
  return rig;
}

describe('what a sibling has sent', () => {
  test('weighs until a report includes it, and is never counted beside that report', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1), sendOf(2)] });
    expect(rig.waitMs).toBe(256);
    rig.acks(1, 128);
    expect(rig.waitMs).toBe(256);
    rig.acks(2, 256);
    expect(rig.waitMs).toBe(256);
    rig.says({ past: [1] });
    expect(rig.waitMs).toBe(256);
    expect(rig.sends).toBe(1);
  });

  test('weighs no more once it is past its prefill, whatever reports include', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1), sendOf(2)] });
    rig.says({ past: [1] });
    expect(rig.waitMs).toBe(128);
    rig.says({ past: [2] });
    expect(rig.waitMs).toBe(0);
    expect(rig.sends).toBe(0);
  });

  test('weighs nothing where a report that includes it came first', () => {
    const rig = heard();
    rig.acks(1, 128);
    rig.says({ opened: [sendOf(1)] });
    expect(rig.waitMs).toBe(128);
  });

  test('changes nothing when it is told twice, or ends twice', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1)] });
    rig.says({ opened: [sendOf(1)], past: [7] });
    expect(rig.waitMs).toBe(128);
    rig.says({ past: [1, 1] });
    rig.says({ past: [1] });
    expect([rig.waitMs, rig.sends]).toEqual([0, 0]);
  });

  test('is told under another number when its router has linked with the agent anew', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1)] });
    rig.acks(1, 128);
    rig.says({ opened: [sendOf(1, { seq: 5 })] });
    rig.report('a', { ackedSeq: 0, waitingPrefillMs: 0 });
    expect(rig.waitMs).toBe(128);
    rig.acks(5, 128);
    expect(rig.waitMs).toBe(128);
  });

  test('takes slots of an engine that has few', () => {
    const rig = heard();
    rig.report('a', { ackedSeq: 0, running: 1, runningMax: 4 });
    rig.says({ opened: [sendOf(1, { requests: 2 })] });
    expect(targetStatus(rig, 'a').full).toBe(false);
    rig.says({ opened: [sendOf(2)] });
    expect(targetStatus(rig, 'a').full).toBe(true);
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
  });

  test('sends a request to a replica that it has not chosen', () => {
    const rig = new SiblingRig();
    for (const name of ['a', 'b']) rig.ready(name, { ackedSeq: 0 });
    rig.up();
    rig.says({ opened: [sendOf(1), sendOf(2)] });
    for (let k = 0; k < 8; k += 1) {
      const [attempt] = rig.arrive().flatMap((e) => (e.kind === 'attempt' ? [e.attempt] : []));
      expect(attempt?.target.replica).toBe('b');
      rig.end(`r${k + 1}.1`, COMPLETE, true);
    }
  });

  test('lets the queue move when it has left', () => {
    const rig = new SiblingRig({ settings: { holdMs: 100 } });
    rig.ready('a', { ackedSeq: 0 });
    rig.up();
    rig.says({ opened: [sendOf(1)] });
    expect(decisionIn(rig.arrive())).toBe('queue/all_full');
    expect(rig.says({ past: [1] }).some(({ kind }) => kind === 'attempt')).toBe(true);
  });

  test('weighs nothing where the agent does not say what its reports include', () => {
    const rig = heard([]);
    rig.says({ opened: [sendOf(1)] });
    expect(rig.waitMs).toBe(0);
  });

  test('is forgotten when its engine is another process', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1)] });
    rig.report('a', { incarnation: 'a/2' as never, ackedSeq: -1 });
    expect(rig.waitMs).toBe(0);
    rig.says({ past: [1], opened: [sendOf(2)] });
    expect(rig.waitMs).toBe(128);
  });

  test('is left out where nobody here knows its target', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1, { replica: 'x' as ReplicaId }), sendOf(2, { rank: 9 })] });
    expect(rig.sends).toBe(0);
  });
});

describe('a sibling', () => {
  test('that is gone leaves nothing', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1), sendOf(2)] });
    rig.handle({ kind: 'siblingDown', link: LINK });
    expect([rig.waitMs, rig.sends]).toEqual([0, 0]);
    rig.says({ opened: [sendOf(3)] });
    expect([rig.waitMs, rig.sends]).toEqual([0, 0]);
  });

  test('that begins anew has sent what it says then, and nothing else', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1), sendOf(2)] });
    rig.says({ anew: true, opened: [sendOf(2), sendOf(3)] });
    expect([rig.waitMs, rig.sends]).toEqual([256, 2]);
  });

  test('that links a second time is heard on its newer link alone', () => {
    const rig = heard();
    rig.says({ opened: [sendOf(1)] });
    const effects = rig.up('sibling-2' as LinkId);
    expect(effects).toMatchObject([{ kind: 'closeSibling', link: LINK, reason: 'duplicate' }]);
    expect(rig.waitMs).toBe(0);
    rig.says({ opened: [sendOf(1)] });
    rig.handle({ kind: 'siblingDown', link: LINK });
    expect(rig.waitMs).toBe(0);
    rig.says({ opened: [sendOf(1)] }, 'sibling-2' as LinkId);
    expect(rig.waitMs).toBe(128);
  });

  test('does not take another sibling’s acknowledgement for its own', () => {
    const rig = heard();
    rig.up('sibling-2' as LinkId, 'router-3');
    rig.says({ opened: [sendOf(1)] });
    rig.says({ opened: [sendOf(1)] }, 'sibling-2' as LinkId);
    rig.acks(1, 128);
    expect(rig.waitMs).toBe(256);
  });

  test('has so many open sends at most', () => {
    const rig = heard();
    for (let k = 0; k <= MAX_OPEN_LEASES; k += MAX_OPENED) {
      rig.says({ opened: Array.from({ length: MAX_OPENED }, (_, n) => sendOf(k + n)) });
    }
    expect(rig.sends).toBe(MAX_OPEN_LEASES);
    expect(rig.seen.some((e) => e.kind === 'limit' && e.limit === 'sibling_sends')).toBe(true);
  });

  test('is one of 256 at most', () => {
    const rig = heard();
    for (let k = 0; k < 256; k += 1) rig.up(`more-${k}` as LinkId, `router-${k + 3}`);
    expect(rig.core.status(rig.nowMs).siblings.heard).toBe(256);
    expect(rig.seen.some((e) => e.kind === 'limit' && e.limit === 'siblings')).toBe(true);
    expect(rig.seen.at(-1)).toMatchObject({ kind: 'closeSibling', reason: 'flooded' });
  });
});

describe('siblings that listen', () => {
  const told = (effects: readonly RouterEffect[]): SiblingSends[] =>
    effects.flatMap((effect) => (effect.kind === 'tellSiblings' ? [effect.message] : []));
  const listened = (): SiblingRig => {
    const rig = new SiblingRig({ settings: { holdMs: 1e6 } });
    rig.ready('a', { ackedSeq: 0 });
    rig.handle({ kind: 'siblingListens', link: 'out-1' as LinkId });
    rig.pass(1_000);
    return rig;
  };

  test('are told at once of what is sent, and of what follows together, 20 ms later', () => {
    const rig = listened();
    expect(told(rig.arrive())).toMatchObject([
      { opened: [{ no: 0, replica: 'a', rank: 0, seq: 1, promptTokens: 128 }], past: [] },
    ]);
    expect(told(rig.arrive())).toEqual([]);
    expect(told(rig.firstToken('r1.1'))).toEqual([]);
    expect(told(rig.pass(19))).toEqual([]);
    expect(told(rig.pass(1))).toMatchObject([{ opened: [{ no: 1, seq: 2 }], past: [0] }]);
    expect(told(rig.pass(1_000))).toEqual([]);
  });

  test('are told the end of a prefill once, whatever ends it', () => {
    const rig = listened();
    rig.arrive();
    rig.pass(100);
    expect(told(rig.firstToken('r1.1'))).toMatchObject([{ opened: [], past: [0] }]);
    rig.pass(100);
    expect(told(rig.end('r1.1', COMPLETE, true))).toEqual([]);
    expect(told(rig.pass(100))).toEqual([]);
    rig.arrive();
    rig.pass(100);
    const failed = rig.end('r2.1', { kind: 'clientError', status: 400 } as never);
    expect(told(failed)).toMatchObject([{ opened: [], past: [1] }]);
  });

  test('hear of nothing that came and went between two messages', () => {
    const rig = listened();
    rig.arrive();
    rig.arrive();
    rig.end('r2.1', COMPLETE, true);
    expect(told(rig.pass(1_000))).toEqual([]);
  });

  test('are told all that is open when they come, and anew under its number on a new link of its agent', () => {
    const rig = listened();
    rig.arrive();
    rig.arrive();
    rig.firstToken('r1.1');
    rig.pass(100);
    const effects = rig.handle({ kind: 'siblingListens', link: 'out-2' as LinkId });
    expect(effects).toMatchObject([
      { kind: 'sendSibling', link: 'out-2', message: { anew: true, opened: [{ no: 1, seq: 2 }] } },
    ]);
    rig.unlink('a');
    const back = rig.link('back', { replicas: ['a'] });
    expect(told(back)).toMatchObject([{ opened: [{ no: 1, seq: 4 }], past: [] }]);
  });

  test('cost nothing once the last of them is away', () => {
    const rig = listened();
    rig.handle({ kind: 'siblingDeaf', link: 'out-1' as LinkId });
    rig.arrive();
    rig.end('r1.1', COMPLETE, true);
    expect(told([...rig.seen, ...rig.pass(1_000)])).toEqual([]);
  });
});
