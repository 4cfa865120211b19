// A region that stands still, and one that asks for time, under load: virtual time, real global cores.

import { describe, expect, test } from 'vitest';
import { ResumeRamp } from '../../router/policy/resume-ramp.ts';
import { without } from '../world/without.ts';
import { Clients, type ClientLoad } from './clients.ts';
import { RegionsWorld, type WorldRegion } from './world.ts';

const PLACE = { zone: 'asia', routers: 2, tokensPerMs: 8, holdMs: 60, replicas: 10 };
const TOKENS = 800;
/** All of a region's replicas, in requests. */
const CAPACITY_PER_S = (10 * 8_000) / TOKENS;

const LOAD: Omit<ClientLoad, 'perS'> = {
  ...{ tenant: 't', firstTokens: TOKENS, turnTokens: 100, answerTokens: 50 },
  ...{ goesOn: 0, thinkMs: 1_000, maxTurns: 1 },
};

function worldOf(
  changes: { near?: Partial<WorldRegion>; alone?: boolean; spreadMs?: number },
  perS: (atMs: number) => number,
) {
  const regions: WorldRegion[] = [
    { id: 'near', rttMs: 10, ...PLACE, ...changes.near },
    { id: 'far', rttMs: 40, ...PLACE },
  ];
  const world = new RegionsWorld({
    ...{ seed: 7, globals: changes.alone === true ? 1 : 2, lateMs: [1_000, 1_000] },
    ...(changes.spreadMs === undefined ? {} : { spreadMs: changes.spreadMs }),
    regions: changes.alone === true ? regions.slice(0, 1) : regions,
  });
  // The first reports have come by then.
  const begun = (atMs: number): number => (atMs < 8_000 ? 0 : perS(atMs));
  const clients = new Clients(world, { ...LOAD, perS: begun }, { name: 'c', firstId: 0 });
  const attempts: { atMs: number; region: string }[] = [];
  world.onAttempt = (_, region) => attempts.push({ atMs: world.timeline.nowMs, region });
  const to = (region: string, fromMs: number, untilMs: number): number =>
    attempts.filter((one) => one.region === region && one.atMs >= fromMs && one.atMs < untilMs)
      .length;
  return { world, clients, to };
}

const silent = (world: RegionsWorld): boolean =>
  world.globals.some((host) =>
    host.core.status(host.nowMs).regions.some((region) => region.silent),
  );

describe('a region that stands still under load', () => {
  test.each([0, 4_000])(
    'whose reports were late by one second and up to %i ms more gets one request at a time soon, and costs no client its answer',
    (spreadMs) => {
      const { world, clients, to } = worldOf({ spreadMs }, () => 0.4 * CAPACITY_PER_S);
      world.run(60_000);
      world.region('near').model.freeze();
      // Reports that were on their way still come; then three of them do not.
      world.run(90_000);
      const seenMs = 60_000 + 1_000 + spreadMs + Math.max(3_500, 2 * spreadMs);
      expect(to('near', 60_000, seenMs)).toBeGreaterThan(0);
      // Two routers, a trial each that is given up after a second or so, and a rest of the breaker.
      expect(to('near', seenMs, 90_000)).toBeLessThan(40);
      const perMs = (0.4 * CAPACITY_PER_S) / 1_000;
      expect(to('far', seenMs, 90_000)).toBeGreaterThan(0.9 * perMs * (90_000 - seenMs));
      world.region('near').model.thaw();
      world.run(120_000);
      expect(to('near', 105_000, 120_000)).toBeGreaterThan(0.9 * 0.4 * CAPACITY_PER_S * 15);
      expect([...clients.figures.refused]).toEqual([]);
      // No one waited for the ten seconds of a deadline.
      expect(Math.max(...clients.figures.ttftMs)).toBeLessThan(9_000 + spreadMs);
    },
  );
});

test('a region whose reports are late by one to five seconds, each by a time of its own, is never taken for silent', () => {
  const { world, clients, to } = worldOf({ spreadMs: 4_000 }, (atMs) =>
    // Now and then nobody asks for anything: reports alone are heard.
    atMs % 60_000 < 30_000 ? 0.3 * CAPACITY_PER_S : 0.02,
  );
  let times = 0;
  for (let atMs = 0; atMs < 600_000; atMs += 250) {
    world.run(atMs);
    times += Number(silent(world));
  }
  expect(times).toBe(0);
  expect(to('far', 0, 600_000)).toBe(0);
  expect([...clients.figures.refused]).toEqual([]);
});

describe('a region that asked for time, and for which hundreds wait', () => {
  /** Longest queue of the region after it has asked first, ms, and how often it had to ask. */
  const asked = () => {
    const near = { refusesAtMs: 1_200, retryMs: 2_000 };
    // Twice its capacity for three seconds.
    const burst = (atMs: number): number =>
      atMs > 10_000 && atMs < 13_000 ? 3 * CAPACITY_PER_S : 0.3 * CAPACITY_PER_S;
    const { world, clients } = worldOf({ near, alone: true }, burst);
    let longestMs = 0;
    let resumed = false;
    let held = 0;
    for (let atMs = 0; atMs < 40_000; atMs += 20) {
      world.run(atMs);
      for (const host of world.globals) {
        const [pool] = host.core.status(host.nowMs).regions[0]?.pools ?? [];
        resumed ||= pool?.resumes !== null && pool?.resumes !== undefined;
        held = Math.max(held, pool?.held ?? 0);
      }
      if (resumed) longestMs = Math.max(longestMs, world.region('near').model.queueMs());
    }
    return { longestMs, held, clients };
  };

  test('is taken up in steps: its queue stays near the start threshold, and nobody is lost', () => {
    const { longestMs, held, clients } = asked();
    expect(held).toBeGreaterThan(100);
    expect(longestMs).toBeLessThan(900);
    expect(clients.figures.refused.get('fleet_saturated') ?? 0).toBe(0);
  });

  test('is full again at once without steps', () => {
    const takes = { name: 'takes', make: () => () => true } as const;
    let longestMs = 0;
    without(ResumeRamp.prototype, takes, () => ({ longestMs } = asked()));
    expect(longestMs).toBeGreaterThan(1_100);
  });
});
