import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  ACCOUNTS_MAX,
  CREDIT_DEFAULTS,
  CreditGiver,
  CreditPurse,
  headroomMs,
} from './spill-credit.ts';

const ASK = { wantsMs: 10_000, requestMs: 500, spentMs: 0 };

function grants(giver: CreditGiver<string>, headroomMs: number | null, nowMs = 0, routers = 1) {
  const given = giver.grant({ headroomMs, routers }, CREDIT_DEFAULTS, nowMs);
  return given.map(([link, { prefillMs }]) => [link, prefillMs]);
}

describe('a region gives', () => {
  test('its headroom, shared by what senders ask for, and no more than that', () => {
    const giver = new CreditGiver<string>();
    giver.demand('a', { ...ASK, wantsMs: 3_000 }, 0);
    giver.demand('b', { ...ASK, wantsMs: 1_000 }, 0);
    expect(grants(giver, 2_000)).toEqual([
      ['a', 1_500],
      ['b', 500],
    ]);
    expect(grants(giver, 2_000, 100)).toEqual([]);
    expect(grants(giver, 9_000, 200)).toEqual([
      ['a', 1_500],
      ['b', 500],
    ]);
    expect(grants(giver, 9_000, 300)).toEqual([]);
  });

  test('nothing where it does not know its own load, has no room, or is not asked', () => {
    const giver = new CreditGiver<string>();
    expect(grants(giver, 9_000)).toEqual([]);
    giver.demand('a', ASK, 0);
    expect(grants(giver, null)).toEqual([]);
    expect(grants(giver, -300)).toEqual([]);
  });

  test('each of its routers its part', () => {
    const giver = new CreditGiver<string>();
    giver.demand('a', ASK, 0);
    expect(grants(giver, 8_000, 0, 4)).toEqual([['a', 2_000]]);
  });

  test('again what was spent or has lapsed, and not before', () => {
    const giver = new CreditGiver<string>();
    giver.demand('a', ASK, 0);
    expect(grants(giver, 2_000)).toEqual([['a', 2_000]]);
    giver.demand('a', { ...ASK, spentMs: 800 }, 1_000);
    giver.demand('a', { ...ASK, spentMs: 800 }, 1_100);
    expect(giver.outstandingMs(1_200)).toBe(1_200);
    expect(grants(giver, 2_000, 1_200)).toEqual([['a', 800]]);
    // Lives 5 s, and may be on the way for 5 s more.
    expect(giver.outstandingMs(9_999)).toBe(2_000);
    expect(giver.outstandingMs(10_000)).toBe(800);
    expect(giver.outstandingMs(11_200)).toBe(0);
  });

  test('less than it says where its sender owes: what was overdrawn is paid first', () => {
    const giver = new CreditGiver<string>();
    giver.demand('a', ASK, 0);
    expect(grants(giver, 1_000)).toEqual([['a', 1_000]]);
    giver.demand('a', { ...ASK, spentMs: 1_200 }, 100);
    expect(giver.outstandingMs(100)).toBe(0);
    expect(grants(giver, 1_000, 100)).toEqual([['a', 1_000]]);
    expect(giver.outstandingMs(100)).toBe(800);
    // Once.
    giver.demand('a', { ...ASK, spentMs: 2_000 }, 200);
    expect(grants(giver, 1_000, 200)).toEqual([['a', 1_000]]);
    expect(giver.outstandingMs(200)).toBe(1_000);
  });

  test('counts the grants of a closed link until they lapse, and then forgets it', () => {
    const giver = new CreditGiver<string>();
    giver.demand('a', ASK, 0);
    grants(giver, 2_000);
    giver.closed('a');
    giver.demand('a2', ASK, 10);
    expect(grants(giver, 2_000, 10)).toEqual([]);
    expect(grants(giver, 2_000, 10_000)).toEqual([['a2', 2_000]]);
  });

  test('keeps no account of links that are gone', () => {
    const giver = new CreditGiver<string>();
    for (let n = 0; n < 2 * ACCOUNTS_MAX; n += 1) {
      expect(giver.demand(`link ${n}`, { ...ASK, wantsMs: 10 }, 0)).toBe(true);
      giver.closed(`link ${n}`);
      giver.outstandingMs(0);
    }
    for (let n = 0; n < ACCOUNTS_MAX; n += 1) giver.demand(`other ${n}`, ASK, 0);
    expect(giver.demand('one too many', ASK, 0)).toBe(false);
  });

  test('whole requests in turn where it has not one for each', () => {
    const giver = new CreditGiver<string>();
    for (const link of ['a', 'b', 'c']) giver.demand(link, ASK, 0);
    expect(grants(giver, 1_200)).toEqual([
      ['a', 500],
      ['b', 500],
    ]);
    expect(grants(giver, 1_600, 100)).toEqual([['c', 500]]);
  });

  test('to each in turn, whoever asks again and whoever is satisfied meanwhile', () => {
    const giver = new CreditGiver<string>();
    const links = ['a', 'b', 'c'];
    const got = new Map(links.map((link) => [link, 0]));
    for (const link of links) giver.demand(link, { ...ASK, wantsMs: 500 }, 0);
    let [last, spentMs] = ['', 0];
    for (let now = 0; now < 30_000; now += 500) {
      for (const [link] of grants(giver, 600, now) as [string, number][]) {
        got.set(link, (got.get(link) ?? 0) + 1);
        spentMs = 500 * (got.get(link) ?? 0);
        // Who was satisfied before asks again, this one does not yet.
        if (last !== '')
          giver.demand(last, { ...ASK, wantsMs: 500, spentMs: 500 * (got.get(last) ?? 0) }, now);
        giver.demand(link, { ...ASK, wantsMs: 0, spentMs }, now);
        last = link;
      }
    }
    expect([...got.values()].map((count) => Math.abs(count - 20) <= 1)).toEqual([true, true, true]);
  });

  test('whatever others want, what fits: one of long prompts keeps no other waiting, and gets its own in time', () => {
    const giver = new CreditGiver<string>();
    giver.demand('long', { ...ASK, requestMs: 3_000 }, 0);
    giver.demand('short', { ...ASK, requestMs: 200 }, 0);
    expect(grants(giver, 800)).toEqual([['short', 200]]);
    let [short, long] = [200, 0];
    for (let now = 500; now <= 60_000; now += 500) {
      // What it has it spends at once.
      giver.demand('short', { ...ASK, requestMs: 200, spentMs: short }, now);
      giver.demand('long', { ...ASK, requestMs: 3_000, spentMs: long }, now);
      for (const [link, prefillMs] of grants(giver, 800, now) as [string, number][]) {
        if (link === 'short') short += prefillMs;
        else long += prefillMs;
        expect(giver.outstandingMs(now)).toBeLessThanOrEqual(800 + 3_000);
      }
    }
    expect(short).toBeGreaterThan(60 * 200);
    expect(long).toBe(3_000);
  });

  test('for as long as each grant says, also where later ones live for less', () => {
    const giver = new CreditGiver<string>();
    const purse = new CreditPurse<string>();
    giver.demand('a', ASK, 0);
    const lives = { creditLifeMs: 60_000, creditGraceMs: 0 };
    for (const [, grant] of giver.grant({ headroomMs: 1_000, routers: 1 }, lives, 0))
      purse.granted('r', grant, 0);
    for (const [, grant] of giver.grant(
      { headroomMs: 3_000, routers: 1 },
      { ...lives, creditLifeMs: 1_000 },
      0,
    ))
      purse.granted('r', grant, 0);
    expect([giver.outstandingMs(999), purse.balanceMs(999)]).toEqual([3_000, 3_000]);
    expect([giver.outstandingMs(1_000), purse.balanceMs(1_000)]).toEqual([1_000, 1_000]);
  });

  test('less than one request when it has saved it up over the life of a grant', () => {
    const giver = new CreditGiver<string>();
    giver.demand('a', ASK, 0);
    const given: unknown[] = [];
    for (let now = 0; now < 20_000; now += 500) given.push(...grants(giver, 400, now, 4));
    // 100 ms in 5 s: 500 ms, the first request, after 25 s.
    expect(given).toEqual([]);
    for (let now = 20_000; now <= 25_500; now += 500) given.push(...grants(giver, 400, now, 4));
    expect(given).toEqual([['a', 500]]);
  });
});

