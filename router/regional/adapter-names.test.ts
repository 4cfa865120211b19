import { beforeEach, describe, expect, test } from 'vitest';
import type { LinkId, ReplicaId } from '../../shared/model/ids.ts';
import { AdapterNames } from './adapter-names.ts';

const [FIRST, SECOND] = ['in-1', 'in-2'] as [LinkId, LinkId];
const REPLICA = '10.0.0.1:8000' as ReplicaId;

let up: Set<LinkId>;
let names: AdapterNames;

beforeEach(() => {
  up = new Set();
  names = new AdapterNames((link) => up.has(link));
});

function link(id: LinkId, pool = 'a'): void {
  up.add(id);
  names.linked(id, pool, [REPLICA]);
}

function report(id: LinkId, ...loras: string[]): void {
  const models = [{ id: 'base', maxModelLen: null, loras }];
  names.reported(id, { replica: REPLICA, models });
}

describe('the adapters of a replica', () => {
  test('are what its agent last said, also while none is linked', () => {
    link(FIRST);
    report(FIRST, 'sql', 'legal');
    expect([names.has('sql'), names.has('legal'), names.has('base')]).toEqual([true, true, false]);
    report(FIRST, 'legal');
    up.delete(FIRST);
    expect([names.has('sql'), names.has('legal')]).toEqual([false, true]);
    report(FIRST);
    expect(names.has('legal')).toBe(false);
  });

  test('are what the newer of two agents says, whose goodbye alone forgets them', () => {
    link(FIRST);
    link(SECOND);
    report(SECOND, 'sql');
    report(FIRST, 'other');
    names.left(FIRST, REPLICA);
    report(SECOND, 'sql', 'legal');
    expect([names.has('legal'), names.has('other')]).toEqual([true, false]);
    names.left(SECOND, REPLICA);
    expect(names.has('sql')).toBe(false);
  });

  test('are not what an agent of another pool says beside its own', () => {
    link(FIRST, 'a');
    report(FIRST, 'sql');
    link(SECOND, 'b');
    report(SECOND, 'base');
    expect([names.has('sql'), names.has('base')]).toEqual([true, false]);
    up.delete(FIRST);
    link(SECOND, 'b');
    report(SECOND, 'base');
    expect(names.has('base')).toBe(true);
  });

  test('of more replicas than a router remembers are forgotten, the oldest first', () => {
    up.add(FIRST);
    const all = Array.from({ length: 16_385 }, (_, at) => `r${at}` as ReplicaId);
    names.linked(FIRST, 'a', all);
    for (const replica of all.slice(0, 2)) {
      const models = [{ id: 'base', maxModelLen: null, loras: [`of-${replica}`] }];
      names.reported(FIRST, { replica, models });
    }
    expect([names.has('of-r0'), names.has('of-r1')]).toEqual([false, true]);
  });
});
