import { expect, test } from 'vitest';
import { LeastRtt } from './rtt.ts';

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