describe('a sender', () => {
  test('spends what it was given, and one request more at most', () => {
    const purse = new CreditPurse<string>();
    expect(purse.spend(10, 0)).toBe(false);
    purse.granted('r', { prefillMs: 1_000, lifeMs: 5_000 }, 0);
    expect([purse.spend(600, 0), purse.spend(600, 0), purse.spend(1, 0)]).toEqual([
      true,
      true,
      false,
    ]);
    expect(purse.balanceMs(0)).toBe(-200);
    expect(purse.spentMs('r')).toBe(1_200);
    purse.granted('r', { prefillMs: 500, lifeMs: 5_000 }, 10);
    expect(purse.balanceMs(10)).toBe(300);
    // What was owed is paid, whatever becomes of the rest.
    expect(purse.balanceMs(5_010)).toBe(0);
  });

  test('spends nothing whose life is over, or whose giver cannot be told', () => {
    const purse = new CreditPurse<string>();
    purse.granted('r', { prefillMs: 1_000, lifeMs: 5_000 }, 0);
    expect(purse.spend(100, 5_000)).toBe(false);
    purse.granted('r', { prefillMs: 1_000, lifeMs: 5_000 }, 6_000);
    purse.closed('r');
    expect(purse.spend(100, 6_001)).toBe(false);
  });

  test('spends first what lapses first', () => {
    const purse = new CreditPurse<string>();
    purse.granted('late', { prefillMs: 500, lifeMs: 5_000 }, 0);
    purse.granted('soon', { prefillMs: 500, lifeMs: 1_000 }, 0);
    purse.spend(600, 0);
    expect([purse.spentMs('soon'), purse.spentMs('late')]).toEqual([500, 100]);
  });
});

