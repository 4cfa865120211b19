// What the run found: one line a check as it is made, and the sum at the end.

export interface Verdict {
  /** Records a check; `detail` says what was seen. Returns whether it passed. */
  check(name: string, ok: boolean, detail?: string): boolean;
  /** Records a check that could not be made, and what for. */
  skip(name: string, missing: string): void;
  /** A figure without a bound. */
  note(text: string): void;
  heading(text: string): void;
  /** Prints the sum; true when nothing failed and something was checked. */
  finish(): boolean;
}

export function createVerdict(print: (line: string) => void): Verdict {
  const failed: string[] = [];
  let passed = 0;
  let skipped = 0;
  return {
    check(name, ok, detail) {
      if (ok) passed += 1;
      else failed.push(name);
      print(`  ${ok ? 'ok    ' : 'FAILED'} ${name}${detail === undefined ? '' : `: ${detail}`}`);
      return ok;
    },
    skip(name, missing) {
      skipped += 1;
      print(`  skipped ${name}: without ${missing}`);
    },
    note: (text) => print(`         ${text}`),
    heading: (text) => print(`\n${text}`),
    finish() {
      print('');
      for (const name of failed) print(`FAILED ${name}`);
      print(
        `${passed} passed, ${failed.length} failed${skipped === 0 ? '' : `, ${skipped} skipped`}`,
      );
      return failed.length === 0 && passed > 0;
    },
  };
}

/** Rows of a table with aligned columns; the first row is its head. */
export function tableLines(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    }
  }
  return rows.map((row) =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  '),
  );
}
