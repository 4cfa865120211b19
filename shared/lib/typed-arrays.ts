// Typed arrays that are wider than they were.

/** The same numbers in a longer array, zeros behind them; itself where it is as long. */
export function widen<T extends Uint32Array | Uint8Array>(from: T, length: number): T {
  if (from.length >= length) return from;
  const to = (from instanceof Uint32Array ? new Uint32Array(length) : new Uint8Array(length)) as T;
  to.set(from);
  return to;
}
