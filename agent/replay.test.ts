import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { Replay, type Foretold, type RecordedRequest } from './replay.harness.ts';

const FIXTURES = new URL('../test/fixtures/vllm-0.32.0/', import.meta.url);

interface Row {
  readonly sentAtMs: number;
  readonly ttftMs: number | null;
  readonly e2eMs?: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

function recorded(name: string, member: string): RecordedRequest[] {
  const text = readFileSync(new URL(name, FIXTURES), 'utf8');
  const rows = (JSON.parse(text) as Record<string, Row[]>)[member] ?? [];
  const startMs = rows[0]?.sentAtMs ?? 0;
  return rows.map((row) => ({
    sentMs: row.sentAtMs - startMs,
    ttftMs: row.ttftMs,
    promptTokens: row.promptTokens,
    cachedTokens: row.cachedTokens,
    e2eMs: row.e2eMs ?? (row.ttftMs ?? 0) + 0.1,
  }));
}

/** Lone prefills, as warm-up measures them; the longest without a prefix were not recorded. */
const LONE = recorded('prefill-cached.json', 'alone');
const CALIBRATION = [
  [316, 0],
  [1_781, 0],
  [302, 9_312],
  [1_782, 9_376],
].map(([uncached, cached]) => {
  const at = LONE.find((row) => row.cachedTokens === cached && uncachedOf(row) === uncached);
  if (at === undefined) throw new Error(`no recording of ${uncached} after ${cached}`);
  return at;
});

const RECORDINGS: Readonly<Record<string, readonly RecordedRequest[]>> = {
  'prefill-cached.json': LONE.filter((row) => !CALIBRATION.includes(row)),
  'load-24-requests.json': recorded('load-24-requests.json', 'requests'),
};

function uncachedOf(row: RecordedRequest): number {
  return row.promptTokens - row.cachedTokens;
}

function errorsOf(told: readonly Foretold[]): number[] {
  return told.map(({ predictedMs, measuredMs }) => Math.abs(predictedMs / measuredMs - 1));
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[(values.length - 1) >> 1] ?? Number.NaN;
}

/** From a calibration at four lengths, each request foretold before it teaches anything. */
function replayed(name: string, stepTokens: number | null): { told: Foretold[]; replay: Replay } {
  const replay = new Replay({ stepTokens });
  replay.calibrate(CALIBRATION);
  return { told: replay.run(RECORDINGS[name] ?? []), replay };
}

describe.each(Object.keys(RECORDINGS))('%s, one request ahead', (name) => {
  test.each([
    ['its step of 1,024 tokens known', 1_024],
    ['its step unknown', null],
    ['its step told wrong', 8_192],
  ])('%s: within 10 %% (median)', (_, stepTokens) => {
    const { told, replay } = replayed(name, stepTokens);
    expect(told).toHaveLength(RECORDINGS[name]?.length ?? 0);
    expect(median(errorsOf(told))).toBeLessThan(0.1);
    // The agent says the same of itself, where observations were enough.
    const said = replay.target.cost.errors.figures();
    if (said !== null) expect(said.p50).toBeLessThan(0.1);
  });
});
