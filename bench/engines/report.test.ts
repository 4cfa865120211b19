import { expect, it } from 'vitest';
import { cellOf, turnOf } from './bench-cells.harness.ts';
import { LOADS } from './loads.ts';
import { aimLines, loadLines, rowsOf } from './report.ts';

const cells = new Map([
  ['smg', [cellOf('smg', 1, [turnOf(0, 0, 200), turnOf(0, 1, 100), turnOf(1, 0, null)])]],
  [
    'spillway',
    [{ ...cellOf('spillway', 1, [turnOf(0, 0, 90)]), marks: ['generator late: p95 80 ms'] }],
  ],
]);

it('gives a flat row an arm, with nothing where nothing was measured', () => {
  const [smg, spillway] = rowsOf('moderate', cells);
  expect(smg).toEqual({
    cell: 'moderate',
    arm: 'smg',
    seeds: 1,
    turns: 3,
    failed: 1,
    ttftMsMean: 150,
    ttftMsP50: 150,
    ttftMsP95: 195,
    laterTtftMsP50: 100,
    cachedShare: 0.3,
    runS: 40,
    routerCpuMsPerRequest: 500 / 3,
    agentCores: 0.005,
    generatorCores: 0.025,
    markedCells: 0,
  });
  expect(spillway).toMatchObject({ laterTtftMsP50: null, markedCells: 1 });
});

it('prints a line an arm, and names cells whose times are doubtful and how requests failed', () => {
  const lines = loadLines(LOADS[0]!, cells);
  expect(lines.filter((line) => /^ {2}(smg|spillway) +\d/.test(line))).toHaveLength(2);
  expect(lines).toContain('  marked: spillway, seed 1: generator late: p95 80 ms');
  expect(lines).toContain('  smg failed, the first: status 503');
});

it('says of each aim what came of it', () => {
  const aims = [
    { load: 'moderate', aim: 'a', outcome: 'MISSED', seen: '1.00 of smg' },
    { load: 'moderate', aim: 'b', outcome: 'not measured', seen: '' },
  ] as const;
  expect(aimLines(aims)).toEqual([
    'MISSED       moderate: a: 1.00 of smg',
    'not measured moderate: b',
  ]);
});
