import { describe, expect, it } from 'vitest';
import { AIMS, verdictLine, verdicts } from './aims.ts';
import type { Figures } from './compare.ts';
import { exitCode, rowOf, skippedLine, tableHeader, tableLine, type Run } from './report.ts';

const FIGURES: Figures = {
  cpuUsPerRequest: 1_234.5,
  timesNginx: 1.9,
  timesNginxMin: 1.8,
  timesNginxMax: 2.1,
  addedTtftMsP50: 0.25,
  addedTtftMsP99: 1.2,
  settling: 1.01,
  requests: 600,
  wrong: 0,
  fault: null,
};

describe('rows', () => {
  it('are flat: cell, arm and numbers', () => {
    const row = rowOf('streams-64', 'spillway', FIGURES);
    expect(row).toMatchObject({ cell: 'streams-64', arm: 'spillway', timesNginx: 1.9 });
    const { cell: _cell, arm: _arm, ...numbers } = row;
    expect(Object.values(numbers).map((value) => typeof value)).toEqual(
      Object.values(numbers).map(() => 'number'),
    );
  });

  it('leave out what could not be measured: it is not 0, and JSON has no NaN', () => {
    const row = rowOf('streams-1', 'spillway', { ...FIGURES, addedTtftMsP99: Number.NaN });
    expect(JSON.parse(JSON.stringify(row))).not.toHaveProperty('addedTtftMsP99');
  });
});

describe('the table', () => {
  it('has its figures under their heads', () => {
    const line = tableLine('spillway', FIGURES);
    expect(line).toContain('1234.5  1.90 (1.80–2.10)');
    expect(line.indexOf('1.90')).toBe(tableHeader().indexOf('× nginx'));
    expect(line.indexOf('0.25')).toBe(tableHeader().indexOf('added'));
  });

  it('says of an arm that it was still falling, and of no other', () => {
    expect(tableLine('spillway', FIGURES)).not.toContain('first block');
    expect(tableLine('spillway', { ...FIGURES, settling: 1.5 })).toContain('1.50 × the others');
  });
});

describe('aims', () => {
  const row = (arm: string, timesNginx: number) => ({ cell: 'streams-64', arm, timesNginx });

  it('are met at the bound, missed above it, and unspoken of where nothing was measured', () => {
    expect(verdicts([row('spillway', 2)])).toMatchObject([{ met: true, measured: 2 }]);
    expect(verdicts([row('spillway', 2.01)])).toMatchObject([{ met: false }]);
    expect(verdicts([row('spillway-decide', 9)])).toEqual([]);
  });

  it('compare with another router only where it ran beside', () => {
    const seen = verdicts([row('spillway', 1.9), row('vllm-router-cache-aware', 1.8)]);
    expect(seen.map(({ met }) => met)).toEqual([true, false]);
    expect(seen.map(verdictLine)).toEqual([
      'met    streams-64 timesNginx: 1.90, aim at most 2',
      "MISSED streams-64 timesNginx: 1.90, aim below vllm-router-cache-aware's 1.80",
    ]);
  });

  it('are about cells and figures that a run has', () => {
    expect(new Set(AIMS.map(({ cell }) => cell))).toEqual(
      new Set([
        ...['two-tiers-json-16', 'two-tiers-streams-64'],
        ...['streams-64', 'streams-256', 'streams-64-100k', 'streams-256-100k', 'json-16'],
        ...['bodies-1m', 'writes-64', 'memory-100k'],
      ]),
    );
  });
});

describe('the status of a run', () => {
  const run = (changes: Partial<Run> = {}): Run => ({
    ...{ version: '0', machine: 'm', rows: [], missed: [], skipped: [] },
    ...changes,
  });

  it('is 0 with a part skipped or an aim missed, unless the run is strict', () => {
    const skipped = run({ skipped: [skippedLine('haproxy', 'no haproxy here')] });
    const missed = run({ missed: ['MISSED'] });
    expect([exitCode(skipped, false), exitCode(missed, false)]).toEqual([0, 0]);
    expect([exitCode(skipped, true), exitCode(missed, true), exitCode(run(), true)]).toEqual([
      1, 1, 0,
    ]);
    expect(skipped.skipped).toEqual(['SKIPPED haproxy: no haproxy here']);
  });

  it('is 1 where an answer was wrong, whatever the run is', () => {
    const wrong = run({ rows: [{ cell: 'json-16', arm: 'haproxy', wrong: 1 }] });
    expect(exitCode(wrong, false)).toBe(1);
  });
});
