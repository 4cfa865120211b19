import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { WaitingShares, type Waiting, type WaitingLimits } from './waiting-shares.ts';

const NO_END = Number.POSITIVE_INFINITY;
let made = 0;
const of = (tenant: string, priority = 0, bytes = 1): Waiting => {
  made += 1;
  return { id: `${tenant}${made}`, tenant, priority, bytes };
};

function filled(...members: readonly Waiting[]): WaitingShares {
  const shares = new WaitingShares();
  for (const member of members) shares.add(member);
  return shares;
}

const many = (n: number, tenant: string, priority = 0, bytes = 1) =>
  Array.from({ length: n }, () => of(tenant, priority, bytes));

describe('who gives way in a full waiting place', () => {
  test('nobody while there is room', () => {
    expect(filled(...many(9, 'a')).givingWayTo(of('b'), { requests: 10, bytes: NO_END })).toEqual(
      [],
    );
  });

  test('is the last of the tenant that has most', () => {
    const a = many(6, 'a');
    const shares = filled(...many(4, 'c'), ...a);
    expect(shares.givingWayTo(of('b'), { requests: 10, bytes: NO_END })).toEqual([a[5]]);
  });

  test('is of the least urgent priority first, however little its tenant has', () => {
    const late = of('c', 5);
    const shares = filled(...many(9, 'a'), late);
    expect(shares.givingWayTo(of('a'), { requests: 10, bytes: NO_END })).toEqual([late]);
  });

  test('is never more urgent', () => {
    const shares = filled(...many(10, 'a', -1));
    expect(shares.givingWayTo(of('b'), { requests: 10, bytes: NO_END })).toBe(null);
  });

  test('is nobody whose tenant has no more than the newcomer would', () => {
    const shares = filled(...many(5, 'a'), ...many(5, 'b'));
    expect(shares.givingWayTo(of('a'), { requests: 10, bytes: NO_END })).toBe(null);
    const uneven = filled(...many(6, 'a'), ...many(5, 'b'));
    expect(uneven.givingWayTo(of('b'), { requests: 11, bytes: NO_END })).toBe(null);
  });

  test('gives as many bytes as are needed, of who has most bytes', () => {
    const large = many(3, 'a', 0, 30);
    const shares = filled(...many(10, 'c', 0, 1), ...large);
    const limits = { requests: 100, bytes: 100 };
    expect(shares.givingWayTo(of('b', 0, 25), limits)).toEqual([large[2]]);
    expect(shares.givingWayTo(of('b', 0, 101), limits)).toBe(null);
    // What it would displace is not more than what it brings.
    expect(shares.givingWayTo(of('b', 0, 95), limits)).toBe(null);
  });

  test('nobody is counted that has left', () => {
    const [first, ...others] = many(10, 'a');
    const shares = filled(first as Waiting, ...others);
    shares.remove(first as Waiting);
    shares.remove(first as Waiting);
    expect(shares.givingWayTo(of('a'), { requests: 10, bytes: NO_END })).toEqual([]);
    expect(shares.bytes).toBe(9);
  });
});

test('however requests come, the place stays within its limits, and no tenant within an equal part is displaced by its equals', () => {
  const TENANTS = 4;
  const limits: WaitingLimits = { requests: 12, bytes: NO_END };
  const coming = fc.record({
    tenant: fc.constantFrom('a', 'a', 'a', 'a', 'b', 'c', 'd'),
    priority: fc.integer({ min: 0, max: 1 }),
  });
  fc.assert(
    fc.property(fc.array(coming, { maxLength: 80 }), (arrivals) => {
      const shares = new WaitingShares();
      let inside: Waiting[] = [];
      for (const { tenant, priority } of arrivals) {
        const newcomer = of(tenant, priority);
        const going = shares.givingWayTo(newcomer, limits);
        const among = inside.filter((each) => each.priority === priority);
        const own = among.filter((each) => each.tenant === tenant).length;
        if (going === null) {
          expect(inside).toHaveLength(limits.requests);
          // Its equals left it an equal part: refused, it has had that.
          const urgent = inside.filter((each) => each.priority < priority).length;
          expect((own + 1) * TENANTS).toBeGreaterThanOrEqual(limits.requests - urgent);
          continue;
        }
        for (const gone of going) {
          expect(gone.priority).toBeGreaterThanOrEqual(priority);
          if (gone.priority !== priority) continue;
          const had = among.filter((each) => each.tenant === gone.tenant).length;
          expect(had).toBeGreaterThan(own + 1);
        }
        for (const gone of going) shares.remove(gone);
        inside = [...inside.filter((each) => !going.includes(each)), newcomer];
        shares.add(newcomer);
        expect(inside.length).toBeLessThanOrEqual(limits.requests);
      }
    }),
  );
});