describe('any number of senders and routers, with messages that take up to 4 s', () => {
  const move = fc.record({
    gapMs: fc.integer({ min: 0, max: 1_500 }),
    sender: fc.nat(3),
    sends: fc.array(fc.integer({ min: 1, max: 900 }), { maxLength: 6 }),
    headroomMs: fc.option(fc.integer({ min: -500, max: 6_000 }), { nil: null }),
    delayMs: fc.integer({ min: 0, max: 4_000 }),
    cut: fc.boolean(),
  });

  test('never have more under way than headroom and one request a sender', () => {
    fc.assert(
      fc.property(fc.array(move, { maxLength: 120 }), (moves) => {
        const giver = new CreditGiver<string>();
        const purses = [0, 1, 2, 3].map(() => new CreditPurse<string>());
        const lives = [0, 0, 0, 0];
        const mail: { atMs: number; sender: number; link: string; read: () => void }[] = [];
        let now = 0;
        let most = 0;
        let granted = 0;
        let spent = 0;
        for (const each of moves) {
          now += each.gapMs;
          // Messages of one link keep their order, so a late one holds up those behind it.
          const due = mail.filter(({ atMs }) => atMs <= now);
          for (const { link, sender, read } of due) {
            if (link === `${sender}.${lives[sender]}`) read();
          }
          mail.splice(0, mail.length, ...mail.filter(({ atMs }) => atMs > now));
          const { sender } = each;
          const purse = purses[sender] as CreditPurse<string>;
          const link = `${sender}.${lives[sender]}`;
          for (const prefillMs of each.sends) if (purse.spend(prefillMs, now)) spent += prefillMs;
          const spentMs = purse.spentMs(link);
          const last = Math.max(
            now + each.delayMs,
            ...mail.filter((m) => m.link === link).map((m) => m.atMs),
          );
          const demand = { wantsMs: 2_000, requestMs: 300, spentMs };
          mail.push({ atMs: last, sender, link, read: () => giver.demand(link, demand, last) });
          const headroomMs = each.headroomMs ?? 0;
          const before = giver.outstandingMs(now);
          for (const [to, grant] of giver.grant({ headroomMs, routers: 1 }, CREDIT_DEFAULTS, now)) {
            granted += grant.prefillMs;
            const owner = Number(to.split('.')[0]);
            const read = (): void => purses[owner]?.granted(to, grant, now + each.delayMs);
            mail.push({ atMs: now + each.delayMs, sender: owner, link: to, read });
          }
          const after = giver.outstandingMs(now);
          most = Math.max(most, after - Math.max(headroomMs, before));
          if (each.cut) {
            giver.closed(link);
            purse.closed(link);
            lives[sender] = (lives[sender] ?? 0) + 1;
          }
          // Of what was saved for one that is larger than all there is.
          expect(most).toBeLessThanOrEqual(300 + 1e-6);
          expect(spent).toBeLessThanOrEqual(granted + 4 * 900);
        }
      }),
    );
  });
});

describe('headroom', () => {
  const pool = { readyReplicas: 10, queueMs: 100, inflowPerMs: 7 };

  test('is what fits under the threshold and what is served in a second beyond what comes', () => {
    expect(headroomMs(pool, 400)).toBe(10 * 300 + 3 * 1_000);
  });

  test('is no more than what fits where what comes is unknown or more than can be served', () => {
    expect(headroomMs({ ...pool, inflowPerMs: null }, 400)).toBe(3_000);
    expect(headroomMs({ ...pool, inflowPerMs: 12 }, 400)).toBe(3_000);
  });

  test('is none from the threshold on, and unknown where the queue is', () => {
    expect(headroomMs({ ...pool, queueMs: 400 }, 400)).toBe(0);
    expect(headroomMs({ ...pool, queueMs: null }, 400)).toBeNull();
  });
});
