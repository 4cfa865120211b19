import { describe, expect, it } from 'vitest';
import type { Proof } from '../sim/proofs/proof.ts';
import { parseProve, proveCommand } from './prove-command.ts';

const GOOD: Proof = {
  name: 'good',
  title: 'holds',
  run: ({ quick, print }) => {
    print(quick ? 'a short table' : 'a long table');
    return { failures: [], rows: [{ seed: 1, p95Ms: 12.5, note: null }] };
  },
};
const BAD: Proof = {
  name: 'bad',
  title: 'does not hold',
  run: () => ({ failures: ['two is not one'], rows: [{ seed: 2 }] }),
};

function prove(...args: string[]): { status: number; out: string[]; err: string[] } {
  const out: string[] = [];
  const err: string[] = [];
  const status = proveCommand(args, [GOOD, BAD], {
    out: (line) => out.push(line),
    err: (line) => err.push(line),
    version: '1.2.3',
    machine: 'a machine',
    nowMs: () => 0,
  });
  return { status, out, err };
}

describe('npm run prove', () => {
  it('runs the named proofs and prints their lines', () => {
    const { status, out, err } = prove('good', '--quick');
    expect({ status, err }).toEqual({ status: 0, err: [] });
    expect(out).toContain('a short table');
    expect(out.at(-1)).toBe('== good holds after 0.0 s');
  });

  it('ends with 1 where a proof fails, and says what did not hold', () => {
    const { status, out } = prove('all');
    expect(status).toBe(1);
    expect(out).toContain('FAILED bad: two is not one');
    expect(out).toContain('a long table');
  });

  it('prints one object on stdout with --json, and the lines elsewhere', () => {
    const { status, out, err } = prove('good', 'bad', '--json');
    expect(status).toBe(1);
    expect(out).toHaveLength(1);
    expect(JSON.parse(out[0]!)).toEqual({
      version: '1.2.3',
      machine: 'a machine',
      rows: [
        { proof: 'good', seed: 1, p95Ms: 12.5, note: null },
        { proof: 'bad', seed: 2 },
      ],
      failures: [{ proof: 'bad', failure: 'two is not one' }],
    });
    expect(err).toContain('a long table');
  });

  it('refuses an unknown name, an unknown flag and no name, and lists the names', () => {
    for (const [args, message] of [
      [['goof'], 'no proof is called goof'],
      [['good', '--fast'], 'unknown flag --fast'],
      [[], 'name the proofs to run, or all'],
    ] as const) {
      const { status, out, err } = prove(...args);
      expect({ status, out, first: err[0] }).toEqual({ status: 2, out: [], first: message });
      expect(err.join('\n')).toContain('good  holds');
    }
  });

  it('keeps the order of the list and runs a name given twice once', () => {
    const options = parseProve(['bad', 'good', 'bad'], [GOOD, BAD]);
    expect(typeof options === 'string' ? options : options.proofs).toEqual([GOOD, BAD]);
  });
});
