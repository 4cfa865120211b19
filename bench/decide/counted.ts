// What a decision looks at, counted: exact, whatever the machine does.
//
// The structures of a fleet are watched from outside: every list of targets and every block of figures hands out its
// elements through a counter, every target and replica its members, and the index counts its look-ups. A walk over all
// replicas that was not there before shows as one read a replica, whatever it reads.

import { LeafTable } from '../../router/policy/prefix-leaves.ts';
import { Roster } from '../../router/regional/core-roster.ts';
import { HolderSets } from '../../shared/lib/holder-sets.ts';
import { PrefixTable } from '../../shared/lib/prefix-table.ts';
import { decideOnce, fleetOf, nameOf, reportBefore, type Cell } from './cells.ts';
import type { Fleet } from './fleet.ts';
import { ARM, round, type Row } from './rows.ts';

export interface Counts {
  /** Look-ups of chunks, and of holders in a chunk's sets. */
  readonly indexReads: number;
  /** Look-ups of earlier turns' ends. */
  readonly leafReads: number;
  /** Elements of lists of targets or replicas, and members of these. */
  readonly targetReads: number;
  /** Numbers that stand for targets' reports. */
  readonly figureReads: number;
  /** Numbers of the weighing. */
  readonly columnReads: number;
}

type Tally = { -readonly [name in keyof Counts]: number };

const NOTHING: Counts = {
  indexReads: 0,
  leafReads: 0,
  targetReads: 0,
  figureReads: 0,
  columnReads: 0,
};

/** Mean reads a decision. */
export function countedRow(cell: Cell, decisions: number): Row {
  const fleet = fleetOf(cell);
  for (let k = 0; k < decisions; k += 1) {
    reportBefore(fleet, k);
    decideOnce(fleet, k);
  }
  const tally: Tally = { ...NOTHING };
  const undo = [...watchPrototypes(tally), ...watchFleet(fleet, tally)];
  for (let k = 0; k < decisions; k += 1) {
    const before = { ...tally };
    reportBefore(fleet, k);
    Object.assign(tally, before);
    decideOnce(fleet, k);
  }
  for (const back of undo.toReversed()) back();
  const means = Object.entries(tally).map(([name, sum]) => [name, round(sum / decisions)]);
  return { cell: nameOf(cell), arm: ARM, ...Object.fromEntries(means) };
}

type Undo = () => void;
type Method = (...args: unknown[]) => unknown;

/** What every instance of the index and of the roster hands out. */
function watchPrototypes(tally: Tally): Undo[] {
  const counting = (of: object, name: string, figure: keyof Tally): Undo => {
    const methods = of as Record<string, Method>;
    const plain = methods[name];
    if (plain === undefined) throw new Error(`nothing is called ${name}`);
    methods[name] = function counted(this: unknown, ...args) {
      tally[figure] += 1;
      return plain.apply(this, args);
    };
    return () => (methods[name] = plain);
  };
  const watching = (name: 'targets' | 'figures', figure: keyof Tally): Undo => {
    const plain = Object.getOwnPropertyDescriptor(Roster.prototype, name) ?? {};
    Object.defineProperty(Roster.prototype, name, {
      configurable: true,
      get(this: Roster) {
        const own = plain.get?.call(this) as object;
        return watched(own, () => (tally[figure] += 1));
      },
    });
    return () => Object.defineProperty(Roster.prototype, name, plain);
  };
  return [
    counting(PrefixTable.prototype, 'findNear', 'indexReads'),
    counting(PrefixTable.prototype, 'findNth', 'indexReads'),
    counting(PrefixTable.prototype, 'find', 'indexReads'),
    counting(HolderSets.prototype, 'has', 'indexReads'),
    counting(HolderSets.prototype, 'covers', 'indexReads'),
    counting(HolderSets.prototype, 'unite', 'indexReads'),
    counting(LeafTable.prototype, 'first', 'leafReads'),
    counting(LeafTable.prototype, 'at', 'leafReads'),
    watching('targets', 'targetReads'),
    watching('figures', 'figureReads'),
  ];
}

/** This fleet's own targets, replicas and weighing. */
function watchFleet({ state }: Fleet, tally: Tally): Undo[] {
  const { weighing } = state;
  const column = (): number => (tally.columnReads += 1);
  const target = (): number => (tally.targetReads += 1);
  const { columns, places } = weighing;
  const undo: Undo[] = [() => Object.assign(weighing, { columns, places })];
  weighing.columns = columns.map((one) => watched(one, column));
  weighing.places = watched(places, column);
  for (const replica of state.replicas.values()) {
    for (const one of [replica, ...replica.targets]) watchMembers(one, target);
  }
  for (const { replicas } of state.pools.values()) watchIteration(replicas, target);
  watchIteration(state.replicas, target);
  watchIteration(state.links, target);
  return undo;
}

/** The same object, which counts reads of its elements. */
function watched<T extends object>(of: T, count: () => void): T {
  return new Proxy(of, {
    get(from, name) {
      if (typeof name === 'string' && name !== 'length') count();
      const value: unknown = Reflect.get(from, name);
      return typeof value === 'function' && ArrayBuffer.isView(from) ? value.bind(from) : value;
    },
    set: (from, name, value) => Reflect.set(from, name, value),
  });
}

function watchMembers(of: object, count: () => void): void {
  for (const [name, initial] of Object.entries(of)) {
    let value: unknown = initial;
    Object.defineProperty(of, name, {
      get() {
        count();
        return value;
      },
      set(next: unknown) {
        value = next;
      },
    });
  }
}

function watchIteration(of: Iterable<unknown>, count: () => void): void {
  const { prototype } = of.constructor as { prototype: Record<PropertyKey, Method> };
  for (const name of ['values', 'entries', 'keys', Symbol.iterator]) {
    const plain = prototype[name] as Method;
    Object.defineProperty(of, name, {
      *value() {
        for (const one of plain.call(of) as Iterable<unknown>) {
          count();
          yield one;
        }
      },
    });
  }
}
