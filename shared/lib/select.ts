// The k-th smallest of many numbers, without sorting them (Hoare's selection, median of three).

/** The k-th smallest, from 0, of the first `count` values. Their order changes. NaN is not allowed. */
export function kthSmallest(values: Float64Array, count: number, k: number): number {
  let left = 0;
  let right = count - 1;
  while (left < right) {
    const pivot = median3(values, left, right);
    let i = left;
    let j = right;
    while (i <= j) {
      while ((values[i] as number) < pivot) i += 1;
      while ((values[j] as number) > pivot) j -= 1;
      if (i > j) break;
      const swap = values[i] as number;
      values[i] = values[j] as number;
      values[j] = swap;
      i += 1;
      j -= 1;
    }
    if (k <= j) right = j;
    else if (k >= i) left = i;
    else return values[k] as number;
  }
  return values[k] as number;
}

function median3(values: Float64Array, left: number, right: number): number {
  const a = values[left] as number;
  const b = values[(left + right) >>> 1] as number;
  const c = values[right] as number;
  return Math.max(Math.min(a, b), Math.min(Math.max(a, b), c));
}
