// How often agents are told that they may report.

import { expect, test } from 'vitest';
import { CoreRig, sentTo } from './core.harness.ts';

/** Intervals that a link was told, its welcome's first. */
function told(rig: CoreRig, link: string): number[] {
  return sentTo(rig.seen, link).flatMap((message) =>
    message.kind === 'welcome' || message.kind === 'pace' ? [message.minReportIntervalMs] : [],
  );
}

function region(agents: number): CoreRig {
  const rig = new CoreRig();
  for (let k = 0; k < agents; k += 1) {
    rig.link(`a${k}`);
    if (k % 50 === 0) rig.pass(300);
  }
  rig.pass(300);
  return rig;
}

test('all agents of a large region report as seldom as the last one that linked', () => {
  const rig = region(400);
  const latest = Array.from({ length: 400 }, (_, k) => told(rig, `a${k}`).at(-1) ?? 0);
  expect(told(rig, 'a0')[0]).toBe(50);
  expect(Math.min(...latest)).toBeGreaterThan(400 / 1.25);
  const perS = latest.reduce((sum, ms) => sum + 1_000 / ms, 0);
  expect(perS).toBeLessThan(1.25 * 1_000);
  expect(told(rig, 'a0').length).toBeLessThan(12);
});

test('those of a region that shrank report often again, and in one that stays nothing is told', () => {
  const rig = region(400);
  const before = rig.seen.length;
  rig.pass(10_000);
  const since = rig.seen.slice(before).filter((effect) => effect.kind === 'send');
  expect(since).toEqual([]);
  for (let k = 20; k < 400; k += 1) rig.unlink(`a${k}`);
  rig.pass(300);
  expect(told(rig, 'a3').at(-1)).toBe(50);
});
