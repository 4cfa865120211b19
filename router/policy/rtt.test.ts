import { expect, test } from 'vitest';
import { LeastRtt, RegionRtt } from './rtt.ts';

test('a round trip is the least of the last half to whole minute', () => {
  const rtt = new LeastRtt();
  expect(rtt.valueMs).toBeNull();
  rtt.note(60, 0);
  rtt.note(400, 1_000);
  expect(rtt.valueMs).toBe(60);
  rtt.note(90, 31_000);
  expect(rtt.valueMs).toBe(60);
  rtt.note(95, 62_000);
  expect(rtt.valueMs).toBe(90);
});

test('what accepts connections on the way does not make a region near, nor does a link that is short alone', () => {
  const rtt = new RegionRtt();
  expect(rtt.valueMs).toBeNull();
  rtt.note(0.3, 'connection', 0);
  expect(rtt.valueMs).toBe(0.3);
  rtt.note(55, 'link', 1_000);
  rtt.note(60, 'link', 2_000);
  expect(rtt.valueMs).toBe(55);
  rtt.note(70, 'connection', 31_000);
  rtt.note(70, 'connection', 62_000);
  expect(rtt.valueMs).toBe(70);
});

test('a distance changes with a round trip that is another one, not with one that wavers', () => {
  const rtt = new RegionRtt();
  const at = (rttMs: number, nowMs: number): number | null => {
    rtt.note(rttMs, 'link', nowMs);
    rtt.note(rttMs, 'connection', nowMs);
    return rtt.distanceMs;
  };
  expect(rtt.distanceMs).toBeNull();
  expect(at(300, 0)).toBe(300);
  expect(at(20, 10)).toBe(20);
  expect(at(18.5, 20)).toBe(20);
  expect(at(15, 30)).toBe(15);
});
