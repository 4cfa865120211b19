// `npm run prove`: which proofs, how, and what is said of them.
//
// For people: each proof's own lines on stdout, then one line per failure and one verdict. With
// `--json` stdout is one object, `{version, machine, rows, failures}`, each row with the name of its
// proof, and the lines for people go to stderr. Exit status: 0 all held, 1 one did not, 2 the
// command could not be read.

import type { Proof, ProofRow } from '../sim/proofs/proof.ts';

export interface ProveOptions {
  readonly proofs: readonly Proof[];
  readonly quick: boolean;
  readonly json: boolean;
}

export interface ProveIo {
  out(line: string): void;
  err(line: string): void;
  readonly version: string;
  /** Processor, count and Node's version. */
  readonly machine: string;
  /** For the seconds that a proof took. */
  nowMs(): number;
}

/** Parses and runs; the exit status. */
export function proveCommand(
  args: readonly string[],
  proofs: readonly Proof[],
  io: ProveIo,
): number {
  if (args.includes('--help') || args.includes('-h')) {
    io.out(usage(proofs));
    return 0;
  }
  const options = parseProve(args, proofs);
  if (typeof options === 'string') {
    io.err(options);
    io.err(usage(proofs));
    return 2;
  }
  return runProofs(options, io);
}

/** A string says what cannot be read. */
export function parseProve(
  args: readonly string[],
  proofs: readonly Proof[],
): ProveOptions | string {
  const flags = args.filter((arg) => arg.startsWith('-'));
  const foreign = flags.find((flag) => flag !== '--quick' && flag !== '--json');
  if (foreign !== undefined) return `unknown flag ${foreign}`;
  const names = args.filter((arg) => !arg.startsWith('-'));
  const unknown = names.filter(
    (name) => name !== 'all' && !proofs.some((proof) => proof.name === name),
  );
  if (unknown.length > 0) return `no proof is called ${unknown.join(', ')}`;
  if (names.length === 0) return 'name the proofs to run, or all';
  const all = names.includes('all');
  return {
    proofs: proofs.filter((proof) => all || names.includes(proof.name)),
    quick: flags.includes('--quick'),
    json: flags.includes('--json'),
  };
}

function runProofs({ proofs, quick, json }: ProveOptions, io: ProveIo): number {
  const say = (line: string): void => (json ? io.err(line) : io.out(line));
  const rows: ProofRow[] = [];
  const failures: { proof: string; failure: string }[] = [];
  for (const proof of proofs) {
    say(`== ${proof.name}: ${proof.title}`);
    const startedMs = io.nowMs();
    const outcome = proof.run({ quick, print: say });
    for (const row of outcome.rows) rows.push({ proof: proof.name, ...row });
    for (const failure of outcome.failures) {
      failures.push({ proof: proof.name, failure });
      say(`FAILED ${proof.name}: ${failure}`);
    }
    const verdict = outcome.failures.length === 0 ? 'holds' : 'DOES NOT HOLD';
    const seconds = ((io.nowMs() - startedMs) / 1_000).toFixed(1);
    say(`== ${proof.name} ${verdict} after ${seconds} s`);
  }
  if (json) {
    io.out(JSON.stringify({ version: io.version, machine: io.machine, rows, failures }));
  }
  return failures.length === 0 ? 0 : 1;
}

function usage(proofs: readonly Proof[]): string {
  const width = Math.max(3, ...proofs.map((proof) => proof.name.length));
  const line = (name: string, title: string): string => `  ${name.padEnd(width)}  ${title}`;
  return [
    'usage: npm run prove -- NAME… [--quick] [--json]',
    '',
    'Proofs in virtual time, with the controls that must fail them:',
    ...proofs.map((proof) => line(proof.name, proof.title)),
    line('all', 'each of them'),
    '',
    '--quick: fewer seeds and loads. --json: one object on stdout, the tables on stderr.',
  ].join('\n');
}
