// Samples of one exposition summed by key: several series of one name (models, causes, schedulers) are one figure.
// A sample that is NaN, infinite or below 0 is absent (a report with one would end the link to every router), and so
// is a sum without samples.

export class Series<Key> {
  private readonly sums = new Map<Key, number>();

  get isEmpty(): boolean {
    return this.sums.size === 0;
  }

  has(key: Key): boolean {
    return this.sums.has(key);
  }

  add(key: Key, value: number): void {
    if (isFigure(value)) this.sums.set(key, (this.sums.get(key) ?? 0) + value);
  }

  /** In place of what was added before. */
  set(key: Key, value: number): void {
    if (isFigure(value)) this.sums.set(key, value);
  }

  sum(key: Key): number | null {
    return this.sums.get(key) ?? null;
  }

  /** The first of `keys` that has samples: a figure under its newer or older name. */
  first(...keys: readonly Key[]): number | null {
    for (const key of keys) {
      const sum = this.sum(key);
      if (sum !== null) return sum;
    }
    return null;
  }
}

function isFigure(value: number): boolean {
  return Number.isFinite(value) && value >= 0;
}

/** A share that is at most all of it. */
export function ratioOf(value: number | null): number | null {
  return value === null ? null : Math.min(1, value);
}

/** A label that is a number above 0. Python writes what is not set as `None`. */
export function sizeLabel(label: string | undefined): number | null {
  const value = Number(label ?? 'None');
  return Number.isFinite(value) && value > 0 ? value : null;
}
