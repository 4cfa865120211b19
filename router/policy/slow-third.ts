// Which replicas that prefill slowly stay out of use: never more than a third of the pool, the slowest first.
//
//   out = the ⌊n/3⌋ slowest of the slow, n = all that could serve, the slow ones included
//
// Each agent judges its own engine against what calibration measured there; only the router knows the pool. Where all
// are slow none is out: what slows all of them (heat in the hall, longer prompts than ever) is no fault of one, and a
// pool must not disappear for it. The rest stay candidates, and the cost that they report keeps most work away.
// An older agent's unknown ratio counts as the slowest; equal ones go by key, so that all routers agree.

export interface SlowTarget<T> {
  readonly target: T;
  readonly key: string;
  /** Measured ÷ calibrated prefill time; null where it is not told. */
  readonly slowRatio: number | null;
}

/** `members`: how many could serve, the slow ones included. */
export function heldOut<T>(slow: readonly SlowTarget<T>[], members: number): ReadonlySet<T> {
  const most = Math.floor(members / 3);
  if (slow.length >= members || most === 0) return new Set();
  const worst = slow.toSorted(
    (a, b) => ratioOf(b) - ratioOf(a) || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0),
  );
  return new Set(worst.slice(0, most).map(({ target }) => target));
}

function ratioOf({ slowRatio }: SlowTarget<unknown>): number {
  return slowRatio ?? Number.MAX_VALUE;
}
