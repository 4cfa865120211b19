// "Did you mean": the nearest of the known words, where it is near enough to be meant.

/** Edits (insert, delete, replace, swap of neighbours) between two words. */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min(
        (rows[i - 1]?.[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (rows[i - 1]?.[j - 1] ?? 0) + same,
      );
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        least = Math.min(least, (rows[i - 2]?.[j - 2] ?? 0) + 1);
      }
      row.push(least);
    }
    rows.push(row);
  }
  return rows[a.length]?.[b.length] ?? Infinity;
}

/** The word meant, or null. At most a third of the letters may be wrong, and never more than three. */
export function suggest(word: string, known: readonly string[]): string | null {
  if (word.length > 64) return null;
  const limit = Math.min(3, Math.max(1, Math.floor(word.length / 3)));
  let best: { word: string; edits: number } | null = null;
  for (const candidate of known) {
    const edits = distance(word.toLowerCase(), candidate.toLowerCase());
    if (edits <= limit && (best === null || edits < best.edits)) best = { word: candidate, edits };
  }
  return best?.word ?? null;
}

/** `; did you mean "x"?`, or nothing. */
export function didYouMean(word: string, known: readonly string[]): string {
  const meant = suggest(word, known);
  return meant === null ? '' : `; did you mean "${meant}"?`;
}
