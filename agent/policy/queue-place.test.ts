import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { placeOf, type QueueClaim } from './queue-place.ts';

let orders = 0;
function claim(topPriority: number, headMs: number | null): QueueClaim {
  return { order: (orders += 1), topPriority, headMs, sinceMs: headMs };
}

describe('a router is told where its queue stands', () => {
  test('alone it has nobody before it', () => {
    const place = { othersTop: null, othersAtTop: 0, before: 0 };
    expect(placeOf(claim(0, 5), [], 1_000)).toEqual(place);
    expect(placeOf(null, [], 1_000)).toEqual(place);
  });

  test('behind all that hold something more urgent, and behind none that do not', () => {
    const others = [claim(-1, 900), claim(-1, 100), claim(0, 1)];
    const top = { othersTop: -1, othersAtTop: 2, oldestAgeMs: 900 };
    expect(placeOf(claim(0, 0), others, 1_000)).toEqual({ ...top, before: 2 });
    expect(placeOf(claim(-1, 500), others, 1_000)).toEqual({ ...top, before: 1 });
  });

  test('behind those whose next request is older, and before those who have just released theirs', () => {
    const others = [claim(0, 100), claim(0, 300), claim(0, null)];
    expect(placeOf(claim(0, 200), others, 1_000).before).toBe(1);
    expect(placeOf(claim(0, null), others, 1_000).before).toBe(3);
    expect(placeOf(null, others, 1_000).before).toBe(3);
    expect(placeOf(null, others, 1_000).oldestAgeMs).toBe(900);
    expect(placeOf(null, [claim(0, null)], 1_000)).not.toHaveProperty('oldestAgeMs');
    const released = { ...claim(0, null), sinceMs: 40 };
    expect(placeOf(null, [...others, released], 1_000).oldestAgeMs).toBe(960);
  });
});

test('routers of one priority stand one behind the other, each in a place of its own', () => {
  const head = fc.option(fc.integer({ min: 0, max: 5 }));
  fc.assert(
    fc.property(fc.array(head, { minLength: 1, maxLength: 10 }), (heads) => {
      const claims = heads.map((headMs) => claim(0, headMs));
      const places = claims.map(
        (own) =>
          placeOf(
            own,
            claims.filter((other) => other !== own),
            1_000,
          ).before,
      );
      expect(places.toSorted((a, b) => a - b)).toEqual(claims.map((_, k) => k));
    }),
  );
});
