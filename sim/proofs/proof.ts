// A proof: a claim about the whole, shown in the virtual world with measured rows and with controls
// that must fail it. `npm run prove` runs it in full; `npm test` runs a small part of it on the same
// functions.
//
// A proof is a value: it reads no clock and writes nowhere but to `print`, so that a seed tells all.

/** Flat, so that rows of several proofs can stand in one table. */
export type ProofRow = Readonly<Record<string, string | number | null>>;

export interface ProofOptions {
  /** Fewer seeds and loads: an answer within a minute or two. */
  readonly quick: boolean;
  /** A line of the table for people. */
  readonly print: (line: string) => void;
}

export interface ProofOutcome {
  /** What did not hold, one sentence each; a control that passes what it must fail is one. */
  readonly failures: readonly string[];
  readonly rows: readonly ProofRow[];
}

export interface Proof {
  /** As it is called on the command line; kebab-case. */
  readonly name: string;
  /** What it shows, one line. */
  readonly title: string;
  run(options: ProofOptions): ProofOutcome;
}
