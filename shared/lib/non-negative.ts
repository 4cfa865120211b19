// Least squares with no negative coefficient, for a handful of unknowns.
//
// Minimises ½·xᵀAx − bᵀx over x ≥ 0 for a symmetric positive definite A (row-major, n×n) by trying every
// set of coefficients that may differ from zero: exact, and for n ≤ 6 cheaper than being clever.

/** The minimiser; null when no coefficient can be positive, or A is singular wherever one could. */
export function solveNonNegative(
  a: Float64Array,
  b: Float64Array,
): Float64Array<ArrayBuffer> | null {
  const n = b.length;
  let best: Float64Array<ArrayBuffer> | null = null;
  let bestValue = Infinity;
  for (let subset = (1 << n) - 1; subset > 0; subset -= 1) {
    const x = solveSubset(a, b, subset);
    if (x === null) continue;
    // At a subset's own minimum the objective is −½·bᵀx.
    let value = 0;
    for (let i = 0; i < n; i += 1) value -= 0.5 * (b[i] ?? 0) * (x[i] ?? 0);
    if (value < bestValue) {
      bestValue = value;
      best = x;
    }
  }
  return best;
}

/** Solution over the coefficients in `subset`, zero elsewhere; null when singular or not feasible. */
function solveSubset(
  a: Float64Array,
  b: Float64Array,
  subset: number,
): Float64Array<ArrayBuffer> | null {
  const n = b.length;
  const index: number[] = [];
  for (let i = 0; i < n; i += 1) if ((subset & (1 << i)) !== 0) index.push(i);
  const scale = index.map((i) => 1 / Math.sqrt(a[i * n + i] || 1));
  const rows = index.map((i, r) => [
    ...index.map((j, c) => (a[i * n + j] ?? 0) * (scale[r] ?? 1) * (scale[c] ?? 1)),
    (b[i] ?? 0) * (scale[r] ?? 1),
  ]);
  const solution = eliminate(rows);
  if (solution === null || solution.some((value) => !(value >= 0))) return null;
  const x = new Float64Array(n);
  index.forEach((i, r) => {
    x[i] = (solution[r] ?? 0) * (scale[r] ?? 1);
  });
  return x;
}

/** Gaussian elimination with partial pivoting on an augmented matrix, in place; null when singular. */
function eliminate(rows: number[][]): number[] | null {
  const n = rows.length;
  for (let column = 0; column < n; column += 1) {
    let pivot = column;
    for (let r = column + 1; r < n; r += 1) {
      if (Math.abs(rows[r]?.[column] ?? 0) > Math.abs(rows[pivot]?.[column] ?? 0)) pivot = r;
    }
    const top = rows[pivot];
    const swapped = rows[column];
    if (top === undefined || swapped === undefined) return null;
    if (Math.abs(top[column] ?? 0) < 1e-12) return null;
    rows[pivot] = swapped;
    rows[column] = top;
    for (let r = column + 1; r < n; r += 1) {
      const row = rows[r];
      if (row === undefined) continue;
      const factor = (row[column] ?? 0) / (top[column] ?? 1);
      for (let c = column; c <= n; c += 1) row[c] = (row[c] ?? 0) - factor * (top[c] ?? 0);
    }
  }
  const x: number[] = Array.from({ length: n }, () => 0);
  for (let r = n - 1; r >= 0; r -= 1) {
    const row = rows[r];
    if (row === undefined) return null;
    let sum = row[n] ?? 0;
    for (let c = r + 1; c < n; c += 1) sum -= (row[c] ?? 0) * (x[c] ?? 0);
    x[r] = sum / (row[r] ?? 1);
  }
  return x;
}
